"""One store on a real Redis, with a clock that a test sets, and access to its keys.

The scripts are the package's own but for one line: ``clock_us`` reads a key instead of Redis's
TIME. So a test sets the time, to the microsecond, and everything else is real.
"""

import copy
import functools
import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import fakeredis

from celery_delayq.core import clock
from celery_delayq.core.clock import EPOCH, When, after, at
from celery_delayq.core.servers.connection import Connection, packed
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.settings import Settings
from celery_delayq.core.store import (
    Delivery,
    Entries,
    Filter,
    Membership,
    NewEntry,
    Outcome,
    Shard,
    selection,
)
from celery_delayq.core.store.changes import Move, Removal, Rewrite
from celery_delayq.core.store.delivery import GONE_AFTER, Copies, LeasedEntry, ScannerSteps
from celery_delayq.core.store.keys import KEYS, Keys
from celery_delayq.core.store.record import (
    FORM,
    HELD,
    Extras,
    NewRecord,
    Record,
    Template,
    header_for,
    labels_for,
    lane_for,
    whole,
)
from celery_delayq.core.store.schedule import Addition
from celery_delayq.core.store.scripts import Scripts, load
from celery_delayq.errors import DelayQError
from tests.support.shards import SHARDS

CLOCK = "test:clock"
OF_CALLS = ("calls", "calls_old", "meta")
ANSWER = b"\xfd"  # first byte of the field of an answer
TIME = "local time = redis.call('TIME')\n  return time[1] * 1000000 + time[2]"
NOW_MS = 4_000_000_000_000  # 2096, so also by the real clock it is not due yet
FAR_MS = NOW_MS + 86_400_000

INDEXES = ("due", "relay", "refused", "behind", "parked", "leased", "dead")
# Where `Store.at` takes an entry; in the places of LEFT it waits no longer.
WAITING = ("due", "relay", "refused", "parked")
LEFT = ("leased", "lapsed", "dead")
PLACES = (*WAITING, *LEFT)
VERDICTS = {"unsent": "unsent", "uncertain": "unknown", "refused": "refused", "dead": "dead"}
INDEX_OF = {"lapsed": "leased", "unsent": "relay", "uncertain": "relay"}
GONE = ("left", "cancelled")
TAKING = ("by", "lease", "wait", "uncertain", "reason")  # options of `Store.take`
LANE = 15  # bytes of lane, due time and kind, which begin a member of `parked`
# A template: between the lines belong id, delivery tag, body, id, root, parent, args, kwargs, due.
LINES = [
    '{"properties": {"correlation_id": "',
    '", "delivery_tag": "',
    '"}, "body": ',
    ', "headers": {"task": "tests.remind", "id": "',
    '", "root_id": ',
    ', "parent_id": ',
    ', "expires": ',
    ', "argsrepr": ',
    ', "kwargsrepr": ',
    ', "delayq_due": ',
]
NO_EXTRAS = Extras()
TASK = "tests.remind"
LABELS = labels_for(TASK, "celery")
ROUTE = json.dumps({"exchange": "", "routing_key": "mail", "declare": [], "mandatory": True})


def endpoint(server, db=0) -> Endpoint:
    return Endpoint(path=server.socket, db=db)


# An entry due at once at 12:00:00.0005 is due in the millisecond that has begun.
HALF_PAST_US = NOW_MS * 1000 + 500
HALF_PAST = EPOCH + timedelta(microseconds=HALF_PAST_US)
DUE_AT_ONCE = [
    (after(0), NOW_MS),
    (after(-1), NOW_MS),
    (at(HALF_PAST, timezone.utc), NOW_MS),
    (at(HALF_PAST - timedelta(microseconds=1), timezone.utc), NOW_MS),
    (at(HALF_PAST - timedelta(microseconds=500), timezone.utc), NOW_MS),
    (at(HALF_PAST - timedelta(microseconds=501), timezone.utc), NOW_MS),
    (at(HALF_PAST - timedelta(microseconds=1501), timezone.utc), NOW_MS - 1),
]
STILL_TO_COME = [
    (after(timedelta(microseconds=1)), NOW_MS + 1),
    (after(timedelta(microseconds=500)), NOW_MS + 1),
    (after(timedelta(microseconds=501)), NOW_MS + 2),
    (at(HALF_PAST + timedelta(microseconds=1), timezone.utc), NOW_MS + 1),
    (at(HALF_PAST + timedelta(microseconds=500), timezone.utc), NOW_MS + 1),
    (at(HALF_PAST + timedelta(microseconds=501), timezone.utc), NOW_MS + 2),
]

# A process that is starved for seconds still ends its calls in time.
SETTINGS = replace(Settings.load({}), timeout=30.0, remember=(3600, 10_000))
TIMEOUT_MS = round(SETTINGS.timeout * 1000)
MEMBERSHIP = Membership()


class ClockedScripts(Scripts):
    """The scripts; they read the time from a key, and tell `on_call` of each call before it."""

    on_call = staticmethod(lambda _name, _arguments: None)

    def call(self, name, *given, **arguments):
        self.on_call(name, arguments)
        return super().call(name, *given, **arguments)

    def _prepare(self, name):
        call = super()._prepare(name)
        script = _clocked(call.script)
        call = replace(call, script=script, by_sha=packed(["EVALSHA", script.sha]))
        self._calls[name] = call
        return call


@functools.cache
def _clocked(script):
    text = script.text.replace(TIME, f"return tonumber(redis.call('GET', '{CLOCK}'))")
    assert "'TIME'" not in text, "the prelude's clock has changed; change TIME here"
    return replace(script, text=text, sha=hashlib.sha1(text.encode()).hexdigest())


def clocked_names():
    """The names of these scripts, by their SHA-1."""
    return {_clocked(script).sha.encode(): name for name, script in load().items()}


class Store:
    """The package's Entries and ScannerSteps over one prefix, and the contents of their keys."""

    def __init__(
        self, server, prefix="delayq", *, clocked=True, timeout=SETTINGS.timeout, port=None
    ):
        self.endpoint = endpoint(server) if server else Endpoint()
        if port is not None:
            self.endpoint = Endpoint("127.0.0.1", port)
        self.settings, self.membership = replace(SETTINGS, timeout=timeout), MEMBERSHIP
        # One of several shards: a script knows no other.
        self.keys = Keys(prefix, SHARDS - 1, SHARDS)
        self.raw = server.client() if server else fakeredis.FakeRedis(server=self._fake)
        self._clocked = clocked
        if clocked:
            self.set_ms(NOW_MS)
        self.scripts = self.new_scripts()
        self.entries = Entries([self.scripts], self.membership)
        self.scanners = []  # the steps of each that was made
        self._of_scanners = []

    def limit_calls(self, seconds: float) -> None:
        """From here on, a caller's calls last no longer."""
        scripts = self.shard.scripts
        scripts.settings = replace(scripts.settings, timeout=seconds)

    @property
    def shard(self) -> Shard:
        """The shard that steps work on."""
        return self.entries.shards[0]

    def set(self, **settings) -> None:
        """From here on, the processes of this store have other settings."""
        self.settings = replace(self.settings, **settings)
        self.scripts = self.scripts_with()
        self.entries = Entries([self.scripts], self.membership)

    def new_scripts(self, **settings) -> Scripts:
        """Scripts over their own connection, as in each process."""
        kind = ClockedScripts if self._clocked else Scripts
        return kind(self._client(), self.keys, replace(self.settings, **settings))

    def scripts_with(self, **settings) -> Scripts:
        """Scripts over the same connection, of a process with other settings."""
        scripts = copy.copy(self.scripts)
        scripts.settings = replace(self.settings, **settings)
        return scripts

    def _client(self) -> Connection:
        return Connection(self.endpoint)

    def steps(self, *, alive=15.0, name=None, owes=False, **settings) -> ScannerSteps:
        scripts = self.new_scripts(safety_interval=alive / GONE_AFTER, **settings)
        self._of_scanners.append(scripts)
        shard_steps = ScannerSteps(scripts, self.membership, name=name, owes=owes)
        self.scanners.append(shard_steps)
        return shard_steps

    def let_scanners(self, **settings) -> None:
        """From here on, the scanners that were made have other settings."""
        for scripts in self._of_scanners:
            scripts.settings = replace(scripts.settings, **settings)

    def close(self) -> None:
        for scripts in (self.scripts, *self._of_scanners):
            scripts.connection.close()
        self.raw.close()

    # Time.

    def set_us(self, us: int) -> None:
        self.raw.set(CLOCK, us)

    def set_ms(self, ms: int) -> None:
        self.set_us(ms * 1000)

    # Scheduling, with default values for most arguments.

    def schedule(self, task_id, due_ms=NOW_MS, *, to="celery", **options) -> int:
        """An entry bound for the list *to*; returns its due time in ms."""
        return self._schedule(task_id, header_for("L", to), due_ms, **options)

    def schedule_relayed(self, task_id, due_ms=NOW_MS, **options) -> int:
        """An entry that a scanner publishes; returns its due time in ms."""
        return self._schedule(task_id, header_for("R", ROUTE), due_ms, **options)

    def _schedule(
        self,
        task_id,
        destination,
        due_ms,
        *,
        payload="",
        share=False,
        extras=NO_EXTRAS,
        queue="celery",
        **options,
    ) -> int:
        record = new_record(task_id, destination, payload, share=share)
        record = replace(record, labels=labels_for(TASK, queue)).with_extras(extras)
        return self.put(task_id, record, due_ms, **options)

    def put(
        self, task_id, record, due_ms, *, when=None, conflict="", delivery=None, run="", **options
    ) -> int:
        new = NewEntry(task_id, when or When("at", due_ms), record, conflict, delivery, run)
        (answer,) = self.entries.schedule([new], Addition(**options))
        if isinstance(answer, DelayQError):
            raise answer
        assert answer.task_id == task_id
        return answer.due_ms

    # Entries in a place or a state, by the steps of the package.

    def at(
        self,
        place: str,
        *ids: str,
        due_ms: int = NOW_MS,
        relayed: bool = False,
        lane: bytes | None = None,
        **options: Any,
    ) -> list[LeasedEntry]:
        """Take a new entry, "a", or several, to a place or a state.

        ==================  =======================================================
        due, relay          it waits, bound for a list, or for a scanner
        parked              its queue is paused
        behind              a delivered task, *holder*, has its key
        leased, lapsed      a scanner publishes it; or did, when its lease ran out
        unsent, uncertain   it was given back: as it was, or as possibly delivered
        refused, dead       the broker refused it, for now or for good
        left                it was delivered
        cancelled           it was cancelled
        ==================  =======================================================

        Args:
            place: One of these.
            ids: Of the entries; no other that a scanner publishes may be due before them.
            due_ms: When they are due.
            relayed: Whether one that is parked, or left, is for a scanner.
            lane: What is paused, if it is not its queue.
            options: Of :meth:`schedule`, and of :meth:`take`.

        Returns:
            Their claims, in the order of *ids*, if a scanner has or had them.
        """
        ids = ids or ("a",)
        taking = {name: options.pop(name) for name in TAKING if name in options}
        options = {"share": True, **options}
        if place == "behind":
            options = self._hold_key(**options)
        is_relayed = relayed or place not in ("due", "parked", "behind", "left", "cancelled")
        put = self.schedule_relayed if is_relayed else self.schedule
        for task_id in ids:
            put(task_id, due_ms, **options)
        if place in ("due", "relay", "behind"):
            return self._checked(place, ids)
        if place == "cancelled":
            for task_id in ids:
                self.entries.change(task_id, Removal())
            return self._checked(place, ids)
        if place == "parked":
            queue = options.get("queue", "celery")
            self.entries.pause(lane or lane_for(queue=queue), queue)
        if is_relayed:
            return self.take(place, *ids, **taking)
        shard_steps = taking.get("by") or self.steps()
        shard_steps.hand_over()
        return self._checked(place, ids)

    def take(
        self,
        place: str,
        *ids: str,
        by: ScannerSteps | None = None,
        lease: float = 30.0,
        wait: float = 60.0,
        uncertain: bool = False,
        reason: str = "NO_ROUTE",
    ) -> list[LeasedEntry]:
        """The same with an entry, or several, that are the first to be due for a scanner.

        Args:
            place: One that a claim leads to: leased, lapsed, unsent, uncertain, refused, dead, left
                or parked.
            ids: Of the entries.
            by: The scanner; by default a new one.
            lease: For how long such a new one has a lease, in seconds.
            wait: Until the next try of one that is refused, in seconds.
            uncertain: Whether one that is refused, or dead, may have been delivered.
            reason: Why it is.
        """
        shard_steps = by or self.steps(lease=lease)
        claimed = {one.task_id: one for one in shard_steps.claim(len(ids)).entries}
        if place == "parked":
            return self._checked(place, ids)
        assert claimed.keys() == set(ids), f"{[*claimed]} were due first"
        claims = [claimed[task_id] for task_id in ids]
        if place == "lapsed":
            self.lease_out(*claims)
        elif place == "left":
            shard_steps.ack(claims)
        elif place != "leased":
            given = {"wait": wait, "uncertain": uncertain, "reason": reason}
            shard_steps.nack(VERDICTS[place], claims, **given)
        return self._checked(place, ids, claims)

    def _checked(self, place, ids, claims=()):
        expected = [] if place in GONE else [INDEX_OF.get(place, place)]
        places = self.all_places()
        assert all(places[task_id] == expected for task_id in ids), places
        return [*claims]

    def _hold_key(self, *, key="k", holder="holder", **options):
        """Deliver a task that then holds a key for 1,000 s; returns the options of a next one."""
        self.schedule(holder, extras=Extras(key, hold="f1000000"), share=True)
        self.steps().hand_over()
        return {"extras": Extras(key, hold="w1000000"), "conflict": "replace", **options}

    def reschedule(self, who, when, **conditions) -> tuple[Outcome, int | None]:
        """Give an entry another due time; returns that, in ms, if it was done."""
        outcome, change = self.entries.change(who, Move(when, **conditions))
        return outcome, change.due_ms

    def pages(self, chosen: Filter):
        """The members that a selection may mean, page by page."""
        return selection.begin(self.shard, chosen).pages()

    def edit(self, task_id, payload="", *, entry=None, **options):
        """Give an entry, as it was read, another message, and so on: see `edited`."""
        entry = entry or self.entries.find(task_id)
        return self.entries.change(
            task_id, Rewrite(entry.record, edited(entry, payload, **options))
        )[0]

    def arrive(self, *hand_over_and_attempt, lease=30.0) -> int:
        """A copy arrives at a worker; returns the attempt that arrived first."""
        *hand_over, attempt = hand_over_and_attempt
        until = clock.monotonic() + self.shard.scripts.settings.timeout
        return self.copies(lease).first((*hand_over,), attempt, until)

    def delivery(self, task_id, *, again=True) -> Delivery:
        """A message that a broker delivered."""
        return self.copies().delivery((task_id, "its name"), again=again)

    def copies(self, lease=30.0) -> Copies:
        return Copies([self.scripts_with(lease=lease)], 0.0)

    def flood(self, count: int, due_ms=NOW_MS) -> list[str]:
        """Write the entries of *count* schedule calls, without the round trips; returns the ids."""
        self.schedule("a0", due_ms, share=True)
        record, ids = self.record("a0"), [f"a{number}" for number in range(count)]
        header_end = record.index(b":") + 1 + len("celery")
        orders = [(2 * number).to_bytes(6, "big") for number in range(1, count + 1)]
        records = [record[:header_end] + order + record[header_end + 6 :] for order in orders]
        members = [order + task_id.encode() for order, task_id in zip(orders, ids, strict=True)]
        self.raw.hset(self.keys["records"], mapping=dict(zip(ids, records, strict=True)))
        self.raw.zadd(self.keys["due"], dict.fromkeys(members, due_ms))
        self.raw.hset(self.keys["template_uses"], template_of(record), count)
        self.raw.hset(self.keys["meta"], "seq", count)
        return ids

    # Contents.

    def arrived(self, to="celery") -> list[str]:
        """The ids in a queue's list, in order of arrival."""
        return [json.loads(one)["headers"]["id"] for one in reversed(self.raw.lrange(to, 0, -1))]

    def places(self, task_id: str) -> list[str]:
        """Every index that an id is in."""
        return self.all_places()[task_id]

    def all_places(self) -> dict[str, list[str]]:
        """The indexes of each id, for all ids at once; empty for an id that is in none."""
        with self.raw.pipeline(transaction=False) as reads:
            for name in INDEXES:
                reads.zrange(self.keys[name], 0, -1)
            found = defaultdict(list)
            for name, members in zip(INDEXES, reads.execute(), strict=True):
                for member in members:
                    found[_id_of(name, member).decode(errors="replace")].append(name)
        return found

    def score(self, name: str, task_id: str) -> int | None:
        rows = self.raw.zrange(self.keys[name], 0, -1, withscores=True)
        found = (int(score) for one, score in rows if _id_of(name, one) == task_id.encode())
        return next(found, None)

    def record(self, task_id: str) -> bytes | None:
        return self.raw.hget(self.keys["records"], task_id)

    def known_calls(self, generation: str = "calls") -> tuple[list[bytes], list[bytes]]:
        """Answered operations, and names that have a fence."""
        fields = self.raw.hkeys(self.keys[generation])
        answered = [one[1:] for one in fields if one.startswith(ANSWER)]
        return answered, [one for one in fields if not one.startswith(ANSWER)]

    def snapshot(self) -> dict[bytes, object]:
        """Every key but the clock and the records of calls."""
        return {key: one for key, one in self.contents().items() if key != CLOCK.encode()}

    def contents(self, *, all_keys=False) -> dict[bytes, object]:
        """The keys with data about tasks, in Redis's own order; or *all_keys*."""
        read = {
            b"zset": lambda key: self.raw.zrange(key, 0, -1, withscores=True),
            b"hash": self.raw.hgetall,
            b"list": lambda key: self.raw.lrange(key, 0, -1),
            b"string": self.raw.get,
        }
        keys = sorted(self.raw.scan_iter("*")) if all_keys else self._told_of()
        return {key: read[self.raw.type(key)](key) for key in keys}

    def _told_of(self) -> list[bytes]:
        of_calls = {self.keys[name].encode() for name in OF_CALLS}
        return sorted(set(self.raw.scan_iter("*")) - of_calls)

    def lease_out(self, *claims: LeasedEntry) -> None:
        """Let these leases run out, or all, as if time had passed, with no change to others."""
        members = [one.member for one in claims] or self.raw.zrange(self.keys["leased"], 0, -1)
        for member in members:
            self.raw.zadd(self.keys["leased"], {member: 0})

    def check(self) -> None:
        """Check the invariants that hold after every step."""
        names = (
            *INDEXES,
            "records",
            "holders",
            "held",
            "tags",
            "claims",
            "errors",
            "template_uses",
            "templates",
        )
        # No transaction: a full Redis queues no commands.
        with self.raw.pipeline(transaction=False) as pipe:
            for name in names:
                read = {"ZSET": pipe.zrange, "HASH": pipe.hgetall}
                kind = KEYS[name].split()[0]
                read[kind](self.keys[name], *(() if kind == "HASH" else (0, -1)))
            found = dict(zip(names, pipe.execute(), strict=True))
        # Ranges by bytes are right only if all scores are alike.
        for name in ("parked", "tags"):
            assert self.raw.zcount(self.keys[name], 0, 0) == len(found[name]), f"a score in {name}"
        places = {name: {_id_of(name, member) for member in found[name]} for name in INDEXES}
        held = found["records"].keys()
        counted = Counter(task_id for ids in places.values() for task_id in ids)
        assert set(counted.values()) <= {1}, "an id is in two places"
        assert counted.keys() == held, "an index and the records differ"
        assert places["dead"] | places["refused"] <= found["errors"].keys() <= held
        self._check_extras(found, held - places["leased"] - places["dead"])
        assert places["leased"] <= found["claims"].keys() <= held
        shared_by = Counter(filter(None, map(template_of, found["records"].values())))
        assert {name: int(count) for name, count in found["template_uses"].items()} == shared_by
        assert found["templates"].keys() == shared_by.keys()

    def _check_extras(self, found, waiting) -> None:
        """Check that the indexes of keys and tags are complete, and have no ghosts."""
        extras, tags = {}, set()
        for task_id, text in found["records"].items():
            record = Record(text, text.index(b":") + 1 + int(text[2 : text.index(b":")]))
            one = extras[task_id] = record.extras
            member = text[record.header_end : record.header_end + 6] + task_id
            tags |= {tag.encode() + b"\0" + member for tag in one.tags}
        assert set(found["tags"]) == tags
        named = {key[1:]: row for key, row in found["holders"].items() if key[:1] == HELD}
        assert set(found["behind"]) == set(named.values()), (
            "one is behind, and its key finds it not"
        )
        for key, member in named.items():
            assert extras[member[6:]].key == key.decode(), "one is behind another key"
            assert key in found["held"], "no step looks whether the key is free"
        for key, row in found["holders"].items():
            if key[:1] == HELD:
                continue
            task_id, has_left, _ = row.partition(HELD)
            assert not has_left or key in found["held"], "a key is held without an end"
            assert has_left or extras[task_id].key == key.decode(), (
                "an entry holds a key that is not its own"
            )
        for task_id in waiting:
            key = extras[task_id].key
            known = found["holders"].keys() | named.keys()
            assert not key or key.encode() in known, "an entry's key has no holder"

    def check_types(self) -> None:
        """Check that each key has the type that the layout says."""
        with self.raw.pipeline(transaction=False) as pipe:
            for name in KEYS:
                pipe.type(self.keys[name])
            types = dict(zip(KEYS, pipe.execute(), strict=True))
        declared = {name: says.split()[0].lower().encode() for name, says in KEYS.items()}
        assert {
            name: kind for name, kind in types.items() if kind != b"none"
        }.items() <= declared.items()


def _id_of(name: str, member: bytes) -> bytes:
    return member[LANE + 6 :] if name == "parked" else member[6:]


class FakeStore(Store):
    """The same over fakeredis, which suits users' quick tests, but proves nothing about Redis."""

    def __init__(self):
        self._fake = fakeredis.FakeServer()
        super().__init__(None)

    def _client(self) -> Connection:
        return Connection(_Imitation(fakeredis.FakeRedis(server=self._fake).connection_pool))


class _Imitation(Endpoint):
    """The endpoint of fakeredis, which is in this process."""

    def __init__(self, pool):
        super().__init__()
        object.__setattr__(self, "_pool", pool)

    def connection(self, timeout):
        return _untimed(self._pool.make_connection())


def new_record(
    task_id: str, destination: bytes, payload="", *, share=False, expires="null", lines=None
) -> NewRecord:
    """A message like Celery's, in either of a record's forms."""
    if share:
        differing = ["", "null", expires, '"()"', '"{}"', json.dumps(payload)]
        return Template.of(lines or LINES).new_record(destination, LABELS, differing)
    text = json.dumps({"body": payload, "headers": {"id": task_id, "delayq_due": 0}})
    return whole(destination, LABELS, text.removesuffix("0}}"))


def edited(
    entry, payload="", *, to="celery", kind="", queue="", extras=None, share=True, **options
) -> NewRecord:
    """The record of an entry with another message; bound for the list *to*, or of another kind."""
    kind = kind or ("L" if entry.record.is_for_list else "R")
    destination = header_for(kind, to if kind == "L" else ROUTE)
    new = new_record(entry.task_id, destination, payload, share=share, **options)
    return entry.record.with_message(new, extras, labels_for(TASK, queue) if queue else b"")


def template_of(record: bytes) -> bytes | None:
    """The name of the template that a record shares."""
    length, _, rest = record[2:].partition(b":")
    form = rest[int(length) + FORM :]
    return form[1:13] if form[:1] == b"T" else None


def tally(entry) -> tuple[int, int, bool]:
    """A claimed entry's attempts and refusals so far, and whether one is uncertain."""
    return entry.attempts, entry.refusals, bool(entry.uncertain)


def _untimed(connection):
    """A connection of fakeredis, which answers at once and has no time-out."""
    connect = connection.connect

    def connected():
        connect()
        connection._sock.settimeout = lambda _: None

    connection.connect = connected
    return connection

"""The simulator's access to the package; no other file imports it, but for rules_driver.py.

clients, workers, scanners --> Caller, Taker, scan --> the package's own Python
                                                          | Wire: its connection
judge <--- Sight <--- Inside: its scripts and its keys <--+
patches ---> seams: where it asks for time and chance
sabotage --> CUTS: its safeguards, one by one
"""

import inspect
import json
import math
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta, timezone
from functools import cached_property, partial
from itertools import chain
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import redis
from kombu.exceptions import ChannelError

from celery_delayq.contrib.adoption import batches
from celery_delayq.contrib.adoption.batches import ASK_AGAIN, Batches, is_stored
from celery_delayq.contrib.care import migration
from celery_delayq.contrib.care.check import check_store
from celery_delayq.contrib.care.migration import Resharding
from celery_delayq.contrib.consumer import StoreQuery
from celery_delayq.contrib.rules import writing
from celery_delayq.contrib.undo import undoing
from celery_delayq.core import clock
from celery_delayq.core.handover import contact, scanner
from celery_delayq.core.handover.publishers import OneByOne
from celery_delayq.core.handover.relay import Link, Relay
from celery_delayq.core.handover.scanner import Parts, Scanner
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.message import headers as holds
from celery_delayq.core.message.headers import DUE_HEADER, HOLD_HEADER, REDELIVERED_HEADER, Hold
from celery_delayq.core.scheduling.options import PLAIN
from celery_delayq.core.servers.connection import packed, translated
from celery_delayq.core.store import Entries, Membership, NewEntry, Receipt, changes, lookup
from celery_delayq.core.store import entries as placement
from celery_delayq.core.store import selection as selection_scan
from celery_delayq.core.store.calls import Attempts
from celery_delayq.core.store.changes import Move, Removal, Rewrite
from celery_delayq.core.store.delivery import Copies, ScannerSteps
from celery_delayq.core.store.keys import Keys, Target, target_of_key, target_of_member
from celery_delayq.core.store.membership import Registration
from celery_delayq.core.store.record import (
    HELD,
    RELEASED,
    RUN_NOW,
    Extras,
    NewRecord,
    Record,
    Template,
    header_for,
    whole,
)
from celery_delayq.core.store.schedule import Addition
from celery_delayq.core.store.scripts import Script
from celery_delayq.core.store.selection import Filter
from celery_delayq.core.store.values import Outcome
from celery_delayq.core.tasks import selection
from celery_delayq.core.tasks.reading import Picks
from celery_delayq.core.tasks.selection import Selection
from celery_delayq.errors import (
    AlreadyScheduled,
    AlreadyTaken,
    DelayQError,
    InFlight,
    KeyHeld,
    NotUndone,
    StoreDiffers,
    StoreUnavailable,
)
from tests.lab.simulator import rules_driver
from tests.lab.simulator.books import Answer
from tests.lab.simulator.rules_driver import LIMITS, RuleCaller, rule_view
from tests.lab.simulator.sight import Sight, View, edited_in, name_in
from tests.store import support
from tests.store.support import CLOCK, INDEXES, LABELS, LANE, SETTINGS, ClockedScripts, Store
from tests.support.lua_files import altered

KEYLESS = ("wrong_key", "records")  # a finding's kind and part

QUEUE = "celery"
LANES = {"*": b"*" * 7, "q": b"q" + LABELS[7:13], "t": b"t" + LABELS[1:7]}
ROUTE = json.dumps(
    {"exchange": "", "routing_key": "mail", "declare": [], "mandatory": True, "list": None}
)
TYPE = '{"content-type": "application/json", "content-encoding": "utf-8", '
LINES = [TYPE + support.LINES[0][1:], *support.LINES[1:]]
WHOLE = TYPE + '"properties": {}, "body": %(body)s, "headers": {"id": "%(id)s", "delayq_due": '

KEEPS = (100, 100)  # for 100 s, of 100 tasks
REMEMBER = (10, 100_000)  # seconds, tasks: for so long the store knows how an entry left
When = clock.When  # when the entry of a planned call is due
# Raised by a call without an answer; for a moment of a resharding two numbers of shards refuse.
Unavailable = StoreUnavailable, StoreDiffers
Refused = ChannelError  # raised by a broker that refuses a message
Raw = Sequence[Receipt | DelayQError]  # the package's answers about entries


def _shards_in(scripts: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """The scripts of each shard, and of the meeting place, if it is none of them."""
    return (scripts, None) if len(scripts) == 1 else (scripts[:-1], scripts[-1])


def _entries_over(process: "Process", timeout: float, now: Any = None) -> Entries:
    shards, apart = _shards_in(process.scripts(timeout=timeout))
    return Entries(shards, Membership(), apart, now)


class Known:
    """A process's entries, over the shards that it knows the store to have."""

    def __init__(self, process: "Process", timeout: float):
        self._process, self._timeout = process, timeout
        self._entries = _entries_over(process, timeout, self.now)

    def now(self) -> Entries:
        if len(self._entries.unasked_shards) != self._process.number:
            self._entries = _entries_over(self._process, self._timeout, self.now)
        return self._entries


# The calls of clients.


class Caller:
    """A process that makes calls.

    Args:
        scripts: From :meth:`Inside.scripts`.
        timeout: Seconds that a call may take.
    """

    def __init__(self, scripts: Any, timeout: float):
        self._known = Known(scripts, timeout)

    @property
    def _entries(self) -> Entries:
        return self._known.now()

    def make(self, one: Any) -> list[Answer]:
        """Make a planned call.

        Raises:
            Unavailable: it is not known what became of it.
        """
        entries = self._entries
        if one.lane:
            return [self._turn(one)]
        if one.kind == "clear":
            return [Answer("CLEARED", self._clear(one.tags[0]))]
        who = one.ids[0] if one.ids else target_of_key(one.key)
        if one.kind in ("edit", "release"):
            return [Answer(self._edit(who, one).name)]
        if one.kind in ("cancel", "undo", "reschedule"):
            return [self._change(who, one)]
        new = [_new_entry(one, task_id) for task_id in one.ids]
        what = Addition(revokes="all", pauses=[0.2, 0.2, 0.2])
        return [*map(_answer_of, entries.schedule(new, what))]

    def follow(self, one: Any, hold: Hold, *, goes_on: bool) -> list[Answer]:
        """Make a planned call of a run that holds a key, for its own id.

        Args:
            one: The planned call.
            hold: How the run holds its key.
            goes_on: The call is the run's retry, which has no key of its own; else it is for
                another task.

        Raises:
            Unavailable: it is not known what became of it.
        """
        new = _new_entry(replace(one, key="") if goes_on else one, hold.id)
        if holds.continues({"retries": int(goes_on)}, {}):
            new = PLAIN.holding(hold).of(new)
        revokes = ("all" if goes_on else "replaced") if one.conflict else "none"
        given = self._entries.schedule([new], Addition(supersede=True, revokes=revokes))
        return [*map(_answer_of, given)]

    def sweep(self, one: Any, cursor: str | None, told: Callable[[int, str], None]) -> int:
        """Move every entry that a selection matches, from a cursor on; return how many.

        Args:
            one: The planned call; it selects by its tag, or everything.
            cursor: The cursor to continue after, or ``None``.
            told: Called on the selection's progress, with the count and the cursor.

        Raises:
            Unavailable: The outcome of the last step is unknown.
        """
        services: Any = SimpleNamespace(
            entries=self._entries,
            hooks=Hooks(),
            timezone=timezone.utc,
            settings=SimpleNamespace(history=0, undo=0),
        )
        picks = Picks(tag=[*one.tags[:1]] or None, all=not one.tags, cursor=cursor)
        found = Selection(services, picks)
        by = timedelta(milliseconds=one.when.ms)
        return found.reschedule(by=by, progress=lambda count: told(int(count), found.cursor))

    def _change(self, who: Target, one: Any) -> Answer:
        if one.kind == "undo":
            return self._undo(one)
        if one.kind == "cancel":
            outcome, _ = self._entries.change(who, Removal(undo=KEEPS if one.keeps else 0))
            return Answer(outcome.name)
        mode = "now" if one.runs_now else ""
        outcome, change = self._entries.change(who, Move(one.when, mode))
        return Answer(outcome.name, change.due_ms)

    def _undo(self, one: Any) -> Answer:
        services: Any = SimpleNamespace(entries=self._entries, hooks=Hooks(), has_backend=False)
        (answer,) = undoing.undo_some(services, one.ids, now=one.runs_now)
        if isinstance(answer, NotUndone):
            return Answer(f"NOT_UNDONE {answer.reason}")
        return Answer("UNDONE", answer)

    def _turn(self, one: Any) -> Answer:
        if one.kind == "pause":
            self._entries.pause(LANES[one.lane], "")
            return Answer("PAUSED")
        self._entries.resume(LANES[one.lane])
        return Answer("RESUMED")

    def _clear(self, tag: str) -> int:
        """Cancel all entries with a tag, as a selection does; return how many."""
        chosen, done = Filter(tags=(tag,)), 0
        for link in self._entries.shards:
            for page in selection_scan.begin(link, chosen).pages():
                met = [target_of_member(member) for member in page]
                what = Removal(tells=False, chosen=chosen.text)
                for some in changes.changed(link, what, met) if met else ():
                    done += sum(one.outcome in (Outcome.DONE, Outcome.UNCERTAIN) for one in some)
        return done

    def _edit(self, who: Target, one: Any) -> Outcome:
        """Give what is there another message, which tells both calls; as the package does.

        With a release, it goes at once.
        """
        entries = self._entries
        entry = entries.find(who)
        if entry is None:
            return entries.change(who, Rewrite(None, NewRecord(b"", b"", b"")))[0]
        leaves = one.kind == "release"
        shares = one.shares and not leaves  # no two that are released have the same message
        one = replace(one, relayed=entry.record.text[1:2] == b"R", shares=shares)
        text = f"call:{name_in(entry.record.text)};edit:{one.name};"
        made = _record(one, entry.task_id, text)
        if leaves and entry.record.is_released:
            return Outcome.HANDED_OVER  # it is on its way
        if leaves:
            what = Rewrite(entry.record, entry.record.released(made), releases=True)
            return entries.change(who, what)[0]
        return entries.change(who, Rewrite(entry.record, entry.record.with_message(made)))[0]


def rule_caller(scripts: Any, timeout: float, relayed: bool) -> RuleCaller:
    """A process's recurring rules; for the arguments see `Caller` and `RuleCaller`."""
    return RuleCaller(Known(scripts, timeout), relayed=relayed)


def _new_entry(one: Any, task_id: str) -> NewEntry:
    record = _record(one, task_id, f"call:{one.name};")
    hold = one.hold if one.key else ""
    record = record.with_extras(Extras(one.key, one.tags, one.grace_ms, hold=hold))
    return NewEntry(task_id, one.when, record, one.conflict)


def _record(one: Any, task_id: str, text: str) -> NewRecord:
    destination = header_for("R", ROUTE) if one.relayed else header_for("L", QUEUE)
    body = json.dumps(text)
    if one.shares:
        differing = ["", "null", "null", '"()"', '"{}"', body]
        return Template.of(LINES).new_record(destination, LABELS, differing)
    return whole(destination, LABELS, WHOLE % {"id": task_id, "body": body})


def _answer_of(given: Receipt | DelayQError) -> Answer:
    if isinstance(given, Receipt):
        gone = tuple((one.task_id, one.outcome is Outcome.DONE) for one in given.cancelled)
        if given.existed:
            return Answer("KEPT", given.due_ms, given.task_id, gone)
        return Answer("SCHEDULED", given.due_ms, "", gone)
    if isinstance(given, KeyHeld):
        return Answer("HELD")
    if isinstance(given, AlreadyTaken):
        return Answer("TAKEN")
    if isinstance(given, InFlight):
        return Answer("IN_FLIGHT")
    if isinstance(given, AlreadyScheduled):
        return Answer("ALREADY_SCHEDULED")
    raise given


# Workers, and the messages that become entries.


class Taker:
    """A process that gets messages.

    Args:
        scripts: As for `Caller`.
        timeout: As for `Caller`.
        visibility: Seconds after which its broker gives a message to another one.
    """

    def __init__(self, scripts: Any, timeout: float, visibility: float):
        self._entries = _entries_over(scripts, timeout)
        shards, _ = _shards_in(scripts.scripts(lease=visibility, remember=(3600, 1_000_000)))
        self._copies = Copies(shards, visibility)
        self._asking = StoreQuery("simulated")
        self._sharded = len(shards) > 1

    def adopt(
        self,
        given: list[Any],
        write: Callable[[Sequence[Any]], Raw],
        sleep: Callable[[float], None],
    ) -> list[tuple[Any, bool]]:
        """Adopt messages with an eta; return for each whether it is an entry now (if not, it runs).

        Args:
            given: The deliveries.
            write: Returns the same as :meth:`write`.
            sleep: Waits a number of seconds.
        """
        found = Batches(write, lambda: None, sharded=lambda: self._sharded)
        # This is the work of its thread, which is another process here.
        found._under_way = given
        while len(found):
            found._decide(given)
            if len(found):
                sleep(ASK_AGAIN)
        return found.decided()

    def is_taken(self, one: Any) -> bool | None:
        """Whether a redelivered message became an entry before; ``None`` if that is unknown.

        If it did not, it is let through. This is for tasks that may have put themselves off, and
        for messages whose eta is near by now.
        """
        return self._asking.ask(
            one.task_id, lambda until: self._copies.is_taken(one.message.identity, until), None
        )

    def write(self, given: Sequence[Any], *, puts_off: bool = False) -> Raw:
        """Write entries: of tasks that put themselves off, or of messages with an eta.

        Raises:
            Unavailable: it is not known what became of them.
        """
        new = [self._entry(one, puts_off=puts_off) for one in given]
        return self._entries.schedule(new)

    def _entry(self, one: Any, *, puts_off: bool) -> NewEntry:
        message = one.message
        how: dict[str, Any] = {"again": one.again or message.has_name, "received": one.received}
        delivery = self._copies.delivery(message.identity, **({"again": True} if puts_off else how))
        return replace(_new_entry(message.plan, one.task_id), delivery=delivery)


def is_done(answer: Receipt | DelayQError) -> bool:
    """Whether nothing is left to do for a message."""
    return is_stored(answer)


def answers_in(raw: Raw) -> list[Answer] | None:
    """The answers; ``None`` if one of them is unknown."""
    if any(isinstance(one, StoreUnavailable) for one in raw):
        return None
    return [_answer_of(one) for one in raw]


# Scanners.


def scan(
    name: str,
    scripts: Any,
    publisher: "Publisher",
    ear: Any,
    *,
    timeout: float,
    batch_size: int,
    lease: float,
    safety_interval: float,
) -> None:
    """Scan until the world ends.

    Args:
        name: The scanner's.
        scripts: As for `Caller`.
        publisher: The way to its broker.
        ear: Receives the messages that Redis publishes to the scanner; a `words.Ear`.
        timeout: Seconds that a step may take.
        batch_size: The most entries that a step hands over.
        lease: Seconds for which it holds the entries that it claims.
        safety_interval: Seconds after which it looks without having been woken.
    """

    def parts() -> Parts:
        settings = {"timeout": timeout, "batch_size": batch_size, "lease": lease}
        made = scripts.scripts(safety_interval=safety_interval, **settings)
        shards, apart = _shards_in(made)
        link = _Link(publisher)
        steps_by_shard = [
            ScannerSteps(
                each,
                Membership(),
                name=name,
                owes=True,
                meeting_place=apart and Registration(apart, Membership()),
            )
            for each in shards
        ]
        relays = [
            Relay(shard_steps, link, lease=lease, hooks=Hooks()) for shard_steps in steps_by_shard
        ]
        return Parts(relays, _Wakeup(ear, len(shards)))

    one = Scanner(
        *parts()[:2],
        safety_interval=safety_interval,
        lease=lease,
        hooks=Hooks(),
        anew=lambda shards: None if scripts.number == shards else parts(),
    )
    one._stopping = _NeverStopping(ear)
    one.run()


class _NeverStopping:
    def __init__(self, ear: Any):
        self._ear = ear

    def is_set(self) -> bool:
        self._ear.actor.may_fall_asleep()
        return False


class _Wakeup:
    """The package's wake-up, as one scanner sees it."""

    def __init__(self, ear: Any, shards: int):
        self._ear = ear
        self._all = set(range(shards))

    def listen(self) -> bool:
        with _unheard():
            return self._ear.listen()

    def wait(self, seconds: float) -> set[int]:
        with _unheard():
            return self._all if self._ear.wait(seconds) else set()

    def rest(self, seconds: float) -> None:
        self._ear.actor.sleep(seconds)

    def interrupt(self) -> None:
        """Does nothing: a scanner here dies, or lives to the end."""

    def close(self) -> None:
        """Does nothing: the listener ends with the world."""


@contextmanager
def _unheard() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise StoreUnavailable("wake", str(error), False) from error


@dataclass(frozen=True)
class Publisher:
    """The way to a broker.

    Attributes:
        take: Called with a message's body and headers; raises what a broker and its link raise.
        probe: Called to see whether the broker is there; raises ``ConnectionError``.
        timeout: Seconds that it may take for a message.
    """

    take: Callable[[bytes, dict[str, Any]], None]
    probe: Callable[[], None]
    timeout: float


class _Link(Link):
    """The package's link, whose connection is to the broker of this world."""

    def __init__(self, publisher: Publisher):
        super().__init__(lambda: None, timeout=publisher.timeout)
        self._to = publisher

    def _open(self) -> OneByOne:
        self._publisher = _OneByOne(self._to)
        self._used = clock.monotonic()
        return self._publisher


class _OneByOne(OneByOne):
    """The package's publisher, down to kombu's ``Producer``."""

    def __init__(self, publisher: Publisher):
        self._to = publisher
        errors = SimpleNamespace(
            recoverable_connection_errors=(ConnectionError,), channel_errors=()
        )
        super().__init__(errors, publisher.timeout)

    def _open(self) -> None:
        self._producer = SimpleNamespace(publish=self._take, channel=None)

    def probe(self) -> None:
        self._to.probe()

    def _take(self, body: bytes, *, headers: dict[str, Any], **_: Any) -> None:
        self._to.take(body, headers)


@dataclass(frozen=True)
class Copy:
    """The contents of a message.

    Attributes:
        version: The due time that it was delivered for, and the name of its last edit.
        hold: How its run holds a key, if so.
    """

    name: str
    task_id: str
    is_marked: bool
    version: tuple[int, str]
    hold: Hold | None = None


def copy_of(message: bytes, headers: Mapping[str, Any] | None = None) -> Copy:
    """Read a message; one from a list of Redis's has its headers in itself."""
    known = json.loads(message)["headers"] if headers is None else headers
    version = known[DUE_HEADER], edited_in(message)
    hold = Hold.of(known.get(HOLD_HEADER), known["id"])
    return Copy(name_in(message), known["id"], REDELIVERED_HEADER in known, version, hold)


def say(scripts: Any, hold: Hold, ms: int, timeout: float, *, lease: bool) -> None:
    """Send a worker's word about a run: its key is held for so long from now, or free.

    With *lease*, perhaps no longer.

    Raises:
        Unavailable: it is not known whether it arrived.
    """
    words = [(hold.id, hold.key, hold.delivery, ms, int(lease))]
    Known(scripts, timeout).now().hold(words, clock.monotonic() + timeout)


def said_in(command: bytes) -> int:
    """For how long, in ms, a key is held from now by a word on its way; 0: it is free."""
    return int(command.rsplit(b"\r\n", 4)[-4])


# The way to Redis.


class Wire:
    """A process's connection to Redis, as the package asks for it.

    Args:
        network: Where requests go; it raises ``ConnectionError`` and ``TimeoutError``.
        actor: Whose connection it is.
        timeout: Seconds that a step takes at most, unless the step sets its own limit.
    """

    node = "redis", 1

    def __init__(self, network: Any, actor: Any, timeout: float):
        self._network = network
        self._actor = actor
        self._timeout = timeout

    def execute(self, step: str, command: list[bytes], until: float | None = None) -> Any:
        actor = self._actor
        if until is None:
            until = actor.monotonic() + self._timeout
        actor.may_fall_asleep()
        where = actor.step()
        with translated(step, may_have_run=False), _of_redis():
            self._network.connect(actor, where, step)
        text = b"*%d\r\n%s" % (len(command), b"".join(command))
        with translated(step), _of_redis():
            reply = self._network.ask(actor, where, step, text, until)
            if isinstance(reply, Exception):
                raise reply
        actor.may_fall_asleep()
        return reply

    def exchange(
        self, step: str, commands: list[list[bytes]], until: float | None = None
    ) -> list[Any]:
        """Only used to ask for the types of keys; no key here belongs to another program."""
        return [0 for _ in commands]

    def close(self) -> None:
        """Does nothing: the next command uses another connection."""


@contextmanager
def _of_redis() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise redis.exceptions.ConnectionError(str(error)) from error
    except TimeoutError as error:
        raise redis.exceptions.TimeoutError(str(error)) from error


class Process:
    """A process's scripts of each shard, and of the meeting place if that is apart.

    Attributes:
        number: The number of shards that it knows the store to have.
    """

    def __init__(self, wire: Any, prefix: str, number: int, cut: "Cut | None"):
        self._wire, self._prefix, self.number, self._cut = wire, prefix, number, cut
        self._hooks = Hooks(differs=self._meet)

    def scripts(self, number: int = 0, **settings: Any) -> list[Any]:
        """New ones of so many shards; by default of those that the store has."""
        found = _key_sets(self._prefix, number or self.number)
        apart = [Keys(self._prefix)] if len(found) > 1 else []
        given = replace(SETTINGS, **{"shards": len(found), "remember": REMEMBER, **settings})
        return [_Cut(self._wire, keys, given, self._cut, self._hooks) for keys in (*found, *apart)]

    def _meet(self, error: StoreDiffers) -> None:
        if error.name == "delayq_shards":
            self.number = int(error.theirs)


def _key_sets(prefix: str, number: int) -> list[Keys]:
    return [Keys(prefix, one, number) for one in range(number)]


def reshard(process: Process, number: int) -> bool:
    """Move the store to another number of shards, or go on with that; return whether it has.

    Raises:
        Unavailable: it is not known how far it is.
    """
    return _Resharding(process).run(number)


class _Resharding(Resharding):
    def __init__(self, process: Process):
        settings: Any = SimpleNamespace(wait_replicas=None)
        super().__init__(SimpleNamespace(settings=settings))  # type: ignore[arg-type]
        self._process, self._made = process, dict[int, Any]()

    def _check(self, before: int, after: int) -> None:
        """Asks for nothing: memory is never short here."""

    def _layout(self, number: int) -> Any:
        if number not in self._made:
            shards, _ = _shards_in(self._process.scripts(number))
            self._made[number] = SimpleNamespace(scripts=shards)
        return self._made[number]


def has_run(reply: Any) -> bool:
    """Whether a script ran; if not, it is unknown to Redis, or its shard is closed."""
    is_closed = isinstance(reply, redis.ResponseError) and "RESHARD" in str(reply)
    return not is_closed and not isinstance(reply, redis.exceptions.NoScriptError)


# The contents of Redis.


class Inside:
    """The package's scripts and keys on a real Redis, whose clock is a key."""

    def __init__(self, redis_server: Any):
        self._store = Store(redis_server)
        self._keys = [self._store.keys]
        self._entries = self._store.entries
        self._first = 1

    def connection(self) -> Any:
        """One of redis-py's."""
        where = self._store.endpoint
        return where.connection_class()(**where.options(timeout=30))

    def close(self) -> None:
        self._store.close()

    def channels(self, scanner_name: str) -> list[str]:
        """The channels on which Redis publishes to all scanners, and to one."""
        numbers = self._numbers
        sets = [one for number in numbers for one in _key_sets(self._store.keys.prefix, number)]
        return [one for keys in sets for one in keys.channels(scanner_name)]

    def scripts(self, wire: Wire, cut: "Cut | None") -> Any:
        """A process's own, without a safeguard; it begins with the first number of shards."""
        return Process(wire, self._store.keys.prefix, self._first, cut)

    def empty(self, shards: int, then: int) -> None:
        """Empty it for a world of so many shards, and perhaps of another number later."""
        self._store.raw.flushall()
        self._first, self._numbers = shards, sorted({shards, then})
        self._use(shards)

    def _use(self, shards: int) -> None:
        self._keys, self._entries = [self._store.keys], self._store.entries
        if len(self._numbers) > 1 or shards > 1:
            self._keys = _key_sets(self._store.keys.prefix, shards)
            wire, prefix = self._store.scripts.connection, self._store.keys.prefix
            self._entries = _entries_over(Process(wire, prefix, shards, READS_CLOSED), 5.0)

    def has_moved(self, noted: list[Any]) -> bool:
        """Whether the entries are on other shards than at the last look, from now on."""
        shards, phase = noted
        name, *numbers = phase.decode().split(" ") if phase else ("",)
        if name == "switch":  # the old shards are closed, and the new ones whole
            shards = numbers[1]
        if not shards or int(shards) == len(self._keys):
            return False
        self._use(int(shards))
        return True

    def forget_scripts(self) -> None:
        self._store.raw.script_flush()

    def set_clock(self, us: int) -> None:
        self._store.raw.set(CLOCK, us)

    def clock(self, us: int) -> bytes:
        """The command that sets it."""
        return _text("SET", CLOCK, us)

    def check(self) -> list[str]:
        """The findings of the package's own check of the store.

        An entry that comes back from a lease waits without its key while another entry has that
        key. When the other one has left, the key stays free until a repair.
        """
        found = [one for one in check_store(self._entries) if (one.kind, one.part) != KEYLESS]
        return sorted(map(str, found))

    def look(self, queued: int) -> list[bytes]:
        """The commands that read all there is, and the queue behind so many messages."""
        meta = Keys(self._store.keys.prefix)["meta"]
        commands: list[tuple[Any, ...]] = [("HMGET", meta, "shards", "reshard")]
        for keys in self._keys:
            commands.append(("HGETALL", keys["records"]))
            commands.append(("HGETALL", keys["holders"]))
            commands.append(("ZRANGE", keys["held"], 0, -1, "WITHSCORES"))
            commands.append(("ZRANGE", keys["tags"], 0, -1))
            commands.append(("HKEYS", keys["outbox_messages"]))
            commands.append(("HGETALL", keys["paused"]))
            commands.append(("HGETALL", keys["rules"]))
            commands.append(("ZRANGE", keys["rules_next"], 0, -1))
            commands += [("ZRANGE", keys[name], 0, -1, "WITHSCORES") for name in INDEXES]
        commands.append(("LRANGE", QUEUE, 0, -(queued + 1)))
        return [_text(*one) for one in commands]

    def seen(self, answers: list[Any], last: Sight) -> Sight:
        """The sight that the answers give."""
        _, *parts, arrived = answers
        size = len(parts) // len(self._keys)
        shards = [parts[first : first + size] for first in range(0, len(parts), size)]
        merged = ([*chain(*some)] for some in zip(*shards, strict=True))
        _, holders, held, tags, owed, paused, rules, ahead, *_ = merged
        ends = dict(_pairs(held))
        rows = {key: of.partition(HELD) for key, of in _pairs(holders) if key[:1] != HELD}
        raw: dict[str, Any] = {}
        for records, *_ in shards:
            for task_id, record in _pairs(records):
                raw[task_id.decode()] = [record]
        for _, _, _, _, _, _, _, _, *places in shards:
            for index, members in zip(INDEXES, places, strict=True):
                for member, score in _pairs(members):
                    raw.setdefault(_id_in(index, member), [None]).append((index, score))
        # Only changed records are read; their format is the package's own affair.
        views = {
            task_id: last.views[task_id]
            if last.raw.get(task_id) == parts
            else self._view(task_id, parts[0])
            for task_id, parts in raw.items()
            if parts[0] is not None
        }
        return Sight(
            views,
            raw,
            arrived[::-1],
            {key.decode(): of.decode() for key, (of, left, _) in rows.items() if not left},
            {
                key.decode(): (of.decode(), delivery.decode(), int(ends.get(key, 0)))
                for key, (of, left, delivery) in rows.items()
                if left
            },
            {key[1:].decode(): of[6:].decode() for key, of in _pairs(holders) if key[:1] == HELD},
            [_tag_and_id(member) for member in tags],
            {task_id.decode() for task_id in owed},
            {lane[:1].decode(): how[:1].decode() for lane, how in _pairs(paused) if len(lane) == 7},
            {name.decode(): rule_view(name, row) for name, row in _pairs(rules)},
            {name.decode() for name in ahead},
        )

    def _view(self, task_id: str, record: bytes) -> View:
        # Not by a search of the package's, which may be cut.
        found = (lookup.find(one, task_id) for one in self._entries.unasked_shards)
        entry = next(filter(None, found))
        extras, flags = entry.extras, _flags(record)
        since_ms, last_ms = max(entry.due_ms, extras.excused_ms), math.inf
        if extras.grace_ms is not None:
            last_ms = since_ms + extras.grace_ms
        return View(
            *(name_in(record), entry.due_ms, extras.key, extras.tags, entry.created_ms),
            *(bool(flags & RUN_NOW), last_ms, edited_in(record), bool(flags & RELEASED), since_ms),
            holds=extras.until_finished,
        )


def _text(*command: Any) -> bytes:
    return b"*%d\r\n%s" % (len(command), b"".join(packed(command)))


def _flags(record: bytes) -> int:
    return Record(record, record.index(b":") + 1 + int(record[2 : record.index(b":")])).flags


def _pairs(flat: list[Any]) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


def _tag_and_id(member: bytes) -> tuple[str, str]:
    tag, _, entry = member.partition(b"\0")
    return tag.decode(), entry[6:].decode()


def _id_in(index: str, member: bytes) -> str:
    return member[LANE + 6 if index == "parked" else 6 :].decode()


# Where it asks for time and chance.

real_monotonic, real_sleep, real_urandom = clock.monotonic, clock.sleep, os.urandom


def seams(
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    utc_now: Callable[[], Any],
    urandom: Callable[[int], bytes],
    uniform: Callable[[float, float], float],
    failed: Callable[..., None],
) -> list[tuple[Any, str, Any]]:
    """The patches of a running world: the owner of a name, the name, and its replacement.

    Args:
        monotonic: A process's own clock, in seconds.
        sleep: Lets a process wait.
        utc_now: The time of day.
        urandom: Random bytes.
        uniform: A random number between two.
        failed: Called with each unexpected error that a scanner or a worker logs and survives.
    """
    dice = SimpleNamespace(uniform=uniform)
    return [
        (clock, "monotonic", monotonic),
        (clock, "utc_now", utc_now),
        (os, "urandom", urandom),
        (clock, "sleep", sleep),
        (scanner, "random", dice),
        (contact, "random", dice),
        (selection, "CHUNK", 1),  # so that few tasks are several steps
        (scanner.logger, "log", _noting(failed, scanner.logger.log)),
        (batches.logger, "exception", failed),
        (writing.logger, "warning", partial(_unless_outside, failed)),
        *LIMITS,
    ]


def _unless_outside(failed: Callable[..., None], text: str, *told: Any) -> None:
    """Pass a warning of a writer to *failed*, unless the clock or the network is its cause."""
    if text not in (writing._REWOUND, writing._UNWRITTEN):
        failed(text, *told)


def _noting(failed: Callable[..., None], log: Callable[..., None]) -> Callable[..., None]:
    """A logger's ``log`` that also passes tracebacks to *failed*."""

    def noting(level: int, text: str, *told: Any, **more: Any) -> None:
        if more.get("exc_info") is not None:
            failed(text, more["exc_info"])
        log(level, text, *told, **more)

    return noting


# Its safeguards.


@dataclass(frozen=True)
class Cut:
    """A safeguard that is taken out: each script that has a text, or a method, gets another one.

    Attributes:
        old: The text.
        new: Its replacement.
        method: The class and the name of the method; without it, scripts are changed.
        also: A text of scripts that stands for the same safeguard, and its replacement.
    """

    old: str
    new: str
    method: tuple[Any, str] | None = None
    also: tuple[str, str] | None = None

    @property
    def is_there(self) -> bool:
        """Whether there is such a safeguard."""
        is_in_scripts = bool(self.scripts) or not self._in_scripts
        return is_in_scripts and (self.method is None or self.old in self._source())

    @cached_property
    def scripts(self) -> Mapping[str, Script]:
        """The scripts without it, by their names, if they had it."""
        found = self._in_scripts
        return altered(lambda text: text.replace(*found)) if found else {}

    @property
    def _in_scripts(self) -> tuple[str, str] | None:
        return self.also if self.method else (self.old, self.new)

    def applied(self) -> AbstractContextManager[Any]:
        """Within this block, it is taken out of the method, if it is about one."""
        if self.method is None:
            return nullcontext()
        owner, name = self.method
        names: dict[str, Any] = {}
        text = self._source().replace(self.old, self.new)
        exec(text, vars(inspect.getmodule(owner)), names)
        return patch.object(owner, name, names[name])

    def _source(self) -> str:
        owner, name = self.method or (None, "")
        return textwrap.dedent(inspect.getsource(getattr(owner, name)))


class _Cut(ClockedScripts):
    def __init__(
        self, connection: Any, keys: Any, settings: Any, cut: Cut | None, hooks: Hooks | None = None
    ):
        super().__init__(connection, keys, settings, hooks)
        self._cut = cut

    def script(self, name: str) -> Script:
        changed = self._cut.scripts if self._cut else {}
        return changed.get(name) or super().script(name)


READS_CLOSED = Cut("if not now or now < level then return nil end", "if true then return nil end")

CUTS = {
    "a shard that is resharded takes changes": READS_CLOSED,
    "a resharding leaves rules behind": Cut(
        "in HASHES:", "in HASHES[:-1]:", (migration.Copying, "rest")
    ),
    **{name: Cut(*parts) for name, parts in rules_driver.CUTS.items()},
    "an entry that is being published does not hold its key against its own run": Cut(
        "if caller and caller.key == key and caller.hold then",
        "if false then",
    ),
    "a run that goes on takes the key of another run of its id": Cut(
        "select(2, holder_of(new.key)) ~= run",
        "false",
    ),
    "an entry with the id of its run goes on as a retry does": Cut(
        "return any(", "return True or any(", (holds, "continues")
    ),
    "a retry does not take its key along": Cut(
        "return any(", "return False and any(", (holds, "continues")
    ),
    "a key is free once its task was delivered": Cut(
        "if how and leaving.keyed then hold_on(leaving.keyed, how, now) end",
        "",
    ),
    "a delivered task that holds its key is not looked for": Cut(
        "found = is_key_held(key, step.call.now) and",
        "found = nil and",
    ),
    "an entry that is being published holds no key": Cut(
        "elseif entry.hold and entry.state ~= 'dead' and may_run then",
        "elseif false then",
    ),
    "a word is about any delivery": Cut(
        "elseif delivery == word.delivery and (is_lease or is_key_held(word.key, now)) then",
        "elseif delivery and (is_lease or is_key_held(word.key, now)) then",
    ),
    "a lease ends the hold of a retry": Cut(
        "is_lease and ends == end_of_hand_over(word.key)",
        "is_lease",
    ),
    "a word is about any task": Cut(
        "if holder ~= word.id then",
        "if delivery then free_key(word.key, behind)",
    ),
    "a run that ends before it is acknowledged is not heard": Cut(
        "elseif not delivery and ms == 0 and is_leaving(word.id, word.delivery) then",
        "elseif false then",
    ),
    "a word frees the key of an entry that waits again": Cut(
        "elseif not delivery and ms == 0 and is_leaving(word.id, word.delivery) then",
        "elseif not delivery and ms == 0 then",
    ),
    "a run that begins does not set the end anew": Cut(
        "redis.call('ZADD', keys.held, whole(now + ms), word.key)",
        "",
    ),
    "a key is forgotten before its end": Cut(
        "'ZRANGEBYSCORE', keys.held, '-inf', whole(now), 'LIMIT'",
        "'ZRANGEBYSCORE', keys.held, '-inf', whole(now + 5000), 'LIMIT'",
    ),
    "a key is held for ever": Cut(
        "free_ended(now, limit, max_bytes), -1",
        "0, -1",
    ),
    "an entry behind another one leaves": Cut(
        "index, body = keys.behind, body_behind(body)",
        "",
    ),
    "an entry stays behind though the key is free": Cut(
        "if behind and redis.call('ZSCORE', keys.behind, behind) then",
        "if false then",
    ),
    "an entry comes forward too late": Cut(
        "if due == now then redis.call('HSET', keys.records",
        "if false then redis.call('HSET', keys.records",
    ),
    "two are behind one": Cut(
        "local behind = member and id_of(member) ~= id and find_entry(step, id_of(member)) or nil",
        "local behind",
    ),
    "an entry that goes leaves its name behind the holder": Cut(
        "if behind == one.member then",
        "if false then",
    ),
    "an entry that is moved goes before the holder": Cut(
        "local index = entry.place == keys.behind and keys.behind or index_of",
        "local index = index_of",
    ),
    "answers are not looked up": Cut(
        "if known then return {now_us, 'answer', known, told_again and told_again(known)} end",
        "",
    ),
    "answers are forgotten early": Cut("age > call.timeout", "age > 0"),
    "deadlines are not looked at": Cut(
        "if call.deadline < now_us then return {now_us, 'late'} end",
        "",
    ),
    "delivered tasks are forgotten at once": Cut("age < tonumber(ms)", "age < 0"),
    "only the latest delivered tasks are known": Cut(
        " or redis.call('HGET', keys.tombstones_old, id)",
        "",
    ),
    "delivered tasks are forgotten, not made the older ones": Cut(
        "if age >= 0 then make_older(", "if age >= 0 then redis.call('UNLINK', "
    ),
    "after the clock was set back, delivered tasks are forgotten": Cut(
        "if age >= 0 then make_older(", "if true then make_older("
    ),
    "fences are not looked at": Cut(
        "return since and is_overtaken(call, number_in(since, 1, 7))",
        "return false",
    ),
    "a hand-over leaves no fence": Cut(
        "    young[#young + 1], young[#young + 2] = id, changed",
        "",
    ),
    "the last change is not looked at": Cut(
        "is_overtaken(call, changed_of(entry.record, entry.header_end))",
        "false",
    ),
    "a lease that ran out is not marked": Cut(
        "claim.attempts, claim.uncertain = claim.attempts + 1, true",
        "claim.attempts = claim.attempts + 1",
    ),
    "a leased entry counts as waiting": Cut("if #members > 0 then make_untidy() end", ""),
    "due times are not looked at": Cut(
        "local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now),",
        "local members = redis.call('ZRANGEBYSCORE', index, '-inf', whole(now + 100),",
    ),
    "fences of keys are not looked at": Cut(
        "for _, since in ipairs({fences_of(call, name)}) do",
        "for _, generation in ipairs({}) do",
    ),
    "the holder of a key is not looked at": Cut(
        "not (is_newer(step, step.met[key]) or",
        "not (nil or",
    ),
    "an entry that waits under a key is not looked for": Cut(
        "return found, behind, member ~= nil",
        "return nil, behind, member ~= nil",
    ),
    "an entry that comes back takes the key from one that waits": Cut(
        "if not other_holder(key, id) then\n",
        "if true then\n",
    ),
    "an entry that comes back leaves the key to a leased one": Cut(
        "if not other_holder(key, id) then\n",
        "if not redis.call('HGET', keys.holders, key) then\n",
    ),
    "an entry that comes back without its key has none": Cut(
        "redis.call('HSET', keys.records, id, keyless)",
        "",
    ),
    "an entry that leaves frees its key, though another one has it": Cut(
        "if one.key ~= leaving.kept_key and not one.ends and is_its",
        "if one.key ~= leaving.kept_key",
    ),
    "an entry that leaves does not free its key": Cut(
        "then free_key(one.key, behind) end",
        "then end",
    ),
    "an entry that leaves stays under its tags": Cut(
        "local tagged = leaving.tagged or {}\n  for",
        "local tagged = {}\n  for",
    ),
    "no process revokes a replaced task": Cut(
        "if step.revokes ~= 'none' then owe(",
        "if false then owe(",
    ),
    "a replacement forgets when the first was scheduled": Cut(
        "return is_as_old and one.created < created and one.created or created",
        "return created",
    ),
    "no bound is kept of how long a task is put off": Cut(
        "if policy == 'debounce' and entry.max_wait ~= '' and (other or rival) then",
        "if false then",
    ),
    "a release is sure of an entry that may have been delivered": Cut(
        "return entry.claim and entry.claim.uncertain and 'uncertain' or 'done'",
        "return 'done'",
    ),
    "a released entry loses its key": Cut(
        "if releases then enter() end",
        "if releases then enter() redis.call('HDEL', keys.holders, 'k') end",
    ),
    "a pause is not looked at": Cut("if pause.state == 'p' then return pause.lane end", ""),
    "a pause or a resume may come late": Cut(
        "if is_fenced(call, fenced_as) then return nil, 'stale' end",
        "",
    ),
    "a parked entry stays there": Cut(
        "keys.due or keys.relay, 'NX', whole(due), member)",
        "keys.relay or keys.relay, 'XX', 0, member)",
    ),
    "an entry that runs now is paused as well": Cut(
        "if not lanes.any or has_flag(record, header_end, RUN_NOW) then return found end",
        "if not lanes.any then return found end",
    ),
    "nothing is too late": Cut("if from and lanes.now > from + grace then", "if false then"),
    "an entry that was paused is late for it": Cut(
        "if pause.late == '0' and (is_open or pause.state == 'b') then",
        "if false then",
    ),
    "no process revokes a skipped task": Cut(
        "for _, one in ipairs(owes and skips.owed or {}) do",
        "for _, one in ipairs({}) do",
    ),
    "a message that became an entry is not marked": Cut(
        "if #marks > 0 then set_marks(",
        "if false then set_marks(",
    ),
    "a message is marked before it is an entry": Cut(
        "if answer then return answer end",
        "if answer then return answer end\n"
        "set_marks(call.now, keep_ms, most_marks, {entry.mark, whole(-call.now_us)})",
    ),
    "a writer does not look at marks": Cut(
        "if us < 0 and -us >= (entry.again == '1' and 0 or received) then return 'taken' end",
        "",
    ),
    "a worker does not look at marks": Cut(
        "if first and (attempt > 0 or first < 0) then return math.max(first, 0) end",
        "",
    ),
    "a message that came for the first time is taken for new": Cut(
        "-us >= (entry.again == '1' and 0 or received)",
        "-us >= (entry.again == '1' and 0 or math.huge)",
    ),
    "a worker that lets a message through does not mark it": Cut(
        "set_marks(now, keep_ms, most, {mark, number})\n",
        "",
    ),
    "a writer does not look whether it was let through": Cut(
        "if us > (received > 0 and received or call.issued) then",
        "if false then",
    ),
    "in progress a cursor is one step behind": Cut(
        "self._at = self._begun.behind(number, Position.of(some[done - 1]))\n"
        "                    _note(self._services, tally, made)\n"
        "                    report(progress, tally)\n",
        "_note(self._services, tally, made)\n"
        "                    report(progress, tally)\n"
        "                    self._at = self._begun.behind(number, Position.of(some[done - 1]))\n",
        (Selection, "_change"),
    ),
    "an id is looked for on its own shard only": Cut(
        "[*shards[own:], *shards[:own]]",
        "[shards[own]]",
        (placement, "to_ask"),
    ),
    "an entry lies on the shard of its id": Cut(
        "placed.record.key or placed.task_id",
        "placed.task_id",
        (placement, "shard_for"),
    ),
    "after the clock was set back, a change has a time to come": Cut(
        "before > now_us + AHEAD and now_us or math.max(now_us, before + 1)",
        "math.max(now_us, before + 1)",
    ),
    "an entry that is moved behind another one takes its key": Cut(
        "if index ~= keys.behind then take_key", "if true then take_key"
    ),
    "a call that got a verdict ends before a copy of its request": Cut(
        "is_cut_off and self.has_run", "False", (Attempts, "wait_after")
    ),
    "an undo takes the key from another entry": Cut(
        "local holder = not why and key and entry.named == '1' and other_holder(key, id)",
        "local holder = false",
    ),
    "an undo takes the id of another entry": Cut(
        "  return own and 'taken' or nil\nend",
        "  return nil\nend",
    ),
    "an entry that takes the id of an uncertain one is sure": Cut(
        "local lasts = own and not own.is_caller and own.claim and own.claim.uncertain",
        "local lasts = false",
    ),
}

"""Redis stops a script half-way, at each of its writes: no task is lost, and none doubled.

Redis does not roll back a script's writes if it meets a missing right, a key of another type or a
value that is not a number. Here each write of a script, including the prelude's, is replaced by
one that a test can make fail, or make the script's last.
"""

import copy
import functools
import hashlib
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from celery_delayq.contrib.care.check import check_store, number, repair_store
from celery_delayq.core import clock
from celery_delayq.core.clock import When
from celery_delayq.core.hooks import part_of
from celery_delayq.core.servers.connection import packed
from celery_delayq.core.store import NewEntry, What, entries
from celery_delayq.core.store.changes import Move, Removal, Rewrite, changed, rewritten
from celery_delayq.core.store.entries import OldEntry
from celery_delayq.core.store.keys import target_of_key, target_of_member
from celery_delayq.core.store.record import Extras, NewRecord, Template, header_for, lane_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.core.store.scripts import load
from celery_delayq.errors import (
    AlreadyScheduled,
    AlreadyTaken,
    DelayQError,
    StoreError,
    StoreUnavailable,
)
from tests.operations.table import KEEPS, MAIL, OPERATIONS, fitting, revision_of, rule_row
from tests.store.arguments import arguments
from tests.store.held_and_behind import (
    HELD_TOO,
    behind_one_that_holds_no_longer,
    behind_one_that_is_skipped,
    behind_one_that_waits,
    go_behind,
    half_forward,
    half_forward_and_claimed,
    held,
    look_again,
    second,
    second_ended,
    two_behind,
    unnamed,
    waits_again,
)
from tests.store.support import (
    FAR_MS,
    LABELS,
    LINES,
    NOW_MS,
    ROUTE,
    ClockedScripts,
    Store,
    edited,
    new_record,
    template_of,
)
from tests.support.waiting import PATIENCE

REKEYED = Extras("other key", ("all", "more"))
LARGE = "x" * 5000  # more than counts as small
OTHER_LINES = [line.replace("remind", "other") for line in LINES]
TRACE = "test:trace"
WRITES_HISTORY = re.compile(r"(?<!function )note_(event|leaving)\(")
CALL = re.compile(r"redis\.(p?call)\('(\w+)'")
STOP = "test:stop"
FILL = """
for thousand = 0, 9 do
  local fields = {}
  for step = 1, 1000 do
    fields[2 * step - 1], fields[2 * step] = 'h' .. thousand * 1000 + step, 'h'
  end
  redis.call('HSET', KEYS[1], unpack(fields))
end
"""
STOPPED = f"""
local writes = 0
local stop = redis.call('HMGET', '{STOP}', 'nth', 'side')
local nth, side = tonumber(stop[1]), stop[2]
local function at_write(site, how, command, ...)
  writes = writes + 1
  if writes == nth and side == 'before' then
    if how == 'pcall' then return {{err = 'ERR stopped'}} end
    error('stopped')
  end
  local answer = redis[how](command, ...)
  redis.call('RPUSH', '{TRACE}', site .. ' ' .. how .. ' ' .. command)
  if writes == nth then error('stopped') end
  return answer
end
"""


@functools.cache
def writing(server) -> frozenset[str]:
    """The commands of our scripts that write, according to Redis itself."""
    names = sorted({command for one in load().values() for _, command in CALL.findall(one.text)})
    known = server.client().command()
    return frozenset(n for n in names if "write" in map(_text, known[n.lower()]["flags"]))


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def sites_of(text: str, writes: frozenset[str]) -> tuple[str, list[str]]:
    """The text with each write made stoppable, and the commands of these writes."""
    sites = []

    def numbered(match):
        if match[2] not in writes:
            return match[0]
        sites.append(match[2])
        return f"at_write({len(sites) - 1}, '{match[1]}', '{match[2]}'"

    return CALL.sub(numbered, text), sites


@functools.cache
def stoppable(script, writes):
    """It stops before or after its `nth` write; `nth` and `side` are read from a key."""
    text = STOPPED + sites_of(script.text, writes)[0]
    return replace(script, text=text, sha=hashlib.sha1(text.encode()).hexdigest())


class StoppableScripts(ClockedScripts):
    """The scripts; a test can stop one of them."""

    writes = frozenset()

    def __init__(self, *given):
        super().__init__(*given)
        self.stopped = set()  # shared by all engines

    def let_stop(self, name):
        self.stopped.clear()
        self.stopped.add(name)
        self._calls.clear()

    def _prepare(self, name):
        call = super()._prepare(name)
        if name not in self.stopped:
            return call
        script = stoppable(call.script, self.writes)
        call = replace(call, script=script, by_sha=packed(["EVALSHA", script.sha]))
        self._calls[name] = call
        return call


class StoppableStore(Store):
    homeless = frozenset()  # ids that had no place before the step
    held = ()  # the leased entry whose key is held

    def __init__(self, server):
        self._server_writes = writing(server)
        super().__init__(server)

    @functools.cached_property
    def _scripts(self):
        made = StoppableScripts(self._client(), self.keys, self.settings)
        made.writes = self._server_writes
        return made

    def new_scripts(self, **settings):
        """Over one connection for all engines, so that Redis gets each script's text once."""
        made = copy.copy(self._scripts)
        made.settings = replace(self.settings, **settings)
        return made


@dataclass
class Case:
    """One way to run a script: the store's contents before, and the step, by its script."""

    script: str
    name: str
    take: object
    before: object = lambda _: None
    ends: str = ""  # ids that go, blanks between


def fill_tombstones(ready):
    store = ready.store
    store.raw.eval(FILL, 1, store.keys["tombstones"])


def fill_and_turn(ready):
    fill_tombstones(ready)
    generations_over(ready)


def untouched(ready):
    """Only waiting entries are there; the next heartbeat finds nothing to tidy up."""
    for name in ("parked", "leased", "refused", "dead", "claims", "errors", "paused"):
        ready.store.raw.delete(ready.store.keys[name])
    ids = [one for one in ready.ids if not ready.store.places(one)]
    ready.store.raw.hdel(ready.store.keys["records"], *ids)
    ready.steps.go_on_as(ready.steps.name)


def found_tidy(ready):
    untouched(ready)
    ready.steps.hand_over()


def tidy_later(ready):
    ready.store.schedule("later", FAR_MS, share=True)
    untouched(ready)
    ready.steps.hand_over()


def backlog(ready):
    """More than a batch is overdue, and some entries fell due a moment ago."""
    store, now = ready.store, NOW_MS + 2000
    for step in range(8):
        store.schedule(f"old{step}", NOW_MS - 1, share=True)
        store.schedule(f"fresh{step}", now - 5, share=True)
    store.let_scanners(batch_size=8)


def spoil(*ids):
    def change(ready):
        store = ready.store
        for task_id in ids:
            record = store.record(task_id)
            store.raw.hset(store.keys["records"], task_id, b"0" + record[1:])

    return change


def alone(*kept):
    """Only these entries are there; their template goes with the last of them."""

    def change(ready):
        for task_id in ready.ids:
            if task_id not in kept:
                ready.store.entries.change(task_id, Removal())

    return change


def relayed_backlog(ready):
    now = NOW_MS + 2000
    for step in range(8):
        ready.store.schedule_relayed(f"old{step}", NOW_MS - 1, share=True)
        ready.store.schedule_relayed(f"fresh{step}", now - 5, share=True)


def no_heads(ready):
    """The scanner's timer is set for the entry that it delivers now."""
    alone("list")(ready)
    ready.store.raw.hset(ready.store.keys["meta"], "timer", f"{NOW_MS}:scanner")


def heart(ready):
    ready.steps.go_on_as(ready.steps.name)
    # A scanner without a heartbeat for more than an hour.
    ready.store.raw.zadd(ready.store.keys["scanners"], {"silent": NOW_MS - 4_000_000})
    ready.store.raw.hset(ready.store.keys["heartbeats"], "silent", NOW_MS - 4_000_000)


def recordless(ready):
    """A due entry has lost its record, and is dead."""
    store = ready.store
    store.schedule("ghost")
    store.raw.hdel(store.keys["records"], "ghost")
    ready.steps.hand_over()
    store.raw.delete("celery")


def foreign_list(ready):
    ready.store.schedule("foreign", to="somebodys", share=True, extras=Extras("key of foreign"))
    ready.store.raw.set("somebodys", "text")


def own_timer(ready):
    ready.store.schedule("later", FAR_MS)
    ready.steps.hand_over(asleep=5.0)


def generations_over(ready):
    """The records of calls are so old that the next call begins another generation."""
    ready.store.entries.change("nobody", Removal())
    ready.store.set_ms(NOW_MS + 60_000)


def nothing_owed(ready):
    """A script was stopped before it noted that REVOKED is owed, or after that was stored."""
    ready.store.raw.delete(ready.store.keys["outbox_messages"])


def old_generation(ready):
    ready.store.arrive("one", 1)
    ready.store.raw.hset(ready.store.keys["arrived"], "since", NOW_MS - 4_000_000)


def was_taken(ready):
    """The message of "new" became an entry, which was cancelled."""
    ready.store.schedule("new", FAR_MS, delivery=ready.store.delivery("new"))
    ready.store.entries.change("new", Removal())


def clock_back(ready):
    ready.store.set_ms(NOW_MS - 3_600_000)


def _schedule_many(ready):
    record = new_record("m0", header_for("L", "celery"), "")
    shared = new_record("m", header_for("L", "celery"), "", share=True)
    new = [NewEntry(f"m{n}", When("at", NOW_MS - 9), (record, shared, shared)[n]) for n in range(3)]
    ready.store.entries.schedule(new)


def _schedule_one(ready):
    ready.store.schedule("new", NOW_MS - 9)


def _take(ready):
    """A message is delivered; its worker repeats the call until it has become an entry."""
    with suppress(AlreadyTaken):
        ready.store.schedule("new", NOW_MS - 9, delivery=ready.store.delivery("new"))


def _let_through(ready):
    """A redelivered message has become no entry, so its task runs."""
    assert not ready.store.copies().is_taken(("new",), clock.monotonic() + PATIENCE)


def _schedule_first(ready):
    ready.store.shard.templates.clear()
    ready.store.schedule("new", share=True)


def _schedule_refused(ready):
    """It writes only the answer."""
    record = new_record("waiting", header_for("L", "celery"), "")
    ready.store.entries.schedule([NewEntry("waiting", When("at", NOW_MS), record)])


def _schedule_late(ready):
    """The second of two is due too late, so one counted use of the template does not happen."""
    record = new_record("late0", header_for("L", "celery"), "", share=True)
    times = [("late0", NOW_MS), ("late1", 2**52)]
    new = [NewEntry(task_id, When("at", ms), record) for task_id, ms in times]
    ready.store.entries.schedule(new)


def _replace(ready):
    """The new entry replaces the holder of its key; another entry has its id."""
    extras = Extras("key of list", ("all",))
    ready.store.schedule("waiting", share=True, extras=extras, conflict="replace", revokes="all")


def _keep(ready):
    """A new entry, sent with its template, gives way; the existing holder of the key stays."""
    record = new_record("new", header_for("L", "celery"), "", share=True)
    record = record.with_extras(Extras("key of list"))
    new = NewEntry("new", When("at", NOW_MS), record, "keep")
    assert ready.store.entries.schedule([new], Addition(revokes="all"))[0].task_id == "list"


def _replace_leased(ready):
    extras = Extras("key of claimed")
    ready.store.schedule("claimed", share=True, extras=extras, conflict="replace")


def _free(ready):
    ready.store.entries.free("held key")


def _supersede(task_id):
    return lambda ready: ready.store.schedule(task_id, share=True, supersede=True)


def _nack(verdict):
    return lambda ready: ready.steps.nack(verdict, ready.claimed, wait=1, reason="NO_ROUTE")


def _cancel(task_id):
    return lambda ready: ready.store.entries.change(task_id, Removal())


def _cancel_undoably(ready):
    ready.store.entries.change("list", Removal(undo=KEEPS))


def _undo(*ids):
    return lambda ready: ready.store.shard.calls.call("undo", **arguments("undo", ids=ids))


def cancelled(task_id, before=lambda _: None):
    """An entry was cancelled, and an undo can bring it back."""

    def change(ready):
        before(ready)
        ready.store.entries.change(task_id, Removal("caller", undo=KEEPS))

    return change


def _rule(what, called="rule", **fields):
    def take(ready):
        row = rule_row("rule", **fields)
        given = str(revision_of(ready.store)) if what == "cleared" else row
        asked = arguments("rule", called=called, what=what, given=given)
        ready.store.shard.calls.call("rule", **asked)

    return take


def _change_rule(what, given):
    """Change the rule; its revision goes in place of ``{}``."""

    def take(ready):
        said = given.replace("{}", str(revision_of(ready.store)))
        asked = arguments("rule", called="rule", what=what, given=said)
        ready.store.shard.calls.call("rule", **asked)

    return take


def _fire(task_id="fired", ahead=0, trouble="", **options):
    def take(ready):
        record = new_record(task_id, header_for("L", "celery"), "", share=True)
        record = record.with_extras(Extras(**options))
        run = (FAR_MS, task_id, NOW_MS, record.header, record.labels + record.body)
        asked = {"called": "rule", "revision": revision_of(ready.store) + ahead, "look": 5}
        runs = () if trouble else (*run, record.template)
        ready.store.shard.calls.call("fire", **asked, trouble=trouble, runs=runs)

    return take


def _name_rules(ready, digest="d", process=""):
    given = {"digest": digest, "names": "n", "unknown": "u", "full": 1}
    ready.store.scripts.call("rules_named", process=process or f"of {digest}", **given)


def _claim_rules(ready, over=""):
    ready.store.scripts.call("rules_ahead", **arguments("rules_ahead", over=over))


def _give_up_rules(ready):
    claim = ready.store.raw.zscore(ready.store.keys["rules_next"], "rule")
    _claim_rules(ready, f"{claim:.3f}")


def claimed_with_clock_ahead(ready):
    _claim_rules(ready)
    clock_back(ready)


def of_later_format(ready):
    rules = ready.store.keys["rules"]
    row = json.loads(ready.store.raw.hget(rules, "rule"))
    ready.store.raw.hset(rules, "rule", json.dumps(row | {"plan": "[9,"}))


def named_long_ago(ready):
    _name_rules(ready, "other")
    ready.store.set_ms(NOW_MS + 700_000)


def undo_over(ready):
    """The generation of lines is over."""
    ready.store.set_ms(NOW_MS + 120_000)


def _reschedule(task_id, ms=NOW_MS - 1):
    return lambda ready: ready.store.reschedule(task_id, When("at", ms))


def _edit(task_id, payload="new", **options):
    def take(ready):
        ready.store.edit(task_id, payload, **options)

    return take


def _release(*ids, payload="new"):
    """Release the entries that are there, with this payload."""

    def take(ready):
        store, parts = ready.store, []
        for task_id in ids:
            found = store.entries.find(task_id)
            if found is None or found.record.is_released:
                continue
            where = "celery" if found.record.is_for_list else ROUTE
            kind = "L" if found.record.is_for_list else "R"
            new = new_record(task_id, header_for(kind, where), payload)
            released = found.record.released(new)
            parts.append((task_id, Rewrite(found.record, released, releases=True)))
        if parts:
            rewritten(store.shard, parts)

    return take


def _edit_several(ready):
    """The first and the last change their kind; one more gets other tags."""
    parts = []
    for task_id, options in (
        ("list", {"kind": "R"}),
        ("parked", {"extras": Extras("key of parked", ("new",))}),
        ("waiting", {"kind": "L"}),
    ):
        entry = ready.store.entries.find(task_id)
        parts.append((task_id, Rewrite(entry.record, edited(entry, "new", **options))))
    rewritten(ready.store.shard, parts)


def extras(ready):
    """An entry with a key and tags beside the others."""
    record = new_record("keyed", header_for("L", "celery"), "", share=True)
    ready.store.put("keyed", record.with_extras(Extras("key", ("one", "two"))), NOW_MS - 1)


MANY = ["list", target_of_key("key"), "nobody", "keyed", "waiting", "dead"]


def _remove_unreadable(ready):
    # Because it was scheduled second.
    member = (4).to_bytes(6, "big") + b"dead"
    list(changed(ready.store.shard, Removal(only_dead=True), [target_of_member(member)]))


def to_load(extras):
    record = new_record("loaded", header_for("L", "celery"), "", share=True)
    return "loaded", NOW_MS, NOW_MS * 1000, record.with_extras(extras)


def _load_refused(ready):
    """An entry that its list refused, with every field that an entry can have."""
    made = to_load(Extras("key", ("one", "two")))
    old = OldEntry(*made, "refused", NOW_MS + 9, 1, 1, True, "NO_ROUTE")
    entries.restore(ready.store.entries, [old])


def uncertain(ready):
    ready.store.set_ms(NOW_MS)
    ready.steps.nack("unknown", ready.claimed)
    ready.store.set_ms(NOW_MS + 2000)


def _hand_over(ready):
    return ready.steps.hand_over()


def _claim(ready):
    return ready.steps.claim(8)


def _ack_held(ready):
    return ready.steps.ack(ready.store.held)


def paused(ready):
    ready.store.entries.pause(lane_for(), "")


def resumed(ready):
    """Direct and relayed entries come back, and one of them is excused."""
    store = ready.store
    paused(ready)
    store.schedule("graced", extras=Extras(grace_ms=FAR_MS))
    ready.steps.hand_over()
    ready.steps.claim(5)
    store.entries.resume(lane_for())


def resumed_at_a_rate(ready):
    store = ready.store
    for step in range(3):
        store.schedule(f"slow{step}", queue="mail")
    ready.steps.hand_over()
    paused(ready)
    store.schedule("other")
    ready.steps.hand_over()
    store.entries.resume(MAIL, 1)
    store.entries.resume(lane_for())


def turns_given(ready):
    """Entries come back at a rate, and one of them may go."""
    alone()(ready)
    store = ready.store
    for step in range(3):
        store.schedule_relayed(f"slow{step}")
    paused(ready)
    ready.steps.claim(9)
    store.entries.resume(lane_for(), 1)
    ready.steps.hand_over()


def unmet(ready):
    """It was paused while no scanner looked, and is excused for that time."""
    paused(ready)
    ready.store.schedule_relayed("graced", extras=Extras(grace_ms=FAR_MS))
    ready.store.entries.resume(lane_for())


def all_back(ready):
    """One resumed lane has no entries left; another one still has some."""
    alone("parked")(ready)
    store = ready.store
    store.entries.resume(MAIL)
    paused(ready)
    store.set_ms(NOW_MS + 4000)
    store.schedule_relayed("later", NOW_MS + 3000)
    store.entries.resume(lane_for())


def last_back(ready):
    alone("list")(ready)
    paused(ready)
    ready.store.entries.resume(lane_for())


def nothing_parked(ready):
    resumed(ready)
    ready.steps.hand_over()
    paused(ready)


def up_again(ready):
    foreign_list(ready)
    ready.steps.hand_over()
    ready.store.set_ms(NOW_MS + 6000)


def parked(ready):
    paused(ready)
    ready.steps.hand_over()


def put_off(ready):
    """Its list refuses a due entry; "list" waits for its next try."""
    ready.store.raw.set("celery", "text")
    ready.steps.hand_over()
    ready.store.raw.delete("celery")


def too_late(ready):
    """Skipped, and REVOKED is owed for it."""
    ready.steps._owes = 1
    ready.store.schedule("late", extras=Extras("key of late", ("all",), 0), share=True)


HOLDING = ("held", "free for another")


def holding(ready):
    """A due entry's key is held once it was delivered; and another key is held no longer."""
    ready.store.schedule("ended", extras=Extras("ended key", hold="f1"))
    ready.steps.hand_over()
    ready.store.raw.delete("celery")
    ready.store.schedule("held", extras=HELD_TOO, share=True)
    ready.store.set_ms(NOW_MS + 2002)


def held_under_a_lease(ready):
    options = {"due_ms": NOW_MS - 99, "extras": HELD_TOO}
    ready.store.held = ready.store.at("leased", "held", by=ready.steps, **options)


def held_for_a_while(ready):
    """An entry is too late, but the key of its task is held."""
    extras = Extras("key of late", ("all",), 0, hold="w100000")
    ready.store.schedule_relayed("late", NOW_MS - 99, extras=extras, share=True)


def _say(ms):
    """A worker's word about the run that holds the key."""

    def take(ready):
        raw, keys = ready.store.raw, ready.store.keys
        _, _, delivery = (raw.hget(keys["holders"], "held key") or b"").partition(b"\xff")
        for entry in ready.store.held:
            delivery = entry.hand_over
        ready.store.scripts.call("hold", words=["held", "held key", delivery, ms, 0])

    return take


def with_history(ready):
    # A process that has to ask for the time joins again, as the clock of these tests stands still.
    for one in (ready.store.shard, ready.steps._shard):
        one.scripts.settings = replace(one.scripts.settings, history=100)
    ready.store.raw.hset(ready.store.keys["meta"], "history", "100 1")


def _note_reconciled(tag):
    return lambda ready: ready.store.entries.note_reconciled(tag, "found", 1)


def in_a_bulk(take):
    def taken(ready):
        with part_of("first"):
            take(ready)

    return taken


@in_a_bulk
def move_undoably(ready):
    ready.store.reschedule("list", When("at", FAR_MS), undo=KEEPS)


@in_a_bulk
def move_back(ready):
    ready.store.reschedule("list", When("at", 0), mode="back")


def bulks(ready):
    """There are lines of two bulks, for each kind of change; those of the first are older."""
    with_history(ready)
    for bulk in ("first", "second"):
        lines = [f"{kind}{NOW_MS:013}{'000':>28}\0\x002\0{bulk}" for kind in "cemos"]
        ready.store.raw.lpush(ready.store.keys["history_changes"], *lines)


def too_late_to_relay(ready):
    fill_tombstones(ready)
    ready.steps._owes = 1
    record = other_template("R", ROUTE).with_extras(Extras("key of late", ("all",), 0))
    ready.store.put("late", record, NOW_MS)
    with_history(ready)


def paced(ready):
    ready.store.let_scanners(catch_up=10)


def _repair(ready):
    found = list(check_store(ready.store.entries))
    for _ in repair_store(ready.store.entries, found):
        pass


def lost(*names):
    """Redis evicted these keys, or another program deleted them."""

    def change(ready):
        with_history(ready)
        ready.store.raw.delete(*(ready.store.keys[name] for name in names))

    return change


def orphans(ready):
    """Leftovers of entries that are gone, in each key."""
    raw, keys = ready.store.raw, ready.store.keys
    for name in ("due", "relay", "dead"):
        raw.zadd(keys[name], {b"......orphan": 1})
    raw.zadd(keys["tags"], {b"t\0......orphan": 0})
    raw.zadd(keys["outbox"], {"noted": 1})
    raw.hset(keys["errors"], mapping={"orphan": "?", "other": "?"})
    raw.hset(keys["claims"], "orphan", "1:0:0:1:")
    raw.hset(keys["holders"], "orphan", "orphan")
    raw.hset(keys["outbox_messages"], "orphan", "?")
    raw.zrem(keys["outbox"], "revoked")


def two_places(ready):
    raw, keys = ready.store.raw, ready.store.keys
    (member,) = raw.zrange(keys["due"], 0, -1)
    for name in ("relay", "leased", "refused", "dead"):
        raw.zadd(keys[name], {member: 1})
    (member,) = raw.zrange(keys["relay"], 1, 1)
    raw.zadd(keys["leased"], {member: 1})
    raw.zadd(keys["due"], {b"\xff" * 6 + b"waiting": 1})


def wrong_number(ready):
    raw, keys = ready.store.raw, ready.store.keys
    raw.delete(keys["due"])
    raw.zadd(keys["due"], {b"\xff" * 6 + b"list": 1})


def parked_for_ever(ready):
    ready.store.schedule("graced", extras=Extras(grace_ms=FAR_MS))
    parked(ready)
    ready.store.raw.delete(ready.store.keys["paused"])


def resumed_for_ever(ready):
    """A lane comes back, but is missing from the list of such lanes."""
    parked(ready)
    ready.store.entries.resume(lane_for())
    ready.store.raw.hdel(ready.store.keys["paused"], "<")


def other_template(kind, where):
    return Template.of(OTHER_LINES).new_record(
        header_for(kind, where), LABELS, ["", "null", "null", '"()"', '"{}"', '""']
    )


def miscounted(ready):
    """One count is too low, one too high, one is of an unused template, and one is not a number."""
    raw, keys = ready.store.raw, ready.store.keys
    for task_id in ("other0", "other1"):
        ready.store.put(task_id, other_template("L", "celery"), NOW_MS)
    one, other = raw.hkeys(keys["template_uses"])
    raw.hset(keys["template_uses"], mapping={one: 1, other: 9, "x": 3, "y": "?"})
    raw.hset(keys["templates"], mapping={"x": "text", "z": "text"})


def no_number(ready):
    raw, keys = ready.store.raw, ready.store.keys
    (name,) = raw.hkeys(keys["template_uses"])
    raw.hset(keys["template_uses"], name, "?")


# Writes that no case reaches: `depart` makes them only for other scripts. (`reclaim` ends
# only claims with an attempt, so it never removes one.) So does `bring_back`: a run just waits.
NEVER = {
    "fire": ["HDEL", "HSET", "HSET", "ZADD", "HSET"],
    "hand_over": ["ZREM", "HDEL", "HSET", "HSET"],
    "claim": ["ZREM"],
    "cancel": ["ZADD", "HSET"],
    "schedule": ["ZADD", "HSET", "HDEL"],
    "reclaim": ["HDEL"],
}


def robbed(task_id, lost=""):
    """Another one has its key; before that, an index is lost, if so named."""

    def change(ready):
        if lost:
            ready.store.raw.delete(ready.store.keys[lost])
        extras = Extras(f"key of {task_id}")
        ready.store.schedule("robber", FAR_MS, extras=extras, share=True)

    return change


CASES = [
    *(Case(one.script, "plain", one.take, ends=one.ends) for one in OPERATIONS if one.changes),
    Case("schedule", "one by one", _schedule_one),
    Case("schedule", "many", _schedule_many),
    Case("schedule", "refused", _schedule_refused),
    Case("schedule", "delivered", _take),
    Case("schedule", "delivered, turning", _take, old_generation),
    Case("schedule", "delivered again", _take, was_taken),
    Case("cancel", "without a record", _cancel("ghost"), recordless),
    Case("schedule", "late ones", _schedule_late),
    Case(
        "schedule",
        "keyed",
        lambda ready: ready.store.schedule(
            "new", NOW_MS - 9, extras=Extras("new key", ("all", "new"))
        ),
    ),
    Case("schedule", "replacing", _replace, ends="list"),
    Case("schedule", "giving way", _keep),
    Case("schedule", "over a lapsed lease", _replace_leased, ends="claimed"),
    Case("schedule", "over an uncertain one", _replace_leased, uncertain, ends="claimed"),
    Case(
        "schedule",
        "last of a template",
        lambda ready: ready.store.schedule("claimed", supersede=True),
        alone("claimed"),
        "claimed",
    ),
    Case("schedule", "over a lease", _supersede("claimed"), ends="claimed"),
    Case("schedule", "over an attempt", _supersede("claimed"), uncertain, ends="claimed"),
    Case("cancel", "full", _cancel("list"), fill_and_turn, ends="list"),
    Case("cancel", "last", _cancel("list"), alone("list"), ends="list"),
    Case("hand_over", "heartbeat", _hand_over, heart),
    Case("hand_over", "tidy", _hand_over, untouched),
    Case("hand_over", HOLDING[0], _hand_over, holding),
    Case("ack", "held", _ack_held, held_under_a_lease, "held"),
    Case("claim", "held", _claim, held_for_a_while, "late"),
    Case("hold", "free under a lease", _say(0), held_under_a_lease),
    Case("hold", "on", _say(5000), held),
    Case("hold", "free for another", _say(0), second),
    Case("hand_over", HOLDING[1], _hand_over, second_ended),
    Case("hand_over", "look again", _hand_over, look_again),
    Case("hand_over", "half forward", _hand_over, half_forward, "held"),
    Case("hand_over", "waits again", _hand_over, waits_again),
    Case("claim", "half forward", _claim, half_forward, "held"),
    Case("ack", "half forward", _ack_held, half_forward_and_claimed, "held"),
    Case("schedule", "behind", go_behind("second"), held),
    Case("schedule", "behind again", go_behind("third"), second, "second"),
    Case("schedule", "behind no more", go_behind("second", "new key"), second, "second"),
    Case("schedule", "behind no more", go_behind("held", "new key"), behind_one_that_waits, "held"),
    Case("claim", "behind another", _claim, behind_one_that_is_skipped, "held"),
    Case("ack", "behind another", _ack_held, behind_one_that_holds_no_longer, "held"),
    Case("cancel", "behind another", _cancel("second"), second, "second"),
    Case("cancel", "with one behind", _cancel("held"), behind_one_that_waits, "held"),
    Case("reschedule", "behind another", _reschedule("second"), second),
    Case("rewrite", "behind another", _edit("second", LARGE), second),
    Case("rewrite", "behind no more", _edit("second", LARGE, extras=REKEYED), second),
    Case("rewrite", "kind when behind", _edit("second", kind="R"), second),
    Case("rewrite", "kind when behind no more", _edit("second", kind="R", extras=REKEYED), second),
    Case("rewrite", "with one behind", _edit("held", extras=REKEYED), behind_one_that_waits),
    Case("rewrite", "released, behind another", _release("second"), second),
    Case(
        "load",
        "behind another",
        lambda ready: entries.restore(
            ready.store.entries, [OldEntry(*to_load(HELD_TOO), "behind", NOW_MS)]
        ),
        held,
    ),
    Case("repair", "behind another", _repair, unnamed),
    Case("repair", "two behind", _repair, two_behind),
    Case("hand_over", "promise", lambda ready: ready.steps.hand_over(asleep=5)),
    Case(
        "leave",
        "up next",
        lambda ready: ready.steps.leave(),
        lambda ready: ready.steps.hand_over(asleep=5, relay_in=5),
    ),
    Case("schedule", "first of a template", _schedule_first, alone()),
    Case("hand_over", "last", _hand_over, no_heads),
    Case("claim", "backlog", _claim, relayed_backlog),
    Case("ack", "last", lambda ready: ready.steps.ack(ready.claimed), alone("claimed"), "claimed"),
    Case("cancel", "dead", _cancel("dead"), ends="dead"),
    Case("cancel", "claimed", _cancel("claimed"), ends="claimed"),
    Case(
        "cancel",
        "many",
        lambda ready: list(changed(ready.store.shard, Removal("caller"), MANY)),
        extras,
        ends="list waiting keyed dead",
    ),
    Case("cancel", "unreadable", _remove_unreadable, spoil("dead"), ends="dead"),
    Case(
        "reschedule",
        "many",
        lambda ready: list(changed(ready.store.shard, Move(When("at", NOW_MS - 1)), MANY)),
        extras,
    ),
    Case("reschedule", "undoably", move_undoably),
    Case("reschedule", "undoably, turning", move_undoably, undo_over),
    Case("reschedule", "back", move_back, move_undoably),
    Case(
        "reschedule",
        "retry",
        lambda ready: ready.store.reschedule("dead", When("at", 0), mode="retry"),
    ),
    Case("reschedule", "earlier", _reschedule("list")),
    Case("reschedule", "dead", _reschedule("dead")),
    Case("reschedule", "claimed", _reschedule("claimed")),
    Case("reschedule", "attempted", _reschedule("claimed"), uncertain),
    Case("rewrite", "grows", _edit("list", LARGE)),
    Case("rewrite", "grows when dead", _edit("dead", LARGE)),
    Case("rewrite", "grows when refused", _edit("list", LARGE), put_off),
    Case("rewrite", "grows when paused", _edit("list", LARGE), parked),
    Case("rewrite", "claimed", _edit("claimed")),
    Case("rewrite", "grows when claimed", _edit("claimed", LARGE)),
    Case("rewrite", "attempted", _edit("claimed", LARGE), uncertain),
    Case("rewrite", "first of a template", _edit("list", lines=OTHER_LINES)),
    Case("rewrite", "last of a template", _edit("list", share=False), alone("list")),
    Case(
        "rewrite",
        "nothing",
        lambda ready: ready.store.entries.change("nobody", Rewrite(None, NewRecord(b"", b"", b""))),
    ),
    Case("rewrite", "several", _edit_several),
    Case("rewrite", "key and tags", _edit("list", extras=REKEYED)),
    Case("rewrite", "grows with tags", _edit("list", LARGE, extras=REKEYED)),
    Case("rewrite", "no key", _edit("list", extras=Extras())),
    Case("rewrite", "key when claimed", _edit("claimed", extras=REKEYED)),
    Case("rewrite", "queue", _edit("list", queue="post")),
    Case("rewrite", "queue when claimed", _edit("claimed", queue="post")),
    Case("rewrite", "queue when refused", _edit("list", queue="post"), put_off),
    Case("rewrite", "queue when paused", _edit("parked", queue="post")),
    Case("rewrite", "kind", _edit("list", kind="R")),
    Case("rewrite", "kind, when tidy", _edit("later", kind="R"), tidy_later),
    Case("rewrite", "kind back, grows", _edit("waiting", LARGE, kind="L")),
    Case("rewrite", "kind when claimed", _edit("claimed", kind="L")),
    Case("rewrite", "kind when refused", _edit("list", LARGE, kind="R"), put_off),
    Case("rewrite", "kind when paused", _edit("parked", LARGE, kind="R")),
    Case("rewrite", "released, several", _release("list", "waiting", "dead", "parked")),
    Case("rewrite", "released, grows", _release("list", "waiting", payload=LARGE)),
    Case("rewrite", "released, grows when paused", _release("list", payload=LARGE), parked),
    Case("rewrite", "released, grows when refused", _release("list", payload=LARGE), put_off),
    Case("rewrite", "released, claimed", _release("claimed")),
    Case("rewrite", "released, grows when claimed", _release("claimed", payload=LARGE)),
    Case("rewrite", "released, attempted", _release("claimed"), uncertain),
    Case("rewrite", "released, last of a template", _release("list"), alone("list")),
    Case("load", "refused", _load_refused, alone()),
    Case("load", "again", _load_refused, _load_refused),
    Case("hand_over", "backlog", _hand_over, backlog),
    Case("hand_over", "full", _hand_over, fill_tombstones),
    Case("hand_over", "damaged", _hand_over, spoil("list")),
    Case("hand_over", "foreign list", _hand_over, foreign_list),
    Case("hand_over", "timer", _hand_over, own_timer),
    Case("claim", "damaged", _claim, spoil("waiting")),
    Case("claim", "attempted", _claim, uncertain),
    Case("ack", "full", lambda ready: ready.steps.ack(ready.claimed), fill_tombstones, "claimed"),
    *(Case("nack", verdict, _nack(verdict)) for verdict in ("unsent", "unknown", "refused")),
    *(
        Case(script, "turning", take, generations_over, ends=ends)
        for script, take, ends in (
            ("schedule", _schedule_one, ""),
            ("cancel", _cancel("list"), "list"),
            ("load", _load_refused, ""),
            ("reschedule", _reschedule("list"), ""),
            ("rewrite", _edit("list"), ""),
            ("rewrite", _release("list"), ""),
            ("pause", lambda ready: ready.store.entries.pause(MAIL, "mail"), ""),
            ("resume", lambda ready: ready.store.entries.resume(MAIL), ""),
            ("free", lambda ready: ready.store.entries.free("its key"), ""),
        )
    ),
    *(
        Case(one.script, "history off", one.take, with_history)
        for one in OPERATIONS
        if one.script == "join"
    ),
    *(
        Case(one.script, "history", one.take, with_history, one.ends)
        for one in OPERATIONS
        if WRITES_HISTORY.search(load()[one.script].text)
    ),
    Case(
        "note",
        "history",
        lambda ready: ready.store.entries.note(What.PAUSED, "qmail"),
        with_history,
    ),
    Case("reconciled", "another tag", _note_reconciled("new"), _note_reconciled("old")),
    *(
        Case(one.script, "history of a bulk", in_a_bulk(one.take), bulks, one.ends)
        for one in OPERATIONS
        if WRITES_HISTORY.search(load()[one.script].text)
        and "history_parts" in load()[one.script].keys
    ),
    Case("reschedule", "one, history", _reschedule("list"), with_history),
    Case(
        "cancel",
        "owing",
        lambda ready: ready.store.entries.change("list", Removal("caller")),
        ends="list",
    ),
    Case("cancel", "undoably", _cancel_undoably, ends="list"),
    Case("cancel", "undoably, turning", _cancel_undoably, undo_over, ends="list"),
    Case("cancel", "undoably, of a bulk", in_a_bulk(_cancel_undoably), ends="list"),
    Case("rule", "removed", _rule("cleared"), _rule("remove")),
    Case("rule", "paused", _rule("cleared"), _rule("pause")),
    Case("rule", "nothing", _rule("cleared", called="nothing")),
    Case("rule", "of a dump", _rule("load", called="new", revision="5", last="7", since="3")),
    Case("rule", "to another shard", _rule("move")),
    Case("rule", "from another shard", _rule("place", called="new")),
    Case("rule", "edited", _change_rule("edit", '{"timing":["every 9 s","UTC",""],"offset":"0"}')),
    Case("rule", "skipped", _change_rule("skip", "{} 1000000000000:id")),
    Case("rule", "again", _change_rule("again", "{}")),
    Case("rule", "in trouble", _rule("pause"), _fire(trouble="bad")),
    Case("fire", "in trouble", _fire(trouble="bad")),
    Case("fire", "no longer in trouble", _fire(), _fire(trouble="bad")),
    Case("rules_ahead", "given up", _give_up_rules, _claim_rules),
    Case("rules_ahead", "clock back", _claim_rules, claimed_with_clock_ahead),
    Case("rules_ahead", "a later format", _claim_rules, of_later_format),
    Case("rules_named", "again", _name_rules, _name_rules),
    Case("rules_named", "ended", lambda ready: _name_rules(ready, "", "of d"), _name_rules),
    Case("rules_named", "after a while", _name_rules, named_long_ago),
    Case("rule", "turning", _rule("pause"), generations_over),
    Case("fire", "with a key", _fire(key="key", tags=("one",))),
    Case("fire", "of another revision", _fire(ahead=9)),
    Case("fire", "owing", _fire("list"), cancelled("list", alone("list"))),
    Case("fire", "over leftovers", _fire("dead"), cancelled("dead")),
    Case("fire", "turning", _fire(), generations_over),
    Case("undo", "nothing", _undo("nobody")),
    Case("undo", "owing", _undo("undoable", "list"), cancelled("list")),
    Case("undo", "last of a template", _undo("list"), cancelled("list", alone("list"))),
    Case("undo", "refused", _undo("list"), cancelled("list", put_off)),
    Case("undo", "dead", _undo("dead"), cancelled("dead")),
    Case("undo", "attempted", _undo("claimed"), cancelled("claimed", uncertain)),
    Case("undo", "behind another", _undo("second"), cancelled("second", second)),
    Case("undo", "turning", _undo("undoable"), generations_over),
    Case("cancel", "nothing", _cancel("nobody")),
    Case("schedule", "revoked", lambda ready: ready.store.schedule("revoked", NOW_MS - 9)),
    Case("owed", "nothing", lambda ready: ready.steps.owed(), nothing_owed),
    Case("reschedule", "nothing", _reschedule("nobody")),
    Case("arrive", "generation", lambda ready: ready.store.arrive("new", 1), old_generation),
    Case("arrive", "let through", _let_through),
    Case("hand_over", "paused", _hand_over, paused),
    Case("hand_over", "all back", _hand_over, all_back),
    Case("hand_over", "last back", _hand_over, last_back),
    Case("claim", "turns given", _claim, turns_given),
    Case("claim", "unmet", _claim, unmet),
    Case("resume", "nothing to come back", lambda ready: ready.store.entries.resume(MAIL), alone()),
    Case("repair", "resumed for ever", _repair, resumed_for_ever),
    Case("hand_over", "resumed", _hand_over, resumed),
    Case("hand_over", "resumed at a rate", _hand_over, resumed_at_a_rate),
    Case("hand_over", "up again", _hand_over, up_again),
    Case("hand_over", "too late", _hand_over, too_late, "late"),
    Case("hand_over", "paced", _hand_over, paced),
    Case("claim", "paused", _claim, paused),
    Case("claim", "too late", _claim, too_late_to_relay, "late"),
    Case("claim", "paced", _claim, paced),
    Case("pause", "tidy", lambda ready: ready.store.entries.pause(MAIL, "mail"), found_tidy),
    Case("pause", "again", lambda ready: ready.store.entries.pause(MAIL, "mail"), resumed),
    Case("resume", "all", lambda ready: ready.store.entries.resume(lane_for()), nothing_parked),
    Case("free", "one behind", _free, second),
    Case("free", "one behind that has ended", _free, second_ended),
    Case("free", "waiting", _free, waits_again),
    Case("repair", "lost places", _repair, lost("due", "relay", "leased", "dead", "parked")),
    Case("repair", "lost keys and tags", _repair, lost("holders", "tags")),
    Case("repair", "lost claims", _repair, lost("claims")),
    Case("repair", "orphans", _repair, orphans),
    Case("repair", "two places", _repair, two_places),
    Case("repair", "wrong number", _repair, wrong_number),
    Case("repair", "robbed", _repair, robbed("list", "due")),
    Case("reschedule", "robbed", _reschedule("claimed"), robbed("claimed")),
    Case("rewrite", "robbed", _edit("claimed"), robbed("claimed")),
    Case("rewrite", "released, robbed", _release("claimed"), robbed("claimed")),
    Case("nack", "robbed", _nack("refused"), robbed("claimed")),
    Case("reclaim", "robbed", lambda ready: ready.steps.reclaim(), robbed("claimed")),
    Case(
        "repair",
        "spoilt number",
        _repair,
        lambda ready: ready.store.raw.hset(ready.store.keys["meta"], "seq", "zzz"),
    ),
    Case("repair", "parked for ever", _repair, parked_for_ever),
    Case("recount", "miscounted", _repair, miscounted),
    Case("recount", "no number", _repair, no_number),
]


@pytest.fixture
def store(redis_server, redis_url, monkeypatch):
    # So an engine sends one heartbeat, in each run of a step or in none.
    monkeypatch.setattr(clock, "monotonic", lambda: 1.0)
    made = StoppableStore(redis_server)
    yield made
    made.close()


def prepared(store, case):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    ready = fitting(store)
    case.before(ready)
    return ready


def ids_of(store):
    return {_text(one) for one in store.raw.hkeys(store.keys["records"])}


def kept_of(store):
    """The ids that have a record and a place."""
    places = store.all_places()
    return {one for one in ids_of(store) if places[one]}


def no_count_is_too_low(store):
    records = store.raw.hvals(store.keys["records"])
    shared = Counter(filter(None, (template_of(one) for one in records if one[:1] == b"1")))
    uses = store.raw.hgetall(store.keys["template_uses"])
    uses = {name: number(one) for name, one in uses.items()}
    return all(uses.get(name, 0) >= count for name, count in shared.items()) and (
        set(shared) <= set(store.raw.hkeys(store.keys["templates"]))
    )


def take_again(ready, case):
    """Repeat a call that raised an error; it may answer that its entry has gone, or is there."""
    try:
        return case.take(ready)
    except DelayQError as error:
        if isinstance(error, AlreadyScheduled) and error.task_id in kept_of(ready.store):
            return None
        raise AssertionError(f"cannot be taken again: {error}") from error


# Empty if nothing is left that a scanner would deliver or look at as time passes.
MOVING = ("due", "relay", "leased", "refused", "parked", "behind", "held")


def drain(ready):
    """Let time pass, and deliver all entries; returns the published ids and their marks."""
    store, published = ready.store, []
    shard_steps = store.steps()
    for minute in range(3):
        store.set_ms(FAR_MS + 1 + 60_000 * minute)  # so that keys are looked at again
        shard_steps.reclaim()
        store.entries.resume(lane_for())
        store.entries.resume(MAIL)
        while (seen := shard_steps.hand_over()).handed_over or seen.is_past(seen.due):
            pass
        for entry in shard_steps.claim(50)[0]:
            message = json.loads(entry.message)
            assert message["headers"]["id"] == entry.task_id
            published.append((entry.task_id, bool(entry.uncertain)))
            shard_steps.ack([entry])
        if not store.raw.exists(*(store.keys[name] for name in MOVING)):
            break
    return published


# Findings that a script may leave if Redis stops it half-way, by kind and part.
TOO_MUCH = {
    *(("wrong_count", part) for part in ("templates", "template_uses")),
    *(("leftover", part) for part in ("claims", "errors")),
    *(("owed_revoked", part) for part in ("outbox", "outbox_messages")),
    ("place_without_record", "dead"),
    ("place_without_record", "behind"),
    ("wrong_key", "holders"),
    ("wrong_tag", "tags"),
}

STUCK = {
    # It was replaced, and would wait for ever.
    ("schedule", "behind again"): {("wrong_key", "records")},
    # Its first place among the dead, which the second try does not know.
    ("undo", "dead"): {("second_place", "dead")},
}


def left_over(store):
    return {(one.kind, one.part) for one in check_store(store.entries)}


def stop_at(store, case, nth, side):
    """Run the step until its *nth* write; returns the store, whether it failed, and the trace."""
    ready = prepared(store, case)
    before = ids_of(store)
    store.homeless = before - kept_of(store)
    store.raw.hset(STOP, mapping={"nth": nth, "side": side})
    for scripts in (ready.store.scripts, ready.steps._scripts):
        scripts.let_stop(case.script)
    failed = False
    try:
        case.take(ready)
    except StoreUnavailable:
        raise
    except StoreError:
        failed = True
    for scripts in (ready.store.scripts, ready.steps._scripts):
        scripts.let_stop("")
    trace = [one.decode().split() for one in store.raw.lrange(TRACE, 0, -1)]
    store.raw.delete(TRACE, STOP)
    return ready, before, failed, trace


def trace_of(store, case):
    _, _, failed, trace = stop_at(store, case, 0, "")
    assert not failed
    return trace


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.script}-{case.name}")
def test_stopped_at_any_write_it_loses_nothing_and_can_be_taken_again(store, case):
    trace = trace_of(store, case)
    commands = [command for _, _, command in trace]
    for nth, side in stops(trace):
        try:
            one_stop(store, case, nth, side, commands)
        except AssertionError as error:
            where = " ".join(commands[: nth - 1]) + f" | {side} {commands[nth - 1]}"
            raise AssertionError(f"{where}: {error}") from error


def test_nothing_is_cancelled_before_the_answer_is_stored(store):
    """A user may lack the right to write it; such a call fails, and must change nothing."""
    case = next(one for one in CASES if (one.script, one.name) == ("cancel", "last"))
    prepared(store, case)
    before = answers_in(store)
    for nth, side in stops(trace_of(store, case)):
        stop_at(store, case, nth, side)
        assert "list" in kept_of(store) or answers_in(store) > before, f"{side} write {nth}"


KINDS = [case for case in CASES if case.script == "rewrite" and case.name.startswith("kind")]


@pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
def test_an_edit_stopped_at_any_write_leaves_no_entry_to_scanners_of_another_kind(store, case):
    for nth, side in stops(trace_of(store, case)):
        stop_at(store, case, nth, side)
        for index, kind in (("due", b"L"), ("relay", b"R")):
            for member in store.raw.zrange(store.keys[index], 0, -1):
                record = store.record(member[6:].decode())
                assert record[1:2] == kind, f"{side} write {nth}: {member}"
        is_tidy = b"w" in (store.raw.hget(store.keys["meta"], "tidy") or b"")
        assert not (is_tidy and store.raw.exists(store.keys["refused"])), f"{side} write {nth}"


def answers_in(store):
    """How many calls are remembered."""
    fields = [*store.raw.hkeys(store.keys["calls"]), *store.raw.hkeys(store.keys["calls_old"])]
    return sum(one.startswith(b"\xfd") for one in fields)


def stops(trace):
    """Stop before each write. A stop after one leaves the same as a stop before the next.

    There are two exceptions: the last write has no next one, and a script survives a stop at a
    ``pcall``.
    """
    next_ones = [*(how for _, how, _ in trace[1:]), "none"]
    for nth, next_one in enumerate(next_ones, start=1):
        yield nth, "before"
        if next_one != "call":
            yield nth, "after"


def one_stop(store, case, nth, side, commands):
    ready, before, failed, _ = stop_at(store, case, nth, side)
    new = (ids_of(store) | set(store.arrived())) - before

    # Redis has no command that pushes and deletes. The writes after a push, up to the removal of
    # its records, were tried on the same keys before it, so they cannot fail.
    pushed = {_text(one) for one in store.arrived()}
    both = before & pushed & kept_of(store)
    first = nth - (5 if case.name in HOLDING else 3)  # with a key, two more writes are tried
    just_pushed = case.script == "hand_over" and "LPUSH" in commands[first:nth]
    assert not both or just_pushed, f"in the list, and here: {both}"
    if both:
        store.raw.hdel(store.keys["records"], *both)
    kept = kept_of(store)
    gone = before - pushed - store.homeless - kept
    ends = set(case.ends.split())
    assert gone <= ends, f"lost {gone}"
    assert ids_of(store) - store.homeless <= kept, "an id has no place"
    assert store.homeless <= ids_of(store)
    assert case.script == "recount" or no_count_is_too_low(store), "a count is too low"
    unreadable = {one for one in before if (store.record(one) or b"1")[:1] != b"1"}

    if failed:
        take_again(ready, case)
    assert no_count_is_too_low(store), "a count is too low"
    published = drain(ready)
    delivered = Counter([*store.arrived(), *(task_id for task_id, _ in published)])
    dead = {member[6:].decode() for member in store.raw.zrange(store.keys["dead"], 0, -1)}
    wanted = (before | new) - unreadable - ends
    # An entry that its list refuses waits, longer each time.
    refused = (dead | {"foreign"}) & ids_of(store)
    assert wanted <= {*delivered, *refused}, "lost"
    assert max(delivered.values(), default=0) <= 1, f"doubled: {delivered}"
    kinds = left_over(store)
    told = {("unreadable_record", "records")} if unreadable else set()
    assert kinds - told <= TOO_MUCH | STUCK.get((case.script, case.name), set()), kinds
    if kinds:
        _repair(ready)
        assert left_over(store) == told, "not mended"
    if not kinds - told and not unreadable:
        store.check()


@pytest.mark.parametrize("script", sorted({case.script for case in CASES}))
def test_every_write_in_its_text_is_tried(store, script):
    _, sites = sites_of(load()[script].text, store.scripts.writes)
    tried = {
        int(site) for case in CASES if case.script == script for site, *_ in trace_of(store, case)
    }
    missed = [command for site, command in enumerate(sites) if site not in tried]
    if not WRITES_HISTORY.search(load()[script].text):
        missed = [command for command in missed if command not in ("LTRIM", "LPUSH")]
    assert missed == NEVER.get(script, [])

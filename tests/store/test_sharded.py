"""Entries over several shards: each id has its shard; lists and counts cover all shards."""

from dataclasses import replace

import pytest

from celery_delayq.contrib.care.check import check_store
from celery_delayq.core import clock
from celery_delayq.core.clock import When
from celery_delayq.core.hooks import part_of
from celery_delayq.core.servers.connection import Connection
from celery_delayq.core.store import (
    Entries,
    Keys,
    Listing,
    NewEntry,
    Outcome,
    Receipt,
    Scripts,
    State,
)
from celery_delayq.core.store.changes import Move, Removal, Rewrite
from celery_delayq.core.store.delivery import Copies, ScannerSteps
from celery_delayq.core.store.keys import shard_of
from celery_delayq.core.store.record import EVERYTHING, Extras, header_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.errors import (
    AlreadyScheduled,
    AlreadyTaken,
    InFlight,
    InvalidDueTime,
    StoreDiffers,
    StoreUnavailable,
)
from tests.store.support import (
    CLOCK,
    FAR_MS,
    MEMBERSHIP,
    NOW_MS,
    SETTINGS,
    ClockedScripts,
    endpoint,
    new_record,
)
from tests.support.waiting import PATIENCE

SHARDS = 5
LIST = header_for("L", "celery")
RELAY = header_for("R", "mail")


def keys_of(shards):
    return [Keys("delayq", shard, shards) for shard in range(shards)]


class Noting(Scripts):
    """Scripts that a test can be told of: each call before it, and until when it lasts."""

    on_call = staticmethod(lambda _name, _keys, _until: None)

    def call(self, name, *, until=None, **arguments):
        self.on_call(name, self.keys, until)
        return super().call(name, until=until, **arguments)


@pytest.fixture
def on_call(entries):
    """Let each call of the entries' scripts be told: ``on_call(f)``; f may raise."""

    def told(act):
        for shard in entries.unasked_shards:
            shard.scripts.on_call = act

    return told


@pytest.fixture
def entries_of(redis_server, redis_url):
    """The entries of a process with this many shards."""
    made = []

    def make(shards):
        connection = Connection(endpoint(redis_server))
        made.append(connection)
        settings = replace(SETTINGS, shards=shards)
        each = [Noting(connection, keys, settings) for keys in keys_of(shards)]
        apart = Scripts(connection, Keys("delayq"), settings) if shards > 1 else None
        return Entries(each, MEMBERSHIP, apart)

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def entries(entries_of):
    return entries_of(SHARDS)


def new(task_id, due_ms=FAR_MS, to=LIST, *, share=True, key=""):
    record = new_record(task_id, to, share=share).with_extras(Extras(key))
    return NewEntry(task_id, When("at", due_ms), record)


IDS = [f"id-{number}" for number in range(100)]


@pytest.fixture
def full(entries):
    entries.schedule([new(one) for one in IDS])
    return entries


@pytest.fixture
def asked(on_call):
    """The script and the shard's index of each request from here on."""
    made = []
    on_call(lambda name, keys, _: made.append((name, keys["due"])))
    return made


def test_an_entry_is_in_the_shard_of_its_id_and_in_no_other(full, raw):
    for shard, keys in enumerate(keys_of(SHARDS)):
        held = {one.decode() for one in raw.hkeys(keys["records"])}
        assert held == {one for one in IDS if shard_of(one, SHARDS) == shard}
        assert held


def test_answers_come_in_the_order_of_the_entries(entries):
    entries.schedule([new("id-7"), new("id-8")])
    many = [new(one, FAR_MS + at) for at, one in enumerate(IDS[:20])]
    many[3] = new("id-3", 10**15)
    answers = entries.schedule(many)
    assert isinstance(answers[3], InvalidDueTime)
    assert isinstance(answers[7], AlreadyScheduled)
    assert isinstance(answers[8], AlreadyScheduled)
    assert [at for at, one in enumerate(answers) if one == Receipt(IDS[at], FAR_MS + at)] == [
        at for at in range(20) if at not in (3, 7, 8)
    ]


def test_nothing_to_schedule_is_no_answer(entries):
    assert entries.schedule([]) == []


def test_an_entry_is_found_changed_and_cancelled_by_its_id(full):
    for one in IDS:
        assert full.find(one).due_ms == FAR_MS
        assert full.state(one) is State.SCHEDULED
        outcome, change = full.change(one, Move(When("by", 1)))
        assert (outcome, change.due_ms) == (Outcome.DONE, FAR_MS + 1)
        assert full.change(one, Removal())[0] is Outcome.DONE
        assert full.state(one) is full.find(one) is full.handed_over_ms(one) is None
        assert full.cancelled_ms_ago(one) >= 0
    assert full.counts().scheduled == 0


@pytest.mark.parametrize("key", [f"key-{number}" for number in range(7)])
def test_a_message_becomes_an_entry_once_on_whichever_shard(entries, key):
    copies = Copies([one.scripts for one in entries.shards], 30.0)
    taken, runs = ("id-1", "one"), ("id-1", "another")
    received, until = clock.monotonic(), clock.monotonic() + PATIENCE

    def enter(message):
        record = new_record("id-1", LIST).with_extras(Extras(key=key))
        delivery = copies.delivery(message, again=True, received=received)
        return entries.schedule([NewEntry("id-1", When("at", FAR_MS), record, "", delivery)])[0]

    assert isinstance(enter(taken), Receipt)
    assert copies.is_taken(taken, until)
    # It may run, so a late request of its first worker makes no entry.
    assert not copies.is_taken(runs, until)
    entries.change("id-1", Removal())
    assert isinstance(enter(runs), AlreadyScheduled)
    assert isinstance(enter(taken), AlreadyTaken)
    assert entries.find("id-1") is None


def test_a_running_task_takes_a_key_though_its_own_entry_is_still_leased(entries):
    link = entries.shards[shard_of("id-1", SHARDS)]
    shard_steps = ScannerSteps(link.scripts, MEMBERSHIP)

    def answer(supersede):
        (one,) = entries.schedule(
            [new("id-1", share=False, key="key-1")], Addition(supersede=supersede)
        )
        return type(one)

    entries.schedule([new("id-1", 1000, RELAY)])
    assert answer(supersede=True) is AlreadyScheduled, "it did not deliver the running task"
    assert len(shard_steps.claim(1).entries) == 1
    assert answer(supersede=False) is InFlight
    assert answer(supersede=True) is Receipt


@pytest.mark.parametrize("failures", [2, 3])
def test_while_the_shard_of_an_id_is_away_it_is_asked_again(entries, on_call, failures):
    """As often as the call's retry policy says; nothing was written so far."""
    left = [None] * failures

    def away(name, *_):
        if name == "find" and left:
            left.pop()
            raise StoreUnavailable("find", "refused")

    on_call(away)
    assert shard_of("id-1", SHARDS) != shard_of("key-1", SHARDS)
    entry = new("id-1", share=False, key="key-1")
    if failures == 2:
        (receipt,) = entries.schedule([entry], Addition(pauses=[0, 0]))
        assert receipt.task_id == "id-1"
        return
    with pytest.raises(StoreUnavailable, match="schedule failed: refused") as caught:
        entries.schedule([entry], Addition(pauses=[0, 0]))
    assert not caught.value.may_have_run
    assert entries.counts().scheduled == 0


def test_a_call_that_searches_ends_in_time(entries, on_call):
    """All shards together have the time of one call."""
    ends = []

    def note(name, _, until):
        if name != "join":
            ends.append(until)

    on_call(note)
    for step in (
        lambda: entries.change("nobody", Removal()),
        lambda: entries.change("nobody", Move(When("by", 1))),
        lambda: entries.change("nobody", Rewrite(None, new_record("nobody", LIST)))[0],
    ):
        ends.clear()
        step()
        assert len(ends) == SHARDS
        assert set(ends) == {ends[0]}
        assert ends[0] is not None


def test_only_an_id_that_its_shard_does_not_hold_is_looked_for(entries, asked):
    entries.schedule([new("id-1")])
    for step in (entries.find, entries.state):
        asked.clear()
        assert step("id-1")
        assert [name for name, _ in asked if name == "find"] == ["find"]
        asked.clear()
        assert step("nobody") is None
        assert len(set(asked)) == SHARDS
    asked.clear()
    assert entries.change("id-1", Removal())[0] is Outcome.DONE
    assert [name for name, _ in asked] == ["cancel"]


def test_an_owed_state_is_settled_in_its_shard(full, raw):
    def owed():
        return sum(raw.zcard(keys["outbox"]) for keys in keys_of(SHARDS))

    cancelled = [full.change(one, Removal("caller"))[1].cancelled for one in IDS]
    assert owed() == len(IDS)
    for one in cancelled:
        full.mark_stored(one)
    assert owed() == 0


def test_waiting_entries_are_listed_in_due_order_over_all_shards(entries):
    order = sorted(IDS, key=lambda one: hash(one) % 1000)
    many = [new(one, FAR_MS + at, RELAY if at % 3 else LIST) for at, one in enumerate(order)]
    entries.schedule(many)
    assert [one.task_id for one in entries.waiting(Listing(0, FAR_MS + 1000))] == order
    assert [one.task_id for one in entries.waiting(Listing(FAR_MS + 10, FAR_MS + 13))] == order[
        10:13
    ]


def test_counts_are_of_all_shards_and_a_scanner_counts_once(entries, raw):
    entries.schedule([new(one, FAR_MS + at) for at, one in enumerate(IDS)])
    now_ms = entries.counts().now_ms
    for keys in keys_of(SHARDS):
        raw.zadd(keys["scanners"], {"one": now_ms + 60_000, "two": now_ms + 60_000})
    raw.zadd(keys_of(SHARDS)[1]["dead"], {b"......x": 1})
    raw.zadd(keys_of(SHARDS)[2]["dead"], {b"......y": 1})
    counts = entries.counts()
    assert (counts.scheduled, counts.in_flight, counts.dead, counts.scanners) == (100, 0, 2, 2)
    assert counts.next_due_ms == FAR_MS


def test_a_scanner_is_told_once_with_the_heartbeat_that_it_gave_last(entries, raw):
    now_ms = entries.counts().now_ms
    for step, keys in enumerate(keys_of(SHARDS)):
        for name, after in (("one", step), ("two", -step)):
            raw.zadd(keys["scanners"], {name: now_ms + 60_000})
            raw.hset(keys["heartbeats"], name, f"{now_ms - 1000 + after}:1")
    told = [(one.name, one.seen_ms - now_ms) for one in entries.scanners()]
    assert told == [("one", SHARDS - 1001), ("two", -1000)]


def test_queues_and_what_is_overdue_longest_are_of_all_shards(entries, limits):
    entries.schedule([new(one, 1000 + at) for at, one in enumerate(IDS)])
    tallies, is_complete = entries.tallies(10_000)
    assert (sum(one.waiting for one in tallies), is_complete) == (len(IDS), True)
    assert sum(one.overdue for one in tallies) == len(IDS)
    assert entries.counts().oldest_overdue_ms == 1000
    limits(queues_step=5)
    tallies, is_complete = entries.tallies(10 * SHARDS)
    assert (sum(one.waiting for one in tallies), is_complete) == (10 * SHARDS, False)


def test_a_lane_is_resumed_once_it_is_in_every_shard(entries):
    entries.pause(EVERYTHING, "")
    entries.schedule([new(one, 1000) for one in IDS])
    told = []
    for link in entries.shards:
        told += [(one.resumed, one.parked) for one in entries.pauses()]
        link.calls.call("resume", lane=EVERYTHING, rate=1)
    assert told == [(False, len(IDS))] * SHARDS
    assert [(one.resumed, one.rate) for one in entries.pauses()] == [(True, SHARDS)]


@pytest.fixture
def clocked(redis_server, redis_url):
    """The same entries, whose clock a test sets by the key `CLOCK`."""
    connection = Connection(endpoint(redis_server))
    settings = replace(SETTINGS, shards=SHARDS, history=10)
    scripts = [ClockedScripts(connection, keys, settings) for keys in keys_of(SHARDS)]
    yield Entries(scripts, MEMBERSHIP)
    connection.close()


def test_a_pause_is_as_old_as_in_the_shard_that_has_had_it_longest(clocked, raw):
    for later, shard in zip((2, 1, 3, 5, 4), clocked.shards, strict=True):
        raw.set(CLOCK, (NOW_MS + 1000 * later) * 1000)
        shard.calls.call("pause", lane=EVERYTHING, called="", late=0)

    (pause,) = clocked.pauses()
    assert pause.since.timestamp() == NOW_MS / 1000 + 1


def test_a_history_is_of_all_shards_the_newest_first_and_a_bulk_has_one_line(clocked, raw):
    for step, one in enumerate(IDS):
        raw.set(CLOCK, (NOW_MS + step) * 1000)
        clocked.schedule([new(one)])
        with part_of("bulk"):
            clocked.change(one, Removal())
    (line,) = clocked.history(changes=99)
    assert (line.bulk, line.count, line.when_ms) == ("bulk", len(IDS), NOW_MS + len(IDS) - 1)
    for some in (clocked.history(events=99), clocked.history(parts=99)):
        assert [one.task_id for one in some] == IDS[:-11:-1]


def test_with_nothing_anywhere_there_is_no_next_due_time(entries):
    assert entries.counts().next_due_ms is None


def test_the_check_finds_faults_in_every_shard(full, raw):
    assert list(check_store(full)) == []
    for keys in keys_of(SHARDS):
        raw.delete(keys["due"])
    assert sorted(one.id for one in check_store(full)) == sorted(IDS)


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 3), (5, 4)])
def test_a_process_with_another_number_of_shards_is_refused(entries_of, raw, first, then):
    entries_of(first).schedule([new(one) for one in IDS])
    before = {key: raw.dump(key) for key in raw.keys("*")}
    other = f"delayq_shards '{first}', this process '{then}'"
    # With any id first.
    for one in IDS[:10]:
        with pytest.raises(StoreDiffers, match=other):
            entries_of(then).schedule([new(f"other-{one}")])
        with pytest.raises(StoreDiffers, match=other):
            entries_of(then).change(one, Removal())
        with pytest.raises(StoreDiffers, match=other):
            entries_of(then).find(one)
    assert {key: raw.dump(key) for key in raw.keys("*")} == before


def test_the_place_where_processes_meet_holds_no_entry(full, raw):
    assert [key for key in raw.keys("*") if key.startswith(b"{delayq:0}")] == [b"{delayq:0}:meta"]
    assert raw.hget("{delayq:0}:meta", "shards") == str(SHARDS).encode()


def test_after_an_emptied_store_the_number_is_agreed_again(full, entries_of, raw):
    """Otherwise a process with another number would find its own place new, and use it."""
    raw.flushall()
    full.schedule([new("id-1")])
    with pytest.raises(StoreDiffers, match="delayq_shards"):
        entries_of(1).schedule([new("id-1")])

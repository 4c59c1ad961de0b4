"""Damaged records, or records of a later version: declared dead unchanged; the others go on."""

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from celery_delayq.contrib.care.check import check_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Listing, Outcome, State
from celery_delayq.core.store.changes import Removal, Rewrite
from celery_delayq.core.store.record import Extras, NewRecord, Record, Template, facts_in
from celery_delayq.errors import UnreadableRecord
from tests.store import support
from tests.store.support import FAR_MS, LABELS, NOW_MS

TIMES = b"%-13d%016d" % (NOW_MS, NOW_MS * 1000) + (NOW_MS * 1000).to_bytes(7, "big")
HEAD = TIMES + LABELS
SPOILT = HEAD[:20] + b"x" * 9 + HEAD[29:]
ORDER = b"\x00" * 5 + b"\x02"

UNREADABLE = {
    "nothing": b"",
    "another program's": b"?L6:celery" + ORDER + HEAD + b"I{}",
    "a zero byte": b"\x00" * 100,
    "text": b"not a record",
    "no length": b"1L:celery" + ORDER + HEAD + b"I{}",
    "too long a length": b"1L999:celery" + ORDER + HEAD + b"I{}",
    "a negative length": b"1L-3:celery" + ORDER + HEAD + b"I{}",
    "a hexadecimal length": b"1L0x6:celery" + ORDER + HEAD + b"I{}",
    "an endless length": b"1Linf:celery" + ORDER + HEAD + b"I{}",
    "no number": b"1Lnan:celery" + ORDER + HEAD + b"I{}",
    "cut behind the destination": b"1L6:celery",
    "cut in the head": b"1L6:celery" + ORDER + HEAD[:20],
    "cut before the message": b"1L6:celery" + ORDER + HEAD + b"I",
    "no such form": b"1L6:celery" + ORDER + HEAD + b"Z{}",
    "a due time that is none": b"1L6:celery" + ORDER + b"x" * 13 + HEAD[13:] + b"I{}",
    "a time of scheduling that is none": b"1L6:celery" + ORDER + SPOILT + b"I{}",
    "a flag to come": b"1L6:celery" + ORDER + HEAD.replace(LABELS, b"1" + LABELS[1:]) + b"I{}",
}
BROKEN = {
    "a template that is gone": b"1L6:celery" + ORDER + HEAD + b"T" + b"n" * 12 + b"1\n2\n3\n4\n5",
    "a template's name cut short": b"1L6:celery" + ORDER + HEAD + b"T" + b"n" * 5,
}
DAMAGED = UNREADABLE | BROKEN
each_unreadable = pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
each_broken = pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
each_damaged = pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
each_kind = pytest.mark.parametrize("put", ["schedule", "schedule_relayed"])


REFUSAL = r"^the record of task 'bad' cannot be read: "


def damage(store, task_id, data):
    store.raw.hset(store.keys["records"], task_id, data)


def cancelled(store, task_id):
    """The outcome of a cancel, and the message for its signal."""
    outcome, change = store.entries.change(task_id, Removal())
    return outcome, change.cancelled.message


def pass_over(store, put):
    """Let any step take the entry; returns the entries that it declared dead, and those it took."""
    shard_steps = store.steps()
    if put == "schedule":
        seen = shard_steps.hand_over()
        return seen.dead, store.arrived()
    claimed, aside, *_ = shard_steps.claim(100)
    return aside, [entry.task_id for entry in claimed]


@each_kind
@each_damaged
def test_an_unreadable_record_becomes_dead_whole_and_the_others_go_on(store, put, data):
    for task_id in ("before", "bad", "behind"):
        getattr(store, put)(task_id)
    damage(store, "bad", data.replace(b"1L", b"1R", 1) if put == "schedule_relayed" else data)
    kept = store.record("bad")
    aside, taken = pass_over(store, put)
    assert [task_id for task_id, _ in aside] == ["bad"]
    assert taken == ["before", "behind"]
    assert store.places("bad") == ["dead"]
    assert store.record("bad") == kept
    (reason,) = store.raw.hvals(store.keys["errors"])
    assert reason.decode() == aside[0][1]
    assert re.match(r"record|template", aside[0][1])


@each_unreadable
def test_an_unreadable_record_can_be_neither_cancelled_moved_edited_nor_read(store, data):
    for task_id in ("a", "bad", "b"):
        store.schedule(task_id, FAR_MS)
    damage(store, "bad", data)
    before, refusals = store.snapshot(), set()
    for step in (
        lambda: store.entries.find("bad"),
        lambda: store.entries.state("bad"),
        lambda: store.reschedule("bad", When("at", NOW_MS)),
        lambda: store.entries.change("bad", Removal()),
        lambda: store.entries.change("bad", Rewrite(None, NewRecord(b"", b"", b""))),
    ):
        with pytest.raises(UnreadableRecord, match=REFUSAL) as caught:
            step()
        refusals.add(caught.value.why)
    assert len(refusals) == 1
    # A listing leaves it out, and alone.
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, FAR_MS + 1))] == ["a", "b"]
    assert store.entries.counts().scheduled == 3
    assert store.snapshot() == before


@each_broken
def test_an_entry_whose_message_is_broken_can_be_cancelled_though_not_read(store, data):
    store.schedule("bad", FAR_MS)
    damage(store, "bad", data)
    with pytest.raises(UnreadableRecord, match=REFUSAL):
        store.entries.find("bad")
    assert cancelled(store, "bad") == (Outcome.DONE, b"")
    assert store.places("bad") == []


def names_of(first: bytes):
    """Templates whose names begin with a byte of *first*."""
    for number in itertools.count():
        lines = [*support.LINES]
        lines[3] = f', "headers": {{"n": {number}, "id": "'
        if Template.of(lines).name[:1] in (first[:1], first[1:]):
            yield lines


@pytest.mark.parametrize("bytes_of", [b"0" * 12, b"9IT TI1", b"IT" * 6, b"\n" * 12, b"\x00" * 12])
def test_no_good_record_is_called_damaged(store, monkeypatch, bytes_of):
    # The parts are adjacent: labels of digits look like part of the times before them, and a first
    # letter I or T of a name looks like the letter of the form.
    monkeypatch.setattr(support, "LABELS", b"0" + bytes_of.ljust(12, b"1"))
    for number, lines in enumerate(itertools.islice(names_of(b"IT"), 4)):
        monkeypatch.setattr(support, "LINES", lines)
        store.schedule(f"a{number}", share=True)
    seen = store.steps().hand_over()
    assert (seen.handed_over, seen.dead) == (4, [])


@given(st.binary(min_size=12, max_size=12), st.binary(min_size=12, max_size=12))
def test_a_record_is_read_whatever_its_name_and_labels(store, name, labels):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    record = support.new_record("a", b"1L6:celery", share=True)
    body = b"T" + name + record.body[13:]
    store.put("a", replace(record, labels=b"0" + labels, body=body), FAR_MS)
    found = store.scripts.call("find", target=b"ia")
    facts = facts_in(found.word)
    read = Record(found.record, facts.header_end)
    assert (facts.state, read.due_ms, read.name) == (State.SCHEDULED, FAR_MS, name)
    store.check()


def test_an_entry_dead_for_its_version_is_whole_for_the_version_that_reads_it(store):
    store.schedule("a", share=True)
    record = store.record("a")
    damage(store, "a", b"0" + record[1:])
    store.steps().hand_over()
    damage(store, "a", record)
    assert store.reschedule("a", When("at", NOW_MS))[0] is Outcome.DONE
    assert store.steps().hand_over().handed_over == 1
    assert store.arrived() == ["a"]


@pytest.mark.parametrize("member", [b"", b"short", b"\xff" * 5, b"sixsix", b"sixsix\xff\xfe"])
@pytest.mark.parametrize("index", ["due", "relay"])
def test_a_foreign_member_of_an_index_harms_no_other(store, index, member):
    store.raw.zadd(store.keys[index], {member: 1})
    store.schedule("a")
    store.schedule_relayed("b")
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, FAR_MS))] == ["a", "b"]
    shard_steps = store.steps()
    shard_steps.hand_over()
    assert [entry.task_id for entry in shard_steps.claim(10)[0]] == ["b"]
    assert store.arrived() == ["a"]


def test_an_id_that_is_no_utf8_is_listed_all_the_same(store):
    store.schedule("a")
    record = store.record("a")
    store.raw.hset(store.keys["records"], b"\xff", record)
    store.raw.zadd(store.keys["due"], {record[10:16] + b"\xff": NOW_MS})
    assert [entry.task_id for entry in store.entries.waiting(Listing(0, FAR_MS))] == ["a", "\ufffd"]


garbage = st.one_of(
    st.binary(),
    st.binary().map(b"1L".__add__),
    st.binary().map((b"1L6:celery" + ORDER + HEAD + b"T").__add__),
    st.binary().map((b"1L6:celery" + ORDER + HEAD).__add__),
)


@given(garbage)
@example(b"\x00")
@example(b"1L6:celery")
@settings(max_examples=200)
def test_no_garbage_stops_a_pass_or_raises_another_error(store, data):
    store.raw.flushdb()
    store.set_ms(NOW_MS)
    store.schedule("first")
    store.schedule("bad")
    store.schedule("last")
    damage(store, "bad", data)
    try:
        store.entries.find("bad")
    except UnreadableRecord as error:
        assert error.why  # noqa: PT017 (whether it is raised is not the claim)
    list(store.entries.waiting(Listing(0, FAR_MS)))
    seen = store.steps().hand_over()
    # By chance it may be a valid record; then it went to some list, which counts.
    assert seen.handed_over + len(seen.dead) == 3
    assert b'"id": "first"' in store.raw.lindex("celery", -1)
    assert store.score("due", "last") is None


@each_kind
def test_an_entry_without_a_record_becomes_dead_and_can_be_cancelled(store, put):
    for task_id in ("ghost", "a"):
        getattr(store, put)(task_id)
    store.raw.hdel(store.keys["records"], "ghost")
    assert pass_over(store, put) == ([("ghost", "no record")], ["a"])
    assert store.places("ghost") == ["dead"]
    assert in_dead(store) == ["place_without_record"]

    assert cancelled(store, "ghost") == (Outcome.DONE, b"")
    assert store.entries.counts().dead == 0
    assert not store.raw.exists(store.keys["errors"])
    assert store.entries.change("ghost", Removal())[0] is Outcome.NOT_FOUND


def in_dead(store):
    """The kinds of a check's findings about dead entries."""
    return [one.kind for one in check_store(store.entries) if one.part == "dead"]


def remove(store, task_id):
    return store.entries.change(task_id, Removal(only_dead=True))[0]


def test_a_dead_entry_that_lost_its_record_can_be_removed(store):
    for task_id in ("other", "ghost"):
        store.at("dead", task_id)
    store.raw.delete(store.keys["records"])
    assert in_dead(store) == ["place_without_record"] * 2

    assert remove(store, "ghost") is Outcome.DONE
    assert store.places("ghost") == []
    assert store.places("other") == ["dead"]
    assert store.raw.hkeys(store.keys["errors"]) == [b"other"]
    assert remove(store, "ghost") is Outcome.NOT_FOUND


def test_of_what_only_an_error_is_left_there_is_nothing_to_remove(store):
    store.raw.hset(store.keys["errors"], "ghost", "NO_ROUTE")
    assert remove(store, "ghost") is Outcome.NOT_FOUND


def test_a_cut_record_that_begins_like_the_one_before_is_dead_and_the_others_leave(store):
    for task_id in "abc":
        store.schedule(task_id, share=True, extras=Extras(tags=(task_id,)))
    store.raw.hset(store.keys["records"], "b", store.record("b")[:-1])
    seen = store.steps().hand_over()
    assert (seen.handed_over, [task_id for task_id, _ in seen.dead]) == (2, ["b"])
    assert store.arrived() == ["a", "c"]

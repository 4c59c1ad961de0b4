"""A check finds inconsistencies, by their kind, and ignores operations in progress."""

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_delayq.contrib.care.check import KINDS, check_store
from celery_delayq.core.clock import When
from celery_delayq.core.store import Entries, NewEntry
from celery_delayq.core.store.changes import Move, Removal
from celery_delayq.core.store.record import Extras, header_for
from tests.store.support import FAR_MS, MEMBERSHIP, NOW_MS, ROUTE, new_record, template_of

EXTRAS = Extras("k1", ("t1", "t2"))
PARKED = b"*" * 7 + b"\0" * 7 + b"L"  # the bytes before a parked member


def key(store, name):
    return store.keys[name]


def template(store):
    return template_of(store.record("list"))


def second_place(store):
    store.raw.zadd(key(store, "relay"), {b"\xff" * 6 + b"list": NOW_MS})


def set_text(text):
    return lambda store: store.raw.hset(key(store, "templates"), template(store), text)


def set_uses(uses):
    return lambda store: store.raw.hset(key(store, "template_uses"), template(store), uses)


def member_in(store, name):
    record = store.record(name)
    number = record.index(b":celery") + len(b":celery")
    return record[number : number + 6] + name.encode()


def tagged(store, tag):
    return tag + b"\0" + member_in(store, "tagged")


# By the kind of the finding, and the case of it.
SPOIL = {
    "record_without_place": lambda store: store.raw.delete(key(store, "due")),
    "place_without_record": lambda store: store.raw.zadd(key(store, "due"), {b"......x": 1}),
    "place_without_record: dead": lambda store: store.raw.zadd(key(store, "dead"), {b"......x": 1}),
    "second_place": second_place,
    "record_without_place: parked": lambda store: store.raw.delete(key(store, "paused")),
    "unreadable_record": lambda store: store.raw.hset(key(store, "records"), "list", "2L?"),
    "unreadable_record: template gone": lambda store: store.raw.delete(key(store, "templates")),
    "unreadable_record: template damaged": set_text("\n" * 9),
    "leftover: claim": lambda store: store.raw.hset(key(store, "claims"), "x", "1:0:0:1:"),
    "leftover: error": lambda store: store.raw.hset(key(store, "errors"), "x", "?"),
    "wrong_key: of no entry": lambda store: store.raw.hset(key(store, "holders"), "k", "x"),
    "wrong_key: lost": lambda store: store.raw.hdel(key(store, "holders"), "k1"),
    "wrong_tag: of no entry": lambda store: store.raw.zadd(key(store, "tags"), {b"t\0......x": 0}),
    "wrong_tag: lost": lambda store: store.raw.zrem(key(store, "tags"), tagged(store, b"t2")),
    "wrong_count: none": lambda store: store.raw.hset(key(store, "templates"), "x", "text"),
    "wrong_count: too low": set_uses(3),
    "wrong_count: too high": set_uses(9),
    "owed_revoked: no message": lambda store: store.raw.zadd(key(store, "outbox"), {"x": NOW_MS}),
    "owed_revoked: no time": lambda store: store.raw.zrem(key(store, "outbox"), "revoked"),
    "number_too_low": lambda store: store.raw.hset(key(store, "meta"), "seq", "1"),
}


# The same kinds, of entries that exist, or nearly do.
ALSO = {
    "wrong_key": lambda store: store.raw.hset(key(store, "holders"), "other", "tagged"),
    "wrong_tag": lambda store: store.raw.zadd(key(store, "tags"), {tagged(store, b"t3"): 0}),
    "place_without_record": lambda store: store.raw.zadd(key(store, "parked"), {PARKED + b"x": 0}),
    "second_place": lambda store: store.raw.zadd(
        key(store, "parked"), {PARKED + member_in(store, "tagged"): 0}
    ),
}


def kind_of(spoilt):
    return spoilt.partition(":")[0]


def kinds(store):
    return {one.kind for one in check_store(store.entries)}


def test_every_kind_but_an_unreadable_record_has_a_repair_and_each_is_tried():
    assert set(map(kind_of, SPOIL)) == KINDS.keys()
    assert {one for one, kind in KINDS.items() if not kind.repair} == {"unreadable_record"}


@pytest.mark.parametrize("extras", [EXTRAS, Extras(tags=("t1",)), Extras(key="k")])
@pytest.mark.parametrize("relayed", [False, True])
def test_of_what_has_extras_nothing_is_left(store, extras, relayed):
    schedule = store.schedule_relayed if relayed else store.schedule
    schedule("gone", extras=extras)
    schedule("cancelled", FAR_MS, extras=Extras("other", ("t1",)))
    assert kinds(store) == set()
    store.steps().hand_over()
    shard_steps = store.steps()
    shard_steps.ack(shard_steps.claim(5)[0])
    store.entries.change("cancelled", Removal())
    assert kinds(store) == set()
    assert not store.raw.exists(key(store, "holders"), key(store, "tags"), key(store, "records"))


def test_a_finding_comes_once_in_a_large_store(store):
    store.flood(500)
    store.raw.hdel(key(store, "records"), "a7")
    store.raw.hincrby(key(store, "template_uses"), template_of(store.record("a0")), -1)
    found = list(check_store(store.entries))
    assert [(one.kind, one.id) for one in found] == [("place_without_record", "a7")]
    assert str(found[0]).startswith("a7: a place has no record")


def test_a_last_number_that_is_too_low_is_told_of_once_and_not_where_it_is_lost(store):
    store.flood(500)
    store.raw.hset(key(store, "meta"), "seq", 400)
    (finding,) = check_store(store.entries)
    assert str(finding).startswith("seq: the last insertion number is ")
    store.raw.hset(key(store, "meta"), "seq", 500)
    assert kinds(store) == set()
    store.raw.hdel(key(store, "meta"), "seq")  # the next one begins anew, above all
    assert kinds(store) == set()


def test_of_what_is_changed_meanwhile_nothing_is_reported(store):
    store.flood(200, FAR_MS)
    done = threading.Event()

    def change(number):
        entries, dice = Entries([store.new_scripts()], MEMBERSHIP), random.Random(number)
        scripts, shard_steps = entries.shards[0].scripts, store.steps(lease=30)
        while not done.is_set():
            task_id = f"a{dice.randrange(200)}"
            step = dice.randrange(5)
            if step == 0:
                entries.change(task_id, Removal())
            elif step == 1:
                entries.change(task_id, Move(When("at", NOW_MS + dice.randrange(2) * 1000)))
            elif step == 2:
                shard_steps.hand_over()
                shard_steps.ack(shard_steps.claim(3)[0])
            elif step == 3:
                shard_steps.nack("unknown", shard_steps.claim(3)[0])
            else:
                again(entries, task_id, dice)
        scripts.connection.close()

    def again(entries, task_id, dice):
        to = header_for(*(("R", ROUTE) if dice.random() < 0.5 else ("L", "celery")))
        extras = Extras(dice.choice(("", "k1", "k2")), dice.choice(((), ("t1",), ("t1", "t2"))))
        record = new_record(task_id, to, share=True).with_extras(extras)
        when = When("at", NOW_MS + dice.randrange(2) * 1000)
        entries.schedule([NewEntry(task_id, when, record, dice.choice(("", "keep", "replace")))])

    with ThreadPoolExecutor(3) as pool:
        changes = [pool.submit(change, number) for number in range(3)]
        try:
            found = [one for _ in range(20) for one in check_store(store.entries)]
        finally:
            done.set()
        for each in changes:
            each.result(30)
    # An entry that comes back from a lease waits without its key, while another entry has it. When
    # that one has left, no entry has the key.
    assert [one for one in found if (one.kind, one.part) != ("wrong_key", "records")] == []


# A check reads in slices: small ones at first, larger ones as long as they are light.

FIRST, MOST = 20, 200


@pytest.fixture
def counts_of(store):
    """How many fields each slice of a part requested during a check."""

    def look():
        asked = defaultdict(list)

        def note(name, given):
            if name == "check":
                asked[given["part"]].append(given["count"])

        store.scripts.on_call = note
        assert list(check_store(store.entries)) == []
        return asked

    return look


def test_slices_of_small_entries_grow(store, counts_of):
    store.flood(3000, FAR_MS)
    counts = counts_of()
    for part in ("records", "due"):
        assert counts[part][:5] == [FIRST, 40, 80, 160, MOST]
        assert set(counts[part][4:]) == {MOST}


def test_slices_of_large_values_stay_small(store, counts_of):
    large = "x" * 60_000
    for number in range(150):  # Redis returns a small set in one slice, whatever its COUNT
        extras = Extras(f"{number:0100}", ("t",))
        store.schedule(f"a{number}", FAR_MS, payload=large, extras=extras)
        store.raw.hset(store.keys["outbox_messages"], f"b{number}", large)
        store.raw.zadd(store.keys["outbox"], {f"b{number}": NOW_MS})
    counts = counts_of()
    for part in ("records", "due", "tags", "holders", "outbox_messages"):
        assert len(counts[part]) > 150 / FIRST
        assert max(counts[part]) == FIRST

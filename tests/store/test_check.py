"""What does not fit together is found, by its kind; what is under way is not."""

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_delayq.clock import When
from celery_delayq.errors import AlreadyScheduled
from celery_delayq.store import Entries
from celery_delayq.store.checking import SENTENCES
from tests.operations.table import prepare
from tests.store.support import FAR_MS, MEMBERSHIP, NOW_MS, template_of


def key(store, name):
    return store.keys[name]


def member_of(store, name):
    return store.raw.zrange(key(store, name), 0, 0)[0]


def template(store):
    return template_of(store.record("list"))


def second_place(store):
    store.raw.zadd(key(store, "relay"), {b"\xff" * 6 + b"list": NOW_MS})


def set_uses(uses):
    return lambda store: store.raw.hset(key(store, "template_uses"), template(store), uses)


SPOIL = {
    "record_without_place": lambda store: store.raw.delete(key(store, "due")),
    "place_without_record": lambda store: store.raw.zadd(key(store, "due"), {b"......x": 1}),
    "dead_without_record": lambda store: store.raw.zadd(key(store, "dead"), {b"......x": 1}),
    "second_place": second_place,
    "unreadable_record": lambda store: store.raw.hset(key(store, "records"), "list", "2L?"),
    "template_gone": lambda store: store.raw.delete(key(store, "templates")),
    "lease_without_claim": lambda store: store.raw.delete(key(store, "claims")),
    "stale_lease": lambda store: store.set_ms(NOW_MS + 3_600_000),
    "claim_without_record": lambda store: store.raw.hset(key(store, "claims"), "x", "1:0:0:1:"),
    "reason_without_dead": lambda store: store.raw.hset(key(store, "errors"), "list", "?"),
    "template_without_count": lambda store: store.raw.hset(key(store, "templates"), "x", "text"),
    "count_too_low": set_uses(3),
    "count_too_high": set_uses(5),
}


def kinds(store):
    return {one.kind for one in store.entries.check()}


def test_every_kind_has_a_sentence_and_is_tried():
    assert SPOIL.keys() == SENTENCES.keys()


@pytest.mark.parametrize("kind", SPOIL)
def test_it_is_found_and_nothing_is_changed(store, kind):
    prepare(store)
    assert kinds(store) == set()
    SPOIL[kind](store)
    before = store.contents()
    assert kind in kinds(store)
    assert store.contents() == before


def test_a_finding_comes_once_in_a_large_store(store):
    store.flood(500)
    store.raw.hset(key(store, "meta"), "seq", 500)
    store.raw.hdel(key(store, "records"), "a7")
    store.raw.hincrby(key(store, "template_uses"), template_of(store.record("a0")), -1)
    found = list(store.entries.check())
    assert [(one.kind, one.id) for one in found] == [("place_without_record", "a7")]
    assert str(found[0]).startswith("a7: a place has no record")


def test_of_what_is_changed_meanwhile_nothing_is_reported(store):
    store.flood(200, FAR_MS)
    store.raw.hset(key(store, "meta"), "seq", 200)
    done = threading.Event()

    def change(number):
        entries, dice = Entries(store.new_scripts(), MEMBERSHIP), random.Random(number)
        scripts, engine = entries._scripts, store.engine(lease=30)
        while not done.is_set():
            task_id = f"a{dice.randrange(200)}"
            step = dice.randrange(5)
            if step == 0:
                entries.cancel(task_id)
            elif step == 1:
                entries.reschedule(task_id, When("at", NOW_MS + dice.randrange(2) * 1000))
            elif step == 2:
                engine.hand_over()
                engine.ack(engine.claim(3)[0])
            elif step == 3:
                engine.nack("unknown", engine.claim(3)[0])
            else:
                again(entries, task_id, dice)
        scripts.connection.close()

    def again(entries, task_id, dice):
        new = store.schedule_relayed if dice.random() < 0.5 else store.schedule
        with contextlib.suppress(AlreadyScheduled):
            new(task_id, NOW_MS + dice.randrange(2) * 1000, share=True)

    with ThreadPoolExecutor(3) as pool:
        changes = [pool.submit(change, number) for number in range(3)]
        try:
            found = [one for _ in range(20) for one in store.entries.check()]
        finally:
            done.set()
        for each in changes:
            each.result(30)
    assert found == []
    store.check()

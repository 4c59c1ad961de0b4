"""A store that is moved to another number of shards is the same store to all who use it."""

import contextlib
from dataclasses import replace
from itertools import islice

import pytest

from celery_delayq.core.clock import monotonic
from celery_delayq.core.store import emptied
from celery_delayq.core.store.keys import Keys, shard_of
from celery_delayq.errors import AlreadyScheduled, InvalidOption, StoreDiffers
from tests.app.support import FAR, LONG_AGO
from tests.reshard.conftest import META
from tests.rules.support import write

OF_THE_MOMENT = ("made_by", "time_ms", "store", "shards")


def facts_of(event):
    """An event without its place in the list of one shard."""
    return str(replace(event, cursor=""))


def seen(delayq):
    """Everything that users see of a store."""
    entries = delayq.services.entries
    lines = [
        {name: value for name, value in line.items() if name not in OF_THE_MOMENT}
        for line in delayq.dump()
    ]
    left = ["handed over", "handed over under key", "cancelled", "skipped", "owed"]
    pauses = [replace(one, rate=one.rate and round(one.rate, 12)) for one in entries.pauses()]
    return {
        "dump": sorted(lines, key=lambda line: (line["kind"], line.get("id", ""))),
        "left": [replace(entries.departure(one), now_ms=0) for one in left],
        "counts": replace(entries.counts(), scanners=0, now_ms=0, scanner_ms=None),
        "history": sorted(map(facts_of, delayq.history(1000))),
        "changes": sorted(
            facts_of(event)
            for change in delayq.history(1000)
            if change.bulk
            for event in delayq.history(bulk=change.bulk)
        ),
        "pauses": sorted(map(str, pauses)),
        "tagged": sorted(one.id for one in delayq.select(tag="user:7")),
        "found": sorted((one.kind, one.id) for one in delayq.check()),
    }


def test_a_store_is_the_same_over_one_three_two_and_one_shard(filled, app, moved):
    before = seen(app(1))
    for delayq in moved(app(1), 3, 2, 1):
        after = seen(delayq)
        for name, told in before.items():
            assert after[name] == told, name


def test_a_shard_that_is_emptied_still_knows_how_long_to_remember(app, reshard, raw):
    delayq = app(1, delayq_remember=(60, 10_000))
    delayq.app.send_task("t", delayq_at=FAR)
    assert reshard(delayq, 3)
    assert raw.hmget(META, "remember", "seq") == [b"60000 10000", None]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown in one shard"])
def test_a_store_is_as_old_as_its_oldest_shard_was(app, moved, raw, is_known):
    delayq = app(2)
    for number in range(8):  # in both shards
        delayq.app.send_task("t", task_id=f"{number}", delayq_at=FAR)
    oldest, other = (Keys("delayq", number, 2)["meta"] for number in range(2))
    began_ms = int(raw.hget(oldest, "began")) - 60_000
    raw.hset(oldest, "began", began_ms)
    if not is_known:
        raw.hdel(other, "began")

    for new in moved(delayq, 3, 1):
        new.cancel("nobody")  # which joins each shard
        with contextlib.closing(new.services.steps_by_shard()[0]) as shard_steps:
            shard_steps.hand_over()
        counts = new.counts()
        assert counts.began_ms == (began_ms if is_known else None)
        assert emptied(counts.began_ms, counts.scanner_ms, counts.now_ms) is None


def test_tasks_are_found_and_change_by_key_and_by_any_id_afterwards(app, moved):
    """The ids are given, so they belong to other shards than their keys."""
    ids = [f"id-{number}" for number in range(12)]
    delayq = app(1)
    # They ran, and wait again: their tombstones must not hide them.
    for due in (LONG_AGO, FAR):
        for task_id in ids:
            delayq.app.send_task("t", task_id=task_id, delayq_at=due, delayq_key=f"of {task_id}")
        delayq.hand_over()
    for delayq in moved(app(1), 3, 2):
        later = FAR + len(delayq.services.scripts)
        for task_id in ids:
            assert delayq.get(task_id).id == delayq.get(key=f"of {task_id}").id == task_id
            assert delayq.reschedule(task_id, later)
            with pytest.raises(AlreadyScheduled):
                delayq.app.send_task("t", delayq_at=FAR, delayq_key=f"of {task_id}")
        assert [*delayq.check()] == []
    for task_id in ids[:6]:
        assert delayq.cancel(task_id)
        assert delayq.get(key=f"of {task_id}") is None
    for task_id in ids[6:]:
        assert delayq.cancel(key=f"of {task_id}")
        assert delayq.get(task_id) is None


def test_tasks_with_one_due_time_keep_their_order_and_each_its_own_number(app, reshard, raw):
    """Each of three shards numbers its tasks by itself; a page ends after any of them."""
    ids = [f"id-{number}" for number in range(20)]
    delayq = app(3)
    for task_id in ids:
        delayq.app.send_task("t", task_id=task_id, delayq_at=FAR)
    reshard(delayq, 1)
    listed = [one.id for one in app(1).tasks()]
    for shard in range(3):
        own = [one for one in ids if shard_of(one, 3) == shard]
        assert own == [one for one in listed if one in own]
    assert pages(app(1)) == listed
    # Newer ones come after them.
    app(1).app.send_task("t", task_id="new", delayq_at=FAR)
    assert pages(app(1)) == [*listed, "new"]
    assert raw.hget(META, "seq") == b"21"


def pages(delayq):
    """The ids of all tasks, listed one at a time."""
    found, cursor = [], None
    while page := [*islice(delayq.tasks(cursor=cursor), 1)]:
        found.append(page[0].id)
        cursor = page[0].cursor
    return found


def test_a_cursor_of_before_is_refused(app, moved):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    (task,) = delayq.tasks()
    for now in moved(delayq, 3, 1):
        now.app.send_task("t", delayq_at=FAR)
        with pytest.raises(InvalidOption, match="cursor"):
            list(now.tasks(cursor=task.cursor))


def test_a_worker_still_knows_the_first_copy_of_each_task(app, moved):
    app(1).app.send_task("t", task_id="far", delayq_at=FAR)
    deliveries = [(f"id-{number}", "1.1") for number in range(12)]

    def first(delayq, attempt):
        known = delayq.services.copies.first
        return {known(one, attempt, monotonic() + 60) for one in deliveries}

    assert first(app(1), 1) == {1}
    for delayq in moved(app(1), 3, 2):
        assert first(delayq, 2) == {1}


KEYS = [f"key-{number}" for number in range(12)]


@pytest.fixture
def holding(app):
    """A store of one shard with keys that delivered tasks hold."""
    delayq = app(1)
    asked = {"delayq_unique_until": "finished", "delayq_unique_for": 3600, "delayq_at": LONG_AGO}
    for key in KEYS:
        delayq.app.send_task("t", task_id=f"of {key}", delayq_key=key, **asked)
    delayq.hand_over()
    return delayq


def test_tasks_behind_a_held_key_stay_there(holding, moved):
    for key in KEYS:
        asked = {"delayq_key": key, "delayq_conflict": "replace", "delayq_at": LONG_AGO}
        holding.app.send_task("t", task_id=f"behind {key}", **asked)
    for delayq in moved(holding, 3, 2, 1):
        assert delayq.hand_over() == 0
        for key in KEYS:
            task = delayq.get(key=key)
            assert (task.id, task.behind) == (f"behind {key}", f"of {key}")
        assert [*delayq.check()] == []
    for key in KEYS:
        assert delayq.cancel(key=key)


def test_keys_stay_held_by_tasks_that_have_left(holding, moved):
    for delayq in moved(holding, 3, 2, 1):
        for key in KEYS:
            with pytest.raises(AlreadyScheduled, match=f"of {key}"):
                delayq.app.send_task("t", delayq_at=FAR, delayq_key=key)
        assert [*delayq.check()] == []


def test_rules_go_along_with_their_last_slots(app, moved):
    delayq = app(1)
    signature = delayq.app.signature("t")
    for number in range(6):
        delayq.every(f"r{number}", signature, 3600)
    delayq.every("keyed", signature.set(delayq_key="its key"), 3600)
    write(delayq)
    before = [(rule.name, rule.last, rule.revision) for rule in delayq.rules()]
    for delayq in moved(app(1), 3, 2):
        assert [(rule.name, rule.last, rule.revision) for rule in delayq.rules()] == before
        write(delayq)
        assert delayq.counts().scheduled == 7
    assert delayq.rule("keyed").pause()
    assert delayq.get(key="its key") is None
    again = delayq.every("r0", delayq.app.signature("t"), 3600)
    assert again.revision == {name: revision for name, _, revision in before}["r0"]


def test_the_format_that_records_may_have_goes_along_and_is_not_lowered(app, reshard, raw):
    delayq = app(1)
    delayq.cancel("nobody")  # joins
    raw.hset(META, "format", "2")

    assert reshard(delayq, 3)
    after = app(3)
    for number in range(30):
        after.cancel(f"nobody {number}")  # joins each shard

    kept = [raw.hget(Keys("delayq", shard, 3)["meta"], "format") for shard in range(3)]
    assert kept == [b"2"] * 3


def test_the_broker_goes_along_and_not_an_earlier_one(app, reshard, redis_server, redis_url):
    def of(database, shards):
        return app(shards, broker_url=redis_server.url(database), delayq_url=redis_url)

    def join_each_shard(delayq):
        for number in range(30):
            delayq.cancel(f"nobody {number}")

    first, second = of(1, 1), of(2, 1)
    first.app.send_task("t", task_id="a", delayq_at=FAR)
    assert reshard(first, 3)
    join_each_shard(of(1, 3))
    assert reshard(of(1, 3), 1)
    assert first.cancel("a")
    second.app.send_task("t", task_id="b", delayq_at=FAR)  # now the store has this one's broker

    assert reshard(second, 3)

    with pytest.raises(StoreDiffers, match="broker"):
        of(1, 3).cancel("b")
    join_each_shard(of(2, 3))

"""A store that lost its last number skips no task and keeps the order; a bad one is repaired."""

import json

import pytest

from celery_delayq.errors import StoreError
from tests.app.support import FAR
from tests.support.shards import with_one_shard

pytestmark = with_one_shard  # of several, each has its own order

OLD = [f"old{number}" for number in range(9)]
NEW = ["new0", "new1"]


@pytest.fixture
def lost(app, redis):
    """The app, nine tasks, and no `meta`."""
    put(app, OLD)
    redis.delete(*redis.keys("*:meta"))
    return app


def put(app, names):
    for name in names:
        app.send_task("t", task_id=name, delayq_at=FAR, delayq_tags=["one"])


def selections(app):
    chosen = ({"all": True}, {"tag": "one"}, {"state": "scheduled"})
    return [app.delayq.select(**one) for one in chosen]


def dumped(app):
    return [line["id"] for line in app.delayq.dump() if line["kind"] == "task"]


def test_nothing_is_missed_before_the_next_one_comes(lost):
    assert dumped(lost) == OLD
    for selection in selections(lost):
        assert [one.id for one in selection] == OLD
        assert selection.count() == len(OLD)


def load(app):
    first, line, *_, last = app.delayq.dump()
    lines = [first, *({**line, "id": name} for name in NEW), {**last, "tasks": len(NEW)}]
    assert app.delayq.load(json.dumps(one) for one in lines).loaded == len(NEW)


@pytest.mark.parametrize("add", [lambda app: put(app, NEW), load])
def test_a_new_task_stands_behind_the_existing_ones(lost, add):
    add(lost)

    assert dumped(lost) == OLD + NEW
    for selection in selections(lost):
        assert [one.id for one in selection] == OLD + NEW
    assert not [*lost.delayq.check()]
    assert lost.delayq.select(tag="one").cancel() == len(OLD + NEW)


def test_a_selection_that_began_before_goes_on_and_takes_in_nothing_new(lost):
    for begun in selections(lost):
        put(lost, NEW)
        assert [one.id for one in begun] == OLD
        lost.delayq.cancel(NEW[0])
        lost.delayq.cancel(NEW[1])


def test_a_cursor_of_it_is_good_later(lost):
    begun = lost.delayq.select(tag="one")
    walk = iter(begun)
    met = [next(walk).id for _ in range(4)]
    put(lost, NEW)

    rest = lost.delayq.select(tag="one", cursor=begun.cursor)

    assert met + [one.id for one in rest] == OLD


@pytest.mark.parametrize("spoilt", ["1", "0", "zzz", "", "1.5", "-1", "007", "inf", str(2**47)])
def test_a_spoilt_number_is_found_and_goes_on_above_all_used_ones(app, redis, spoilt):
    put(app, OLD)
    [meta] = redis.keys("*:meta")
    redis.hset(meta, "seq", spoilt)

    [finding] = app.delayq.check()
    repaired = app.delayq.repair(finding)

    assert (finding.kind, finding.id, repaired.what) == ("number_too_low", "seq", "done")
    assert not [*app.delayq.check()]
    put(app, NEW)
    assert dumped(app) == OLD + NEW
    for selection in selections(app):
        assert [one.id for one in selection] == OLD + NEW


def test_a_spoilt_number_is_found_in_an_empty_store_too(app, redis):
    put(app, OLD)
    app.delayq.select(all=True).cancel()
    [meta] = redis.keys("*:meta")
    redis.hset(meta, "seq", "zzz")
    with pytest.raises(StoreError, match="not an integer"):
        put(app, NEW)

    for finding in app.delayq.check():
        app.delayq.repair(finding)

    put(app, NEW)
    assert dumped(app) == NEW


def test_a_number_that_is_raised_meanwhile_is_left(app, redis):
    put(app, OLD)
    [meta] = redis.keys("*:meta")
    redis.hset(meta, "seq", 1)
    [finding] = app.delayq.check()
    redis.hset(meta, "seq", 10)

    assert app.delayq.repair(finding).what == "gone"
    assert redis.hget(meta, "seq") == b"10"


def spoil_number(redis, task_id, number):
    [records] = redis.keys("*:records")
    record = redis.hget(records, task_id)
    member = redis.zrange(redis.keys("*:due")[0], 0, 0)[0]
    redis.hset(records, task_id, record.replace(member[:6], number, 1))


def test_numbers_do_not_go_on_above_one_at_their_end(app, redis):
    put(app, OLD[:1])
    spoil_number(redis, OLD[0], b"\xff" * 6)

    for _ in range(2):
        for finding in [*app.delayq.check()]:
            assert finding.kind != "number_too_low"
            app.delayq.repair(finding)

    put(app, NEW)
    put(app, ["last"])
    assert [one for one in dumped(app) if one != OLD[0]] == [*NEW, "last"]


def test_a_new_task_stands_behind_a_repaired_record_with_a_spoilt_number(app, redis):
    put(app, OLD[:1])
    spoil_number(redis, OLD[0], b"\x7f" * 6)

    for _ in range(2):
        for finding in [*app.delayq.check()]:
            app.delayq.repair(finding)

    assert not [*app.delayq.check()]
    put(app, NEW)
    assert dumped(app) == [OLD[0], *NEW]

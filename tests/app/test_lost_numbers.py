"""A store that lost its last number skips no task and keeps the order; a bad one is repaired."""

import json

import pytest

from celery_delayq.errors import StoreError
from tests.app.support import FAR
from tests.support.shards import with_one_shard

pytestmark = with_one_shard  # of several, each has its own order

OLD = [f"old{number}" for number in range(9)]
NEW = ["new0", "new1"]
AT_THEIR_END = b"\xff" * 6  # the greatest number that a record can have


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


def is_in_order(app, names):
    """Whether a dump and each selection have these tasks, in this order."""
    assert dumped(app) == names
    for selection in selections(app):
        assert [one.id for one in selection] == names
        assert selection.count() == len(names)
    return True


def repair_all(app):
    """Returns what was found."""
    found = [*app.delayq.check()]
    for finding in found:
        app.delayq.repair(finding)
    return [finding.kind for finding in found]


def dumped(app):
    return [line["id"] for line in app.delayq.dump() if line["kind"] == "task"]


def load(app):
    first, line, *_, last = app.delayq.dump()
    lines = [first, *({**line, "id": name} for name in NEW), {**last, "tasks": len(NEW)}]
    assert app.delayq.load(json.dumps(one) for one in lines).loaded == len(NEW)


@pytest.mark.parametrize("add", [lambda app: put(app, NEW), load], ids=["scheduled", "loaded"])
def test_nothing_is_missed_and_a_new_task_stands_behind_the_existing_ones(lost, add):
    assert is_in_order(lost, OLD)

    add(lost)

    assert is_in_order(lost, OLD + NEW)
    assert not [*lost.delayq.check()]
    assert lost.delayq.select(tag="one").cancel() == len(OLD + NEW)


def test_a_selection_that_began_before_goes_on_and_takes_in_nothing_new(lost):
    for begun in selections(lost):
        put(lost, NEW)
        assert [one.id for one in begun] == OLD
        lost.delayq.cancel(NEW[0])
        lost.delayq.cancel(NEW[1])


def test_a_cursor_from_before_a_loss_is_good_later(lost):
    begun = lost.delayq.select(tag="one")
    walk = iter(begun)
    met = [next(walk).id for _ in range(4)]
    put(lost, NEW)

    rest = lost.delayq.select(tag="one", cursor=begun.cursor)

    assert met + [one.id for one in rest] == OLD


@pytest.mark.parametrize("spoilt", ["1", "0", "zzz", "", "1.5", "-1", "007", "inf", str(2**47)])
def test_a_spoilt_number_is_found_and_goes_on_above_all_used_ones(app, redis, spoilt):
    put(app, OLD)
    redis.hset("{delayq:0}:meta", "seq", spoilt)

    [finding] = app.delayq.check()
    repaired = app.delayq.repair(finding)

    assert (finding.kind, finding.id, repaired.what) == ("number_too_low", "seq", "done")
    assert not [*app.delayq.check()]
    put(app, NEW)
    assert is_in_order(app, OLD + NEW)


def test_a_spoilt_number_is_found_in_an_empty_store_too(app, redis):
    put(app, OLD)
    app.delayq.select(all=True).cancel()
    redis.hset("{delayq:0}:meta", "seq", "zzz")
    with pytest.raises(StoreError, match="not an integer"):
        put(app, NEW)

    for finding in app.delayq.check():
        app.delayq.repair(finding)

    put(app, NEW)
    assert dumped(app) == NEW


def spoil_number(redis, number):
    """Give the only task's record another number."""
    [(task_id, record)] = redis.hgetall("{delayq:0}:records").items()
    [member] = redis.zrange("{delayq:0}:due", 0, 0)
    redis.hset("{delayq:0}:records", task_id, record.replace(member[:6], number, 1))


@pytest.mark.parametrize("number", [AT_THEIR_END, b"\x7f" * 6], ids=["at their end", "too high"])
def test_new_tasks_stand_behind_a_repaired_record_with_a_spoilt_number(app, redis, number):
    put(app, OLD[:1])
    spoil_number(redis, number)

    found = repair_all(app) + repair_all(app)

    # They do not go on above one at their end.
    assert ("number_too_low" in found) == (number != AT_THEIR_END)

    put(app, NEW)
    put(app, ["last"])
    others = [one for one in dumped(app) if one != OLD[0]]
    assert others == [*NEW, "last"]
    assert number == AT_THEIR_END or (dumped(app)[0], [*app.delayq.check()]) == (OLD[0], [])

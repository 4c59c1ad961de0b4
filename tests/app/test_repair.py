"""`delayq.repair(finding)` mends a finding of `check`, in each shard, and notifies scanners."""

from dataclasses import replace

import pytest

from celery_delayq import State
from celery_delayq.errors import InvalidOption
from celery_delayq.signals import task_dead
from tests.app.support import FAR


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url)


def test_a_finding_is_repaired(app, redis):
    app.send_task("t", task_id="a", delayq_at=FAR)
    redis.delete("{delayq:0}:due")
    [finding] = app.delayq.check()
    assert (finding.kind, finding.id) == ("record_without_place", "a")
    assert finding.repair.startswith("it waits again")

    repaired = app.delayq.repair(finding)

    assert (bool(repaired), repaired.what, repaired.finding) == (True, "back", finding)
    assert list(app.delayq.check()) == []
    assert app.delayq.state("a") is State.SCHEDULED
    assert app.delayq.repair(finding).what == "gone"


def test_a_finding_without_a_repair_is_left_alone(app, redis):
    app.send_task("t", task_id="a", delayq_at=FAR)
    redis.hset("{delayq:0}:records", "a", "2?")
    [finding] = app.delayq.check()
    repaired = app.delayq.repair(finding)
    assert (bool(repaired), repaired.what, finding.repair) == (False, "left", "")


def test_a_repair_that_makes_a_task_dead_sends_task_dead(app, redis):
    heard = []
    task_dead.connect(lambda task_id, reason, **_: heard.append((task_id, reason)), weak=False)
    app.send_task("t", task_id="a", delayq_at=FAR)
    redis.hset("{delayq:0}:errors", "a", "NO_ROUTE")
    redis.delete("{delayq:0}:due")

    (repaired,) = map(app.delayq.repair, app.delayq.check())

    assert (repaired.what, repaired.reason) == ("dead", "NO_ROUTE")
    assert heard == [("a", "NO_ROUTE")]


def test_each_shard_is_mended(delayq_app, url, redis):
    app = delayq_app(url, delayq_shards=3)
    ids = [f"a{number}" for number in range(12)]
    for task_id in ids:
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    redis.delete(*redis.keys("*:due"))
    found = list(app.delayq.check())
    assert {one.shard for one in found} == {0, 1, 2}
    assert {app.delayq.repair(one).what for one in found} == {"back"}
    assert sorted(one.id for one in app.delayq.tasks()) == sorted(ids)
    with pytest.raises(InvalidOption):
        app.delayq.repair(replace(found[0], shard=3))


def test_a_value_that_is_no_finding_is_refused(app):
    with pytest.raises(InvalidOption, match=r"^finding is 'a'; expected one that check gave$"):
        app.delayq.repair("a")

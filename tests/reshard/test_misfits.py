"""Stores that cannot be resharded, or need not be."""

import contextlib

import pytest

from celery_delayq.core.store.delivery import ScannerSteps
from celery_delayq.core.store.keys import Keys
from celery_delayq.errors import StoreError
from tests.app.support import FAR, LONG_AGO
from tests.format.filling import app_of
from tests.format.keys import read, write
from tests.reshard.conftest import META


def test_a_task_that_waits_in_two_shards_is_named(app, reshard, raw, opened):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    reshard(delayq, 2)
    one, other = Keys("delayq", 0, 2), Keys("delayq", 1, 2)
    if not raw.exists(one["records"]):
        one, other = other, one
    write(raw, {other[name]: read(raw)[one[name]] for name in ("records", "due")})
    with pytest.raises(StoreError, match="the task far waits in two shards"):
        reshard(delayq, 1)
    assert opened(delayq).abort()


def test_a_task_without_a_place_ends_it_before_the_number_changes(app, reshard, raw, opened):
    delayq = app(1)
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    raw.delete(Keys("delayq")["due"])
    with pytest.raises(StoreError, match="lost their place; run: reshard --abort, and then: check"):
        reshard(delayq, 3)
    assert opened(delayq).abort()
    assert delayq.get("far") is None or delayq.counts()


def test_without_memory_for_a_copy_nothing_begins(start_redis, opened):
    server = start_redis("--maxmemory-policy", "noeviction")
    with contextlib.closing(app_of(server.url())) as delayq, server.client() as raw:
        delayq.schedule_many(
            delayq.app.signature("t"), [((n,), {}, FAR, f"id-{n}") for n in range(2000)]
        )
        raw.config_set("maxmemory", raw.info("memory")["used_memory"] + 100_000)
        before = raw.hgetall(META)
        estimate = opened(delayq).estimate(3)
        with pytest.raises(StoreError, match=r"Redis lacks [\d,]+ bytes of memory"):
            opened(delayq).run(3)
        assert estimate.entries == 2000
        assert estimate.bytes > 500_000 > estimate.lacks > 0 or estimate.lacks > 0
        assert raw.hgetall(META) == before


def test_tombstones_add_to_the_estimate_of_time_and_memory(app, raw, opened):
    delayq = app(1)
    delayq.app.send_task("t", delayq_at=FAR)
    delayq.cancel(next(delayq.tasks()))
    before = opened(delayq).estimate(3)
    raw.hset(Keys("delayq")["tombstones_old"], mapping={f"left {n}": "h1" for n in range(999)})
    after = opened(delayq).estimate(3)
    assert (before.bytes, after.bytes) == (120, 120_000)
    assert after.seconds - before.seconds == pytest.approx(0.00999)


def test_a_store_that_has_the_number_or_is_not_used_yet_stays_as_it_is(app, reshard, opened):
    delayq = app(1)
    one = opened(delayq)
    assert one.shards() is None
    assert not one.run(3)
    assert not one.abort()
    delayq.app.send_task("t", task_id="far", delayq_at=FAR)
    assert not reshard(delayq, 1)


@pytest.mark.parametrize("second", ["leased", "dead", "relay", "parked"])
def test_a_task_that_a_stopped_script_left_in_two_places_is_copied_once(app, reshard, raw, second):
    delayq, keys = app(1), Keys("delayq")
    due = LONG_AGO if second == "parked" else FAR
    delayq.app.send_task("t", task_id="a", delayq_at=due)
    (member,) = raw.zrange(keys["due"], 0, 0)
    if second == "parked":
        delayq.pause(queue="celery")
        ScannerSteps(delayq.services.scripts[0], delayq.services.membership).hand_over()
        raw.zadd(keys["due"], {member: 1})
    else:
        raw.zadd(keys[second], {member: 1})
        assert [one.kind for one in delayq.check()] == ["second_place"]
    assert reshard(delayq, 3)
    assert app(3).get("a").due.timestamp() == due
    assert not list(app(3).check())

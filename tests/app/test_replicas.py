"""``delayq_wait_replicas``: scheduling waits for replicas, and says how many have the task."""

import contextlib
import copy
import json
import logging
import time
from datetime import timedelta

import pytest
from celery import group
from celery.exceptions import Ignore

from celery_delayq import Defer, Item, signals
from celery_delayq.core import clock
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store.calls import GRACE, TOLD_EVERY
from celery_delayq.operations.bulk import SLICE
from tests.app.support import FAR, LONG_AGO, only_message
from tests.app.test_adoption import EtaConsumer
from tests.app.test_defer import run
from tests.lab.faults.proxy import Proxy
from tests.support.network import QUICK, ReplySwallower
from tests.support.redis_programs import version_of
from tests.support.replicas import replicated
from tests.support.shards import SHARDS
from tests.support.waiting import PATIENCE, eventually

LATER = 3600
SOON = 1.0  # seconds, for calls that the replicas will not have
LONG = 2.0 * PATIENCE  # for calls that they will have
WAITAOF = (7, 2)  # the version of Redis that has it first

UNREPLICATED = (
    "1 tasks are scheduled, but not known to be on as many replicas as delayq_wait_replicas "
    "requires: "
)


def add(_x):
    """Only the name counts."""


@pytest.fixture(scope="module")
def pair():
    """A master, and a replica that is always in sync."""
    with replicated() as made:
        yield made


@pytest.fixture(scope="module")
def alone():
    """A master that should have replicas, but has none."""
    with replicated(0) as made:
        yield made


@pytest.fixture
def app_on(delayq_app):
    """Make an app whose store is on a port: ``app_on(server.port, 1, SOON)``."""

    def make(port, *wait, **conf):
        app = delayq_app(
            f"redis://127.0.0.1:{port}/0",
            delayq_wait_replicas=wait or None,
            task_publish_retry_policy=QUICK,
            **conf,
        )
        app.fell_short = []
        app.delayq.services.hooks.add(Hooks(unreplicated=app.fell_short.append))
        app.task(name="add", shared=False)(add)
        return app

    return make


@pytest.fixture
def waiting(app_on, pair):
    """An app that waits for the replica of ``pair``."""
    pair.client.flushall()
    return app_on(pair.master.port, 1, LONG)


def warnings_of(caplog):
    told = [one for one in caplog.records if one.name == "celery_delayq.core.store.calls"]
    assert all(one.levelno == logging.WARNING for one in told)
    return [one.getMessage() for one in told]


def is_scheduled(app, task_id):
    """Whether the store has it, read by a link that neither drops nor delays answers."""
    return app.delayq.get(task_id) is not None


# Calls that wait.


def test_a_result_says_how_many_replicas_have_its_task(waiting, pair, caplog):
    result = waiting.tasks["add"].delay_for(LATER, 1)
    assert result.replicas == 1
    # This is certain: the replica has it at this moment.
    assert pair.replicas[0].client().exists(*pair.client.keys("*records")) == 1
    assert (warnings_of(caplog), waiting.fell_short) == ([], [])


WAYS = {
    "delay_for": lambda add: add.delay_for(LATER, 1),
    "delay_until": lambda add: add.delay_until(FAR, 1),
    "schedule": lambda add: add.app.delayq.schedule(add.s(1), after=LATER),
    "a canvas": lambda add: add.app.delayq.schedule(group(add.s(1), add.s(2)), after=LATER),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_scheduling_tells_it_after_one_wait(waiting, pair, way):
    before = pair.waits()
    assert WAYS[way](waiting.tasks["add"]).replicas == 1
    assert pair.waits() - before == 1


def put_off(app):
    @app.task(name="later", shared=False, ignore_result=True)
    def later(_x):
        raise Defer(after=LATER)

    with pytest.raises(Ignore):
        run(later)


def adopt(app):
    app.conf.delayq_adopt_after = 60
    eta = clock.utc_now() + timedelta(days=1)
    app.send_task("t", eta=eta, task_id="a")
    consumer = EtaConsumer(app)
    consumer.receive()
    eventually(lambda: [call() for call in consumer.soon] and consumer.acked == ["a"])
    consumer.step.stop(consumer)


def capture(app):
    app.conf.delayq_capture_eta = True
    app.send_task("t", countdown=LATER)


QUIET = {
    "an option": lambda app: app.send_task("t", delayq_after=LATER),
    "a captured eta": capture,
    "a task that puts itself off": put_off,
    "a message that is adopted": adopt,
}


@pytest.mark.parametrize("way", QUIET)
def test_a_call_without_a_scheduled_result_waits_for_replicas_too(waiting, pair, way):
    before = pair.waits()
    QUIET[way](waiting)
    assert (pair.waits() - before, waiting.delayq.counts().scheduled) == (1, 1)


@pytest.mark.parametrize("conflict", ["keep", "replace"])
def test_a_call_waits_for_replicas_of_what_stays_or_is_replaced_under_a_key(waiting, conflict):
    add, key = waiting.tasks["add"], {"key": "k", "conflict": conflict}
    waiting.delayq.schedule(add.s(1), after=LATER, **key)
    second = waiting.delayq.schedule(add.s(2), after=LATER, **key)
    assert (second.replicas, second.existed) == (1, conflict == "keep")


def test_tasks_that_were_there_before_are_not_counted(app_on, alone):
    alone.client.flushall()
    app = app_on(alone.master.port, 1, 0.01)
    items = [Item((number,), {}, key=f"{number % 2}") for number in range(5)]
    signature = app.tasks["add"].s().set(delayq_conflict="keep")
    bulk = app.delayq.schedule_many(signature, items, after=LATER)
    assert (len(bulk.existed), bulk.replicas, app.fell_short) == (3, 0, [2])


def test_a_bulk_waits_once_for_each_slice(waiting, pair):
    before = pair.waits()
    bulk = waiting.delayq.schedule_many(
        waiting.tasks["add"], [((n,), {}) for n in range(SLICE + 1)], after=LATER
    )
    assert (bulk.replicas, bulk.scheduled) == (1, SLICE + 1)
    assert pair.waits() - before == (2 if SHARDS == 1 else SHARDS + 1)


def test_receivers_are_told_after_the_wait_and_may_fail(waiting, pair):
    """Otherwise their time counts too, until Redis has forgotten the call."""
    before, waits = pair.waits(), []

    def receiver(**_):
        waits.append(pair.waits() - before)
        raise ValueError

    signals.task_scheduled.connect(receiver, sender=waiting, weak=False)
    add = waiting.tasks["add"]
    assert add.delay_for(LATER, 1).replicas == 1
    items = [((n,), {}) for n in range(SLICE + 1)]
    assert waiting.delayq.schedule_many(add, items, after=LATER).replicas == 1
    of_first = 1 + SHARDS
    assert waits == [1, *[of_first] * SLICE, of_first + 1]


@pytest.mark.parametrize(("later", "state"), [(0, "REVOKED"), (3600, "FAILURE")])
def test_a_replaced_task_is_revoked_after_the_wait_unless_the_call_s_time_is_over(
    app_on, alone, monkeypatch, later, state
):
    """After the time of the call a scanner stores it; then another task may have the id."""
    alone.client.flushall()
    options = {"result_backend": "cache+memory://", "delayq_timeout": 60}
    app = app_on(alone.master.port, 1, 0.01, **options)
    add, now = app.tasks["add"].s(1), clock.monotonic
    old = app.delayq.schedule(add, after=LATER, key="k")

    def fail(_):
        app.backend.mark_as_failure(old.id, KeyError())
        # The wait was as long as this.
        monkeypatch.setattr(clock, "monotonic", lambda: now() + later)

    app.delayq.services.hooks.add(Hooks(unreplicated=fail))
    app.delayq.schedule(add, after=LATER, key="k", conflict="replace")
    assert app.AsyncResult(old.id).state == state


def test_a_bulk_says_what_the_slice_reached_that_reached_least(app_on, caplog):
    with replicated(2) as group_of_two, contextlib.ExitStack() as stands_still:
        app = app_on(group_of_two.master.port, 2, LONG)
        paused = group_of_two.replicas[0]

        def after_a_slice(bulk):
            if len(bulk.ids) == SLICE:
                paused.pause()
                stands_still.callback(paused.resume)
                stands_still.enter_context(group_of_two.ending_waits(1))
            else:
                stands_still.close()

        bulk = app.delayq.schedule_many(
            app.tasks["add"],
            [((n,), {}) for n in range(2 * SLICE + 3)],
            after=LATER,
            progress=after_a_slice,
        )
    assert (bulk.replicas, sum(app.fell_short), bool(bulk)) == (1, SLICE, True)
    assert warnings_of(caplog)[0].endswith(f": 1 of 2 replicas had them within {LONG:g} s")


def test_no_call_waits_unless_the_setting_says_so(app_on, pair):
    app = app_on(pair.master.port)
    before = pair.waits()
    result = app.tasks["add"].delay_for(LATER, 1)
    bulk = app.delayq.schedule_many(app.tasks["add"], [((1,), {})], after=LATER)
    assert (result.replicas, bulk.replicas, pair.waits()) == (None, None, before)
    app.conf.delayq_wait_replicas = [1, LONG]
    assert app.tasks["add"].delay_for(LATER, 1).replicas == 1


def test_a_call_that_schedules_nothing_does_not_wait(waiting, pair):
    before = pair.waits()
    add = waiting.tasks["add"]
    add.apply_async((1,), task_id="a", delayq_after=LATER)
    bulk = waiting.delayq.schedule_many(add, [Item((1,), {}, task_id="a")], after=LATER)
    with pytest.raises(ValueError, match="already scheduled"):
        add.apply_async((1,), task_id="a", delayq_after=LATER)
    assert (pair.waits() - before, bulk.replicas) == (1, None)


def test_other_changes_do_not_wait(waiting, pair):
    result = waiting.tasks["add"].delay_for(LATER, 1)
    before = pair.waits()
    assert result.reschedule(after=60)
    assert result.edit(args=(2,))
    assert result.cancel()
    assert pair.waits() == before


def test_a_result_made_anew_does_not_know_it_and_a_copy_does(waiting):
    result = waiting.tasks["add"].delay_for(LATER, 1)
    assert copy.copy(result).replicas == 1
    assert waiting.delayq.result(result.id).replicas is None


def test_a_task_that_runs_eagerly_does_not_wait(waiting, pair):
    waiting.conf.task_always_eager = True
    before = pair.waits()
    add = waiting.tasks["add"]
    assert add.delay_for(LATER, 1).replicas is None
    assert waiting.delayq.schedule(group(add.s(1)), after=LATER).replicas is None
    assert pair.waits() == before


# Replicas that are not reached.


@pytest.mark.parametrize("stands_still", [True, False])
def test_the_number_of_replicas_is_true_of_a_call_whose_first_answer_was_lost(
    app_on, each_redis, stands_still
):
    """Its connection has written nothing by then, so WAIT alone would report success."""
    with (
        replicated(binary=each_redis.binary) as pair,
        ReplySwallower(pair.master.port, b"the-id") as swallower,
    ):
        app = app_on(swallower.port, 1, LONG)
        warm = app.tasks["add"].delay_for(LATER, 1)
        assert warm.replicas == 1
        if stands_still:
            pair.replicas[0].pause()
            app.conf.delayq_wait_replicas = (1, SOON)
        add = app.tasks["add"]
        result = add.s(1).set(task_id="the-id").delay_for(LATER)
        pair.replicas[0].resume()
    assert swallower.swallowed == 1
    assert result.replicas == (0 if stands_still else 1)


def test_warnings_are_rare_and_say_how_many_tasks_it_was(app_on, alone, caplog, monkeypatch):
    app = app_on(alone.master.port, 1, 0.01)
    add = app.tasks["add"]
    for _ in range(3):
        assert add.delay_for(LATER, 1).replicas == 0
    assert warnings_of(caplog) == [f"{UNREPLICATED}0 of 1 replicas had them within 0.01 s"]
    assert app.fell_short == [1, 1, 1]
    real = time.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: real() + TOLD_EVERY)
    assert add.delay_for(LATER, 1).replicas == 0
    assert warnings_of(caplog)[1:] == [
        UNREPLICATED.replace("1", "3", 1) + "0 of 1 replicas had them within 0.01 s"
    ]


# Failures: the task is scheduled all the same.


def test_a_link_that_breaks_during_the_wait_is_told_and_the_next_call_is_well(app_on, pair, caplog):
    pair.client.flushall()
    with Proxy(pair.master.port) as link:
        link.accept()
        app = app_on(link.port, 1, LONG)
        assert app.tasks["add"].delay_for(LATER, 1).replicas == 1
        link.cut_after = b"$4\r\nWAIT\r\n"
        result = app.tasks["add"].delay_for(LATER, 1)
        assert (link.cuts, result.replicas, app.fell_short) == (1, 0, [1])
        assert is_scheduled(app, result.id)
        assert [one.startswith(UNREPLICATED) for one in warnings_of(caplog)] == [True]
        assert app.tasks["add"].delay_for(LATER, 1).replicas == 1


def test_a_master_that_stops_answering_during_the_wait_is_given_up(app_on, pair):
    with Proxy(pair.master.port) as link:
        link.accept()
        app = app_on(link.port, 1, SOON)
        app.tasks["add"].delay_for(LATER, 1)
        link.delay(b"$4\r\nWAIT\r\n", 1, 60)
        began = time.monotonic()
        result = app.tasks["add"].delay_for(LATER, 1)
        took = time.monotonic() - began
        link.delay(b"", 0, 0)
    assert result.replicas == 0
    assert SOON + GRACE <= took < PATIENCE


def test_a_user_who_may_not_wait_is_told_once(app_on, each_redis, caplog, monkeypatch):
    client = each_redis.client()
    client.execute_command("ACL", "SETUSER", "default", "-wait")
    try:
        app = app_on(each_redis.port, 1, LONG)
        results = [app.tasks["add"].delay_for(LATER, 1) for _ in range(2)]
        real = time.monotonic
        monkeypatch.setattr(clock, "monotonic", lambda: real() + TOLD_EVERY)
        results.append(app.tasks["add"].delay_for(LATER, 1))
        found = [is_scheduled(app, one.id) for one in results]
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+wait")
    assert ([one.replicas for one in results], found) == ([0] * 3, [True] * 3)
    (told,) = warnings_of(caplog)
    assert told.startswith(f"{UNREPLICATED}Redis refused WAIT: ")
    assert "permissions" in told
    assert app.fell_short == [1, 1, 1]


# The append-only files.

KEEPS = ("--appendonly", "yes", "--appendfsync", "everysec")


def test_with_aof_it_waits_for_the_disks(app_on, each_redis, caplog):
    with replicated(1, *KEEPS, binary=each_redis.binary) as pair:
        app = app_on(pair.master.port, 1, LONG, "aof")
        result = app.tasks["add"].delay_for(LATER, 1)
        synced = pair.client.info("persistence").get("aof_last_write_status")
        assert (is_scheduled(app, result.id), synced) == (True, "ok")
    if version_of(each_redis.binary) >= WAITAOF:
        assert (result.replicas, warnings_of(caplog)) == (1, [])
    else:
        assert result.replicas == 0
        (told,) = warnings_of(caplog)
        assert told.startswith(f"{UNREPLICATED}Redis refused WAITAOF: unknown command")


def test_with_aof_a_replica_that_keeps_nothing_on_disk_does_not_count(app_on, each_redis, caplog):
    needs_waitaof(each_redis)
    always = ("--appendonly", "yes", "--appendfsync", "always")
    with replicated(1, *always, binary=each_redis.binary) as pair:
        app = app_on(pair.master.port, 1, LONG, "aof")
        assert app.tasks["add"].delay_for(LATER, 1).replicas == 1
        pair.replicas[0].client().config_set("appendonly", "no")
        with pair.ending_waits(1):
            assert app.tasks["add"].delay_for(LATER, 1).replicas == 0
    assert warnings_of(caplog) == [f"{UNREPLICATED}0 of 1 replicas had them within {LONG:g} s"]


def test_with_aof_a_task_that_is_not_on_the_master_s_own_disk_does_not_count(
    app_on, each_redis, caplog
):
    needs_waitaof(each_redis)
    with replicated(1, *KEEPS, binary=each_redis.binary) as pair:
        # It writes nothing to its disk any more, but the replica goes on.
        pair.client.config_set("appendfsync", "no")
        app = app_on(pair.master.port, 1, SOON, "aof")
        assert app.tasks["add"].delay_for(LATER, 1).replicas == 0
    (told,) = warnings_of(caplog)
    assert told == f"{UNREPLICATED}not even Redis's own file had them within 1 s"


def needs_waitaof(server):
    if version_of(server.binary) < WAITAOF:
        pytest.skip("there is no WAITAOF; see the test before")


# The purpose.


def test_a_failover_loses_what_replication_had_not_carried_and_only_that(app_on):
    """A task scheduled then is gone; one delivered then is delivered again, without a mark."""
    with replicated(0) as master, Proxy(master.master.port) as link, replicated(0) as replica:
        link.accept()
        replica.client.replicaof("127.0.0.1", link.port)
        master.replicas.append(replica.master)
        eventually(master.in_step)
        app = app_on(master.master.port, 1, LONG)
        due = app.send_task("add", task_id="due", delayq_at=LONG_AGO)
        carried = app.tasks["add"].delay_for(LATER, 1)
        assert carried.replicas == 1
        link.stall()
        app.conf.delayq_wait_replicas = (1, 0.01)
        lost = app.tasks["add"].delay_for(LATER, 1)
        assert lost.replicas == 0
        assert app.delayq.hand_over() == 1
        master.master.kill()
        link.refuse()
        replica.client.replicaof("NO", "ONE")

        after = app_on(replica.master.port)
        assert is_scheduled(after, carried.id)
        assert not is_scheduled(after, lost.id)
        assert after.delayq.hand_over() == 1
        _, message = only_message(replica.client)
    assert json.loads(message)["headers"]["id"] == due.id
    assert "delayq_redelivered" not in json.loads(message)["headers"]

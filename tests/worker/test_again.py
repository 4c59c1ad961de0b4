"""Tasks that run again: by Celery's retry, by `Defer`, and by what they schedule."""

import itertools
import signal
from datetime import datetime, timedelta, timezone

import pytest
from celery import chain, chord
from celery.utils import uuid

from tests.support.waiting import PATIENCE, eventually
from tests.worker.conftest import each_of
from tests.worker.project import TASKS
from tests.worker.putting_off import LONG, TOLD
from tests.worker.test_start import HAS_SOFT_SHUTDOWN

pytestmark = pytest.mark.libraries


project = each_of("crew", "capturing", "rabbit")
captured = each_of("capturing", "rabbit")


def test_a_retry_runs_once_per_attempt_and_not_early(project):
    result = project.tasks["persist"].delay_for(0.1, 2, 0.3)
    runs = project.wait_runs(result, 3)
    assert [run["retries"] for run in runs] == [0, 1, 2]
    assert all(b["at"] - a["at"] >= 0.3 for a, b in itertools.pairwise(runs))
    assert result.get(timeout=30) == 2
    assert len(project.runs(result)) == 3


def test_a_captured_retry_has_a_due_time_and_an_attempt_of_its_own(captured):
    result = captured.tasks["persist"].delay_for(0.1, 1, 0.3)
    first, second = captured.wait_runs(result, 2)
    assert first["due"] == pytest.approx(result.due.timestamp(), abs=0.0001)
    assert 0.25 < second["due"] - first["at"] < 60
    assert datetime.fromisoformat(second["eta"]).timestamp() == second["due"]
    assert {run["attempt"] or 1 for run in (first, second)} == {1}
    assert {run["redelivered"] for run in (first, second)} == {None}


# Inside tasks.


def ids(count):
    return [uuid() for _ in range(count)]


@pytest.mark.parametrize("delay", [0, 0.2])
def test_a_task_schedules_itself_again_under_its_own_id(project, delay):
    result = project.tasks["again"].delay_for(0, 3, delay)
    runs = project.wait_runs(result, 4)
    assert [run["left"] for run in runs] == [3, 2, 1, 0]
    assert all(run["at"] >= run["due"] for run in runs)
    assert all(b["due"] - a["due"] >= delay for a, b in itertools.pairwise(runs))
    assert len(project.runs(result)) == 4


def test_children_that_come_and_go_schedule_safely(make_project, start_worker):
    project = make_project()
    worker = start_worker(
        TASKS, "-P", "prefork", "-c", "2", "--max-tasks-per-child", "1", env=project.env
    )
    wanted = [ids(2), ids(2)]
    spawned = [project.tasks["spawn"].delay_for(0, some, 0.1) for some in wanted]
    noted = [run for some in wanted for one in some for run in project.wait_runs(one)]
    children = {run["pid"] for run in noted} | {
        run["pid"] for one in spawned for run in project.runs(one)
    }
    assert len(noted) == 4
    assert len(children) == 6, "each child was a new process"
    assert worker.pid not in children
    eventually(lambda: project.scanners() == 1)


# `Defer` in real workers: the same task runs later, and this does not count as a failure.


def told(project, result):
    return [one.decode() for one in project.evidence.lrange(TOLD.format(result.id), 0, -1)]


def is_unacknowledged(project, result):
    """Whether a worker holds a message of it, by kombu's data in Redis."""
    kept = project.client.hvals("unacked")
    return any(result.id.encode() in message for message in kept)


def waiting(project, result):
    return eventually(lambda: project.delayq.get(result.id))


@pytest.mark.parametrize("name", ["later", "later_acked_late", "later_hungry"])
def test_a_task_that_is_put_off_runs_again_under_its_id_and_never_early(pool, name):
    result = pool.tasks[name].delay(0.3)
    first, second = pool.wait_runs(result, 2)
    assert second["at"] >= second["due"] >= first["at"] + 0.3
    assert (first["retries"], second["retries"]) == (0, 0)
    assert result.get(timeout=30) == 2
    assert len(pool.runs(result)) == 2
    eventually(lambda: not is_unacknowledged(pool, result))


def test_a_task_that_is_put_off_reports_no_failure_and_no_retry(project):
    failed = project.tasks["note"].s()
    failed.freeze()
    result = project.tasks["later"].apply_async(link_error=failed)
    assert result.get(timeout=30) == 2
    eventually(lambda: told(project, result) == ["on_success"])
    assert project.runs(failed.id) == []


def test_the_options_of_the_call_are_kept(project):
    expires = datetime.now(timezone.utc) + timedelta(hours=1)
    linked = project.tasks["note"].s(7)
    linked.freeze()
    result = project.tasks["later"].apply_async(
        kwargs={"secret": "s3cret"},
        kwargsrepr="<hidden>",
        argsrepr="<none>",
        headers={"tenant": "t1"},
        expires=expires,
        priority=6,
        soft_time_limit=50,
        time_limit=60,
        link=linked,
    )
    first, second = project.wait_runs(result, 2)
    same = ("queue", "priority", "headers", "expires", "limits", "args")
    assert {name: second[name] for name in same} == {name: first[name] for name in same}
    assert second["headers"] == {"tenant": "t1", "argsrepr": "<none>"}
    assert (second["priority"], second["limits"]) == (6, [60, 50])
    assert datetime.fromisoformat(second["expires"]) == expires
    [run] = project.wait_runs(linked.id)
    assert run["args"] == [2, 7]


def test_a_chain_goes_on_after_a_part_that_is_put_off(project):
    result = chain(project.tasks["later"].s(), project.tasks["double"].s()).apply_async()
    assert result.get(timeout=30) == 4


def test_a_part_of_a_chord_is_waited_for_and_the_body_runs_once(project):
    later, double, total = (project.tasks[name] for name in ("later", "double", "total"))
    result = chord([later.s(0.3), later.s(), double.s(5)], total.s()).apply_async()
    assert result.get(timeout=30) == 2 + 2 + 10
    assert len(project.runs(result)) == 1


def test_a_task_knows_how_often_it_was_put_off_and_gives_up_also_after_a_retry(project):
    result = project.tasks["later_giving_up"].delay()
    assert result.get(timeout=30) == [3, 1]


def test_a_message_of_protocol_1_can_be_put_off(make_project, start_worker):
    project = make_project()
    start_worker(TASKS, "-P", "solo", env=project.env)
    project.app.conf.task_protocol = 1  # here, but not in the worker
    result = project.tasks["later"].delay(0.1)
    assert result.get(timeout=30) == 2
    assert [run["retries"] for run in project.runs(result)] == [0, 0]


@pytest.mark.parametrize(
    ("name", "args", "last"),
    [
        *((name, (LONG,), 2) for name in ("later", "later_tracked", "later_reporting")),
        pytest.param("later_retried", (), 1, id="after a retry, which stays counted"),
    ],
)
def test_the_state_of_a_task_that_is_put_off_says_that_it_is_scheduled(crew, name, args, last):
    asked = datetime.now(timezone.utc)
    result = crew.tasks[name].delay(*args)
    entry = waiting(crew, result)
    put_off = entry.due - timedelta(seconds=LONG)
    # The store's times are whole milliseconds, rounded up.
    assert asked <= put_off <= datetime.now(timezone.utc) + timedelta(milliseconds=1)
    eventually(lambda: crew.app.AsyncResult(result.id).state == "SCHEDULED")
    assert crew.delayq.reschedule(result.id, after=0)
    assert result.get(timeout=30) == last


@pytest.mark.parametrize("name", ["later", "later_tracked", "later_reporting"])
def test_a_task_that_is_cancelled_right_away_stays_revoked(project, name):
    result = project.tasks[name].delay(LONG)
    waiting(project, result)
    assert project.delayq.cancel(result.id)
    after = project.tasks["note"].delay()
    project.wait_runs(after)
    assert project.app.AsyncResult(result.id).state == "REVOKED"
    assert len(project.runs(result)) == 1


@pytest.fixture
def alone(make_project, server, broker):
    """A project for this test alone, whose tasks go to that broker."""
    return make_project(broker_url=broker.url, delayq_url=server.url())


@pytest.mark.parametrize(
    ("broker", "scheduled", "cancel"),
    [
        ("rabbitmq", False, False),
        ("rabbitmq", True, True),
        ("redis", False, True),
        ("redis", True, False),
    ],
    indirect=["broker"],
)
def test_a_message_that_was_stored_and_not_acknowledged_is_dropped_when_redelivered(
    alone, start_worker, broker, scheduled, cancel
):
    first = start_worker(TASKS, "-P", "solo", env=alone.env)
    options = {"delayq_after": 0} if scheduled else {}
    result = alone.tasks["later_acked_late"].apply_async((LONG,), {"die": True}, **options)
    waiting(alone, result)
    first.wait()
    if cancel:
        assert alone.delayq.cancel(result.id)
    broker.end_visibility()

    second = start_worker(TASKS, "-P", "solo", env=alone.env)

    second.wait_log(f"task {result.id}: dropped, as it was put off at an earlier delivery")
    assert len(alone.runs(result)) == 1
    if not cancel:
        assert alone.delayq.reschedule(result.id, after=0)
        assert result.get(timeout=30) == 2
    # A worker that gets SIGTERM at this moment might leave it to the next one.
    # A busy machine needs half a minute to run rabbitmqctl.
    eventually(lambda: broker.unacked(alone.queue) == 0, 4 * PATIENCE)
    assert second.stop() == 0
    assert len(alone.runs(result)) == (1 if cancel else 2)


def test_an_own_id_that_is_sent_anew_is_another_message_however_often_it_comes(
    alone, start_worker, broker
):
    """Its worker dies while it runs, and the mark of the earlier message still exists."""
    first = start_worker(TASKS, "-P", "solo", env=alone.env)
    task, task_id = alone.tasks["later_acked_late"], f"order-{alone.queue}"
    task.apply_async(task_id=task_id)
    alone.wait_runs(task_id, 2)
    held = alone.tasks["hold"].apply_async((60,), task_id=task_id)

    def ends_of_holds(count):
        # The broker may not have read the last acknowledgement of `task` when the worker dies.
        ends = [run["after"] for run in alone.runs(task_id) if "after" in run]
        return ends if len(ends) >= count else None

    assert eventually(lambda: ends_of_holds(1)) == [False]
    first.kill()
    broker.end_visibility()

    second = start_worker(TASKS, "-P", "solo", env=alone.env)
    assert eventually(lambda: ends_of_holds(2), 40) == [False, False]
    alone.let_go(held)

    assert eventually(lambda: ends_of_holds(3)) == [False, False, True]
    assert second.running


@pytest.mark.skipif(not HAS_SOFT_SHUTDOWN, reason="Celery 5.5 brought it")
def test_a_soft_shutdown_meanwhile_loses_nothing(make_project, start_worker):
    project = make_project(worker_soft_shutdown_timeout=10.0)
    env = {**project.env, "REMAP_SIGTERM": "SIGQUIT"}
    worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=env, plain=True)
    result = project.tasks["later_held"].delay(LONG)
    project.wait_runs(result)
    worker.signal(signal.SIGTERM)
    worker.wait_log("Initiating Soft Shutdown")
    project.let_go(result)
    waiting(project, result)
    assert worker.wait(60) == 0  # Celery waits for all of that time

    start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    assert project.delayq.reschedule(result.id, after=0)

    project.wait_runs(result, 2)
    eventually(lambda: project.app.AsyncResult(result.id).state == "SUCCESS")
    assert len(project.runs(result)) == 2

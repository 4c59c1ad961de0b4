"""Real workers on SQS: each task runs once, and a far `eta` of other processes is adopted."""

import contextlib
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

from celery_delayq import Outcome
from tests.lab.faults.proxy import Proxy
from tests.lab.sqs.conftest import OPTIONS
from tests.support.waiting import eventually
from tests.worker.project import TASKS
from tests.worker.putting_off import LONG
from tests.worker.support import celery, health

FAR = timedelta(hours=1)
VISIBILITY = 20  # seconds until SQS delivers a message again: one that is stored before that
POOLS = ["prefork", "threads", "solo", "gevent"]


def is_settled(project, sqs_server):
    """Whether its workers have acknowledged all messages."""
    return sqs_server.count(project.queue) == 0


@contextlib.contextmanager
def stranger(project):
    """The app of a process without this package."""
    with Celery("stranger", broker=project.conf["broker_url"], set_as_current=False) as app:
        app.conf.task_default_queue = project.queue
        yield app


def send(project, **options):
    due = datetime.now(timezone.utc) + FAR
    with stranger(project) as app:
        return app.send_task("note", eta=due, **options).id


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_runs_once_when_it_is_due_and_one_beyond_fifteen_minutes_waits(
    on_sqs, start_worker, sqs_server, pool
):
    project = on_sqs(delayq_capture_eta=True)
    start_worker(TASKS, "-P", pool, "-c", "2", env=project.env)
    note = project.tasks["note"]

    soon = note.apply_async(countdown=1)
    far = note.apply_async((42,), countdown=1200, MessageGroupId="a")
    cancelled = note.delay_for(1200)

    [run] = project.wait_runs(soon)
    assert run["at"] >= run["due"]
    assert cancelled.cancel() is Outcome.DONE
    assert project.delayq.get(far.id)
    assert project.delayq.run_now(far.id) is Outcome.DONE
    [run] = project.wait_runs(far)
    assert (run["args"], run["queue"]) == ([42], project.queue)
    eventually(lambda: is_settled(project, sqs_server))
    assert [len(project.runs(one)) for one in (soon, far, cancelled)] == [1, 1, 0]


@pytest.mark.parametrize("pool", POOLS)
def test_a_message_with_a_far_eta_is_adopted_acknowledged_and_runs_once(
    on_sqs, start_worker, sqs_server, pool
):
    project = on_sqs(delayq_adopt_after=60)
    start_worker(TASKS, "-P", pool, "-c", "2", env=project.env)

    task_id = send(project)

    eventually(lambda: project.delayq.get(task_id))
    eventually(lambda: is_settled(project, sqs_server))
    assert project.delayq.run_now(task_id) is Outcome.DONE
    project.wait_runs(task_id)
    eventually(lambda: is_settled(project, sqs_server))
    assert len(project.runs(task_id)) == 1


def records(project):
    [key] = project.server.client().keys(f"{{{project.conf['delayq_prefix']}:*records")
    return key


@pytest.fixture
def killed_in_between(on_sqs, start_worker, server):
    """A task whose worker was killed after storing it and before acknowledging its message."""
    with Proxy(server.port) as proxy:
        project = on_sqs(
            {**OPTIONS, "visibility_timeout": VISIBILITY},
            delayq_adopt_after=60,
            delayq_url=f"redis://127.0.0.1:{proxy.port}/0",
        )
        worker = start_worker(TASKS, "-P", "solo", "--no-delayq", env=project.env)
        warm = send(project)
        eventually(lambda: project.delayq.get(warm))
        # No reply ever comes, however often it asks, so nothing is acknowledged.
        worker.pause()
        task_id = send(project)
        proxy.lose(task_id.encode(), 1)
        worker.resume()
        eventually(lambda: project.server.client().hexists(records(project), task_id))
        worker.kill()
        proxy.lose(b"", 0)
        yield project, task_id


@pytest.mark.parametrize("since", ["waits", "cancelled"])
def test_a_message_whose_worker_was_killed_before_the_acknowledgement_is_recognised(
    killed_in_between, start_worker, sqs_server, since
):
    project, task_id = killed_in_between
    if since == "cancelled":
        project.delayq.cancel(task_id)

    start_worker(TASKS, "-P", "solo", "--no-delayq", env=project.env)

    eventually(lambda: is_settled(project, sqs_server), 3 * VISIBILITY)
    assert (project.delayq.get(task_id) is not None) is (since == "waits")
    assert project.runs(task_id) == []


@pytest.mark.parametrize("since", ["waits", "cancelled"])
def test_a_message_whose_task_put_itself_off_before_its_worker_was_killed_is_dropped(
    on_sqs, start_worker, sqs_server, since
):
    project = on_sqs({**OPTIONS, "visibility_timeout": VISIBILITY})
    first = start_worker(TASKS, "-P", "solo", env=project.env)
    result = project.tasks["later_acked_late"].apply_async((LONG,), {"die": True})
    eventually(lambda: project.delayq.get(result.id))
    first.wait()
    if since == "cancelled":
        assert project.delayq.cancel(result.id) is Outcome.DONE

    second = start_worker(TASKS, "-P", "solo", env=project.env)

    dropped = f"task {result.id}: dropped, as it was put off at an earlier delivery"
    second.wait_log(dropped, 3 * VISIBILITY)
    eventually(lambda: is_settled(project, sqs_server))
    assert len(project.runs(result)) == 1


# kombu 5.7 polls no more after this, and its worker ends or idles.
POLLS_NO_MORE = "AttributeError: 'list' object has no attribute 'get'"


@pytest.mark.parametrize("module", [TASKS, "tests.worker.plain"])
def test_a_worker_polls_no_more_after_an_outage_with_this_package_or_without(
    on_sqs, start_worker, sqs_server, module
):
    with Proxy(sqs_server.port) as proxy:
        project = on_sqs(broker_url=sqs_server.url(proxy.port))
        env = project.env if module == TASKS else project.plain_env
        worker = start_worker(module, "-P", "prefork", "-c", "1", env=env)
        proxy.refuse()
        worker.wait_log(POLLS_NO_MORE)


def test_tasks_that_fall_due_while_sqs_is_away_run_once_in_the_next_worker(
    on_sqs, start_worker, sqs_server
):
    with Proxy(sqs_server.port) as proxy:
        project = on_sqs(broker_url=sqs_server.url(proxy.port))
        worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
        proxy.refuse()
        results = [project.tasks["note"].delay_for(0) for _ in range(5)]
        worker.wait_log(POLLS_NO_MORE)
        worker.kill()
        proxy.accept()

        start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)

        for result in results:
            project.wait_runs(result)
        eventually(lambda: is_settled(project, sqs_server))
        assert [len(project.runs(result)) for result in results] == [1] * 5


def test_doctor_and_health_know_sqs(on_sqs, start_worker):
    project = on_sqs()
    start_worker(TASKS, "-P", "solo", env=project.env)
    said = celery(project, "delayq", "doctor").stdout
    assert "is up, and it answers each message" in said
    assert "secret" not in said
    assert health(project) == (0, ["healthy"])


def test_release_warns_of_tasks_that_sqs_would_deliver_again(on_sqs):
    project = on_sqs()
    project.tasks["note"].delay_for(1700)
    project.tasks["note"].delay_for(1900)
    said = celery(project, "delayq", "release", "--all", "--dry-run")
    assert "1 due later than the broker's visibility_timeout (1800 s)" in said.stderr

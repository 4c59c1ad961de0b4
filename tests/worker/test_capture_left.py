"""Retries and `Defer` in real workers whose store refuses, is away or loses replies: they run."""

import contextlib
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

from tests.lab.faults.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

TASKS_TWICE = {"persist": (1, 0.1), "stumble": (1,), "later": (0.1,), "later_acked_late": (0.1,)}


@pytest.fixture(scope="module")
def store():
    with RedisServer() as one, Proxy(one.port) as proxy:
        yield one, proxy


@pytest.fixture
def project(request, make_project, start_worker, server, store):
    """A worker whose broker is not its store.

    Each test has its own: after a refusal a process leaves the store alone for a while.
    """
    project = make_project(
        **request.param(request, server),
        delayq_url=f"redis://127.0.0.1:{store[1].port}/0",
        delayq_capture_eta=True,
    )
    start_worker(TASKS, "-P", "prefork", "-c", "2", env=project.env)
    return project


def rabbit(request, _server):
    # A store that is away: calls that go on until their time is over are soon over.
    return {"broker_url": request.getfixturevalue("rabbitmq_server").url, "delayq_timeout": 0.5}


def redis(_request, server):
    # A store that refuses at once, also on a busy machine: a call without an answer leaves a mark.
    return {"broker_url": server.url()}


@contextlib.contextmanager
def away(_project, _server, proxy):
    proxy.refuse()
    yield
    proxy.accept()


@contextlib.contextmanager
def resharding(project, server, _proxy):
    meta = f"{{{project.conf['delayq_prefix']}:0}}:meta"
    with server.client() as client:
        client.hset(meta, "closed", "1 1 3 run")
        yield
        client.hdel(meta, "closed")


def start_all(project):
    return {name: project.tasks[name].delay(*args) for name, args in TASKS_TWICE.items()}


@pytest.mark.parametrize(
    ("project", "fault"), [(rabbit, away), (redis, resharding)], indirect=["project"]
)
def test_a_task_that_runs_again_while_the_store_refuses_comes_by_the_broker_with_an_eta(
    project, store, fault
):
    with fault(project, *store):
        results = start_all(project)
        runs = {name: project.wait_runs(one, 2) for name, one in results.items()}

    for name, (_, second) in runs.items():
        assert (second["due"], second["redelivered"]) == (None, None), name
        assert second["eta"], name
    assert {name: one.get(timeout=30) for name, one in results.items()} == {
        "persist": 1, "stumble": 1, "later": 2, "later_acked_late": 2,
    }  # fmt: skip


@pytest.mark.parametrize("project", [rabbit], indirect=True)
def test_a_task_that_runs_again_while_replies_are_lost_runs_once_more_or_is_marked(project, store):
    _, proxy = store
    proxy.lose(project.queue.encode(), 1)
    try:
        results = start_all(project)
        for name, result in results.items():
            runs = project.wait_runs(result, 2)
            assert len([one for one in runs[1:] if not one["redelivered"]]) <= 1, name
    finally:
        proxy.lose(b"", 0)


def send_copy(project, result, eta):
    """Send a marked message of a captured task, as its process did when it got no answer."""
    with Celery("copies", broker=project.conf["broker_url"], set_as_current=False) as app:
        told = {"eta": eta, "headers": {"delayq_redelivered": True}}
        app.send_task("note", (1,), task_id=result.id, queue=project.queue, **told)


def test_a_copy_whose_entry_waits_until_the_same_time_is_dropped(capturing):
    result = capturing.tasks["note"].apply_async((1,), countdown=3600)

    send_copy(capturing, result, capturing.delayq.get(result.id).due)

    capturing.worker.wait_log(f"task {result.id}: dropped, as it waits in the store as well")
    assert result.state == "SCHEDULED"


def test_a_copy_of_another_time_than_the_entry_s_runs(capturing):
    result = capturing.tasks["note"].apply_async((1,), countdown=3600)

    send_copy(capturing, result, datetime.now(timezone.utc) + timedelta(seconds=0.1))

    [run] = capturing.wait_runs(result)
    assert run["redelivered"]
    assert capturing.delayq.get(result.id)


def test_a_marked_message_without_an_id_that_can_wait_runs(capturing):
    """Any program may have written it; the worker must not stop."""
    told = {"task": "note", "id": "strange", "delayq_redelivered": True}
    told["eta"] = datetime.now(timezone.utc).isoformat()
    with capturing.app.producer_pool.acquire(block=True) as producer:
        producer.publish([[1], {}, {}], routing_key=capturing.queue, headers=told)

    capturing.wait_runs("strange")


def test_without_a_store_a_worker_says_so_and_all_is_celery_s(
    make_project, start_worker, rabbitmq_server
):
    project = make_project(broker_url=rabbitmq_server.url, delayq_capture_eta=True)
    worker = start_worker(TASKS, "-P", "solo", env=project.env)

    worker.wait_log("there is no store, so workers deliver no scheduled tasks, and Celery keeps")
    results = start_all(project)
    assert {name: len(project.wait_runs(one, 2)) for name, one in results.items()} == dict.fromkeys(
        results, 2
    )
    assert worker.stop() == 0

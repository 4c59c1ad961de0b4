"""Workers adopt messages from a process without this package: those with a far `eta`, and ours."""

import contextlib
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery

from tests.lab.faults.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

FAR = timedelta(hours=1)
LONG = 4 * PATIENCE  # a busy machine needs half a minute to run rabbitmqctl


def conf_of(broker, server):
    return {"broker_url": broker.url, "delayq_url": server.url(), "delayq_adopt_after": 60}


@contextlib.contextmanager
def stranger(project):
    with Celery("stranger", broker=project.conf["broker_url"], set_as_current=False) as app:
        app.conf.task_default_queue = project.queue
        yield app


def send(project, count=1, ahead=FAR, **options):
    due = datetime.now(timezone.utc) + ahead
    with stranger(project) as app:
        return [app.send_task("note", (n,), eta=due, **options).id for n in range(count)]


def wait_held(project, ids):
    eventually(lambda: all(project.delayq.get(one) for one in ids))


def prefetch(project):
    # A worker that has just started may miss the first request.
    inspect = project.app.control.inspect([project.worker.name], timeout=2, limit=1)
    return eventually(inspect.stats)[project.worker.name]["prefetch_count"]


@pytest.fixture(scope="module", params=["prefork", "gevent"])
def project(request, standing, server, broker):
    return standing("-P", request.param, "-c", "2", **conf_of(broker, server))


def test_the_worker_is_as_if_it_had_never_come_and_it_runs_when_it_is_due(project, broker):
    before = prefetch(project)

    ids = send(project, 30)

    wait_held(project, ids)
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)
    eventually(lambda: prefetch(project) == before)
    for one in ids:
        project.delayq.run_now(one)
    for number, one in enumerate(ids):
        [run] = project.wait_runs(one)
        assert (run["args"], run["queue"], run["eta"]) == ([number], project.queue, None)


def test_of_two_queues_of_an_exchange_each_gets_its_own_back(
    make_project, start_worker, broker, server
):
    project = make_project(**conf_of(broker, server))
    names = [f"{project.queue}-{one}" for one in "ab"]
    exchange = {"exchange": f"{project.queue}-x", "exchange_type": "topic"}
    project.conf["task_queues"] = {one: {**exchange, "routing_key": f"{one}.#"} for one in names}
    project.app.conf.task_queues = project.conf["task_queues"]
    start_worker(TASKS, "-P", "solo", env=project.env)
    due = datetime.now(timezone.utc) + FAR
    with stranger(project) as app:
        app.conf.task_queues = project.conf["task_queues"]
        ids = [app.send_task("note", eta=due, queue=one).id for one in names]

        wait_held(project, ids)

    assert [project.delayq.get(one).queue for one in ids] == names
    project.delayq.run_now(ids[1])
    [run] = project.wait_runs(ids[1])
    assert run["queue"] == names[1]


@pytest.fixture
def killed_in_between(make_project, start_worker, server, broker):
    """A task whose worker was killed after storing it and before acknowledging its message."""
    with Proxy(server.port) as proxy:
        conf = conf_of(broker, server) | {"delayq_url": f"redis://127.0.0.1:{proxy.port}/0"}
        project = make_project(**conf)
        [warm] = send(project)
        worker = start_worker(TASKS, "-P", "solo", "--no-delayq", env=project.env)
        eventually(lambda: project.delayq.get(warm))
        # No reply ever comes, however often it asks, so nothing is acknowledged.
        worker.pause()
        [task_id] = send(project)
        proxy.lose(task_id.encode(), 1)
        worker.resume()
        eventually(lambda: project.server.client().hexists(records(project), task_id))
        worker.kill()
        proxy.lose(b"", 0)
        broker.end_visibility()
        yield project, task_id


def records(project):
    [key] = project.server.client().keys(f"{{{project.conf['delayq_prefix']}:*records")
    return key


@pytest.mark.parametrize("since", ["waits", "cancelled"])
def test_a_task_whose_worker_was_killed_before_the_acknowledgement_is_recognised(
    killed_in_between, start_worker, broker, since
):
    project, task_id = killed_in_between
    if since == "cancelled":
        project.delayq.cancel(task_id)

    start_worker(TASKS, "-P", "solo", "--no-delayq", env=project.env)

    with stranger(project) as app:  # behind it
        after = app.send_task("note").id
    project.wait_runs(after)
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)
    assert (project.delayq.get(task_id) is not None) is (since == "waits")
    assert project.runs(task_id) == []


@pytest.fixture
def away(make_project, server, broker):
    """A project, and the network in front of its store."""
    with Proxy(server.port) as proxy:
        conf = conf_of(broker, server) | {"delayq_url": f"redis://127.0.0.1:{proxy.port}/0"}
        project = make_project(**conf)
        # Only for its worker: calls of the test have time.
        project.conf["delayq_timeout"], project.patience = 1, 5
        yield project, proxy


@pytest.mark.parametrize(
    ("broker", "pool", "how"),
    [
        ("rabbitmq", "prefork", "refuse"),
        ("rabbitmq", "gevent", "stall"),
        ("redis", "prefork", "stall"),
        ("redis", "gevent", "refuse"),
    ],
    indirect=["broker"],
)
def test_while_the_store_is_away_others_run_and_nothing_is_lost(
    away, start_worker, broker, how, pool
):
    project, proxy = away
    worker = start_worker(TASKS, "-P", pool, "-c", "2", env=project.env)
    [warm] = send(project)
    wait_held(project, [warm])
    getattr(proxy, how)()

    ids = send(project, 20)
    with stranger(project) as app:
        plain = app.send_task("note").id
    project.wait_runs(plain)
    worker.wait_log("workers hold eta messages")

    proxy.resume() if how == "stall" else proxy.accept()
    # Each is in the store, or in the worker.
    eventually(
        lambda: (
            sum(project.delayq.get(one) is not None for one in ids) + broker.unacked(project.queue)
            == 20
        ),
        LONG,
    )
    assert [project.runs(one) for one in ids] == [[]] * 20


def test_a_new_worker_adopts_the_tasks_that_an_old_one_held(
    make_project, start_worker, broker_conf
):
    """A project moves from `eta` by the steps of the recipe, with tasks in flight."""
    project = make_project(delayq_adopt_after=60, **broker_conf)
    old = start_worker("tests.worker.plain", "-P", "solo", env=project.plain_env, plain=True)
    ids = send(project, 3)
    eventually(lambda: project.queued() == 0)

    assert old.stop() == 0  # SIGTERM: the tasks it held go back to their queue
    eventually(lambda: project.queued() == 3)
    start_worker(TASKS, "-P", "solo", env=project.env)

    wait_held(project, ids)
    assert project.delayq.select(all=True).run_now() == 3
    for one in ids:
        assert len(project.wait_runs(one)) == 1


def test_a_worker_schedules_what_an_app_without_a_delayq_sent_at_once(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    with Celery("stranger", set_as_current=False) as stranger:
        stranger.conf.update(project.plain_conf)
        result = stranger.send_task("note", delayq_after=0.3)
    [run] = project.wait_runs(result)
    assert run["at"] >= run["due"]
    worker.wait_log(rf"task {result.id}: scheduled on arrival; .* create DelayQ\(app\) there")

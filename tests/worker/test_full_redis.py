"""A full Redis that is both broker and store, for a worker with this package, and without it."""

import pytest

from tests.support.waiting import PATIENCE
from tests.worker.project import TASKS


@pytest.fixture
def full_project(make_project, start_redis):
    """A project on a Redis of its own; its results and evidence are elsewhere."""
    redis = start_redis("--maxmemory-policy", "noeviction")
    made = make_project(broker_url=redis.url())
    made.store = redis.client()
    return made


@pytest.fixture
def start(full_project, start_worker):
    """Start a worker of that project, with this package or without it."""
    env = {"plain": full_project.plain_env, "ours": full_project.env}
    modules = {"plain": "tests.worker.plain", "ours": TASKS}

    def start(kind):
        options = ("-P", "prefork", "-c", "1")
        return start_worker(
            modules[kind], *options, env=env[kind], ready=False, plain=kind == "plain"
        )

    return start


@pytest.mark.parametrize("kind", ["plain", "ours"])
def test_a_worker_that_takes_a_message_ends_and_loses_it(full_project, start, kind):
    store, queue = full_project.store, full_project.queue
    full_project.app.send_task("note", queue="aside")
    worker = start(kind)
    worker.wait_ready()
    with store.pipeline() as both:  # no worker takes it in between
        both.rename("aside", queue)
        both.config_set("maxmemory", 1)
        both.execute()

    assert worker.wait(PATIENCE) != 0
    assert any("OutOfMemoryError" in line for line in worker.lines)
    assert (store.llen(queue), store.hlen("unacked")) == (0, 0)


@pytest.mark.parametrize("kind", ["plain", "ours"])
def test_a_worker_does_not_start(full_project, start, kind):
    full_project.store.config_set("maxmemory", 1)

    worker = start(kind)

    assert worker.wait(PATIENCE) != 0
    assert any("OutOfMemoryError" in line for line in worker.lines)


def test_tasks_that_fall_due_meanwhile_wait_and_the_same_worker_runs_them_later(
    full_project, start
):
    results = [full_project.tasks["note"].delay_for(3600) for _ in range(3)]
    worker = start("ours")
    worker.wait_ready()
    full_project.store.config_set("maxmemory", 1)
    # These wake its scanner.
    assert [bool(result.run_now()) for result in results] == [True] * 3
    assert full_project.delayq.hand_over() == 0
    assert full_project.delayq.counts().scheduled == 3

    full_project.store.config_set("maxmemory", 0)

    assert [len(full_project.wait_runs(result)) for result in results] == [1] * 3
    assert worker.running

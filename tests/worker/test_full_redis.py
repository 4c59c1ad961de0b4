"""A full Redis that is both broker and store, for a worker with this package, and without it."""

import json

import pytest

from tests.support.waiting import PATIENCE
from tests.support.worker import WorkerProcess


@pytest.fixture
def full_project(make_project, start_redis):
    """A project on a Redis of its own; its results and evidence are elsewhere."""
    redis = start_redis("--maxmemory-policy", "noeviction")
    made = make_project(broker_url=redis.url())
    made.store = redis.client()
    return made


@pytest.fixture
def start(full_project, tmp_path):
    """Start a worker of that project, with this package or without it."""
    started = []

    def start(kind):
        conf, env = full_project.conf, full_project.env
        if is_plain := kind == "plain":
            conf = {name: value for name, value in conf.items() if "delayq" not in name}
            env = {**env, "DELAYQ_TEST_CONF": json.dumps(conf)}
        log = tmp_path / f"{len(started)}.log"
        module = "tests.worker.plain" if is_plain else "tests.worker.tasks"
        options = ("-P", "prefork", "-c", "1")
        started.append(WorkerProcess(module, *options, env=env, log=log, plain=is_plain))
        return started[-1], log

    yield start
    for worker in started:
        worker.kill()


@pytest.mark.parametrize("kind", ["plain", "ours"])
def test_a_worker_that_takes_a_message_ends_and_loses_it(full_project, start, kind):
    store, queue = full_project.store, full_project.queue
    full_project.app.send_task("note", queue="aside")
    worker, log = start(kind)
    worker.wait_ready()
    with store.pipeline() as both:  # no worker takes it in between
        both.rename("aside", queue)
        both.config_set("maxmemory", 1)
        both.execute()

    assert worker.wait(PATIENCE) != 0
    assert "OutOfMemoryError" in log.read_text(encoding="utf-8")
    assert (store.llen(queue), store.hlen("unacked")) == (0, 0)


@pytest.mark.parametrize("kind", ["plain", "ours"])
def test_a_worker_does_not_start(full_project, start, kind):
    full_project.store.config_set("maxmemory", 1)

    worker, log = start(kind)

    assert worker.wait(PATIENCE) != 0
    assert "OutOfMemoryError" in log.read_text(encoding="utf-8")


def test_tasks_that_fall_due_meanwhile_wait_and_the_same_worker_runs_them_later(
    full_project, start
):
    results = [full_project.tasks["note"].delay_for(3600) for _ in range(3)]
    worker, _ = start("ours")
    worker.wait_ready()
    full_project.store.config_set("maxmemory", 1)
    # These wake its scanner.
    assert [bool(result.run_now()) for result in results] == [True] * 3
    assert full_project.delayq.hand_over() == 0
    assert full_project.delayq.counts().scheduled == 3

    full_project.store.config_set("maxmemory", 0)

    assert [len(full_project.wait_runs(result)) for result in results] == [1] * 3
    assert worker.running

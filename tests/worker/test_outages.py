"""Workers that die, that are missing, or that start before the store does."""

import pytest

from celery_delayq.core.store.keys import SCHEMA
from tests.lab.faults.proxy import Proxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

LONG_AGO = 1_000_000_000


def test_a_second_worker_runs_all_that_a_killed_one_left(make_project, start_worker):
    project = make_project(delayq_batch_size=5, worker_prefetch_multiplier=1)
    items = [((), {}, LONG_AGO, f"due{number}") for number in range(1000)]
    assert project.delayq.schedule_many(project.tasks["note"], items)
    # The first one scans, and consumes another queue.
    first = start_worker(TASKS, "-P", "solo", "-Q", "elsewhere", env=project.env, ready=False)
    eventually(project.queued)
    first.kill()
    # Redis may still run what it was sent.
    eventually(lambda: project.delayq.counts().scheduled + project.queued() == 1000)
    second = start_worker(TASKS, "-P", "threads", "-c", "4", env=project.env)
    for number in range(1000):
        project.wait_runs(f"due{number}", timeout=60)
    assert [len(project.runs(f"due{number}")) for number in range(1000)] == [1] * 1000
    assert second.running


@pytest.mark.parametrize("how", ["refuse", "stall"])
def test_a_worker_starts_while_the_store_is_away_and_recovers(make_project, start_worker, how):
    with RedisServer() as store, Proxy(store.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        project = make_project(delayq_url=url, task_publish_retry=False)
        project.patience = 5
        held = project.tasks["note"].delay_for(0.2)
        getattr(proxy, how)()
        worker = start_worker(TASKS, "-P", "solo", env=project.env)
        project.wait_runs(project.tasks["note"].delay())
        worker.wait_log(rf"cannot reach the store {url} of delayq_url \(.*\); retr")
        assert not any("started: " in line for line in worker.lines)
        assert project.runs(held) == []
        proxy.resume() if how == "stall" else proxy.accept()
        [run] = project.wait_runs(held, timeout=40)
        assert run["at"] >= run["due"]
        worker.wait_log(rf"store {url} is back after \d+ s; 1 overdue")
        worker.wait_log(r"scanner \S+ started: ")
        assert worker.stop() == 0


def test_a_worker_whose_store_becomes_another_works_on_and_says_so(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "-P", "solo", env=project.env)
    meta = project.delayq.services.scripts[0].keys["meta"]
    held = project.tasks["note"].delay_for(3600)
    project.client.delete(meta)
    project.client.hset(meta, mapping={"schema": "999", "shards": "1"})
    worker.wait_log(f"the store has layout '999', this process '{SCHEMA}'; ")
    project.wait_runs(project.tasks["note"].delay())
    project.client.hset(meta, "schema", SCHEMA)
    assert project.delayq.run_now(held.id)
    project.wait_runs(held, timeout=40)
    assert not any("Traceback" in line for line in worker.lines)
    assert worker.stop() == 0


def test_a_consumer_that_restarts_leaves_the_scanner_alone(make_project, start_worker, server):
    with Proxy(server.port) as proxy:
        project = make_project(
            broker_url=f"redis://127.0.0.1:{proxy.port}/0", delayq_url=server.url()
        )
        worker = start_worker(TASKS, "-P", "solo", env=project.env)
        project.wait_runs(project.tasks["note"].delay())  # it consumes
        before = len(worker.lines)
        proxy.cut()
        worker.wait_log("Connection to broker lost", since=before)
        held = project.tasks["note"].delay_for(0.1)
        [run] = project.wait_runs(held, timeout=40)
        assert run["attempt"] in (None, 1)
        eventually(lambda: project.scanners() == 1)
        worker.wait_log("scanner.*started")
        assert sum("scanner" in line and "started" in line for line in worker.lines) == 1

"""However a worker is told to end, its scanner ends with it, and promptly."""

import signal
import time

import celery
import pytest

from tests.support.waiting import eventually
from tests.worker.project import TASKS

PROMPTLY = 5  # seconds, most of which are Celery's own
GEVENT = 5  # seconds that Celery 5.7 takes more to end a gevent worker, with a scanner or without
HAS_SOFT_SHUTDOWN = celery.VERSION >= (5, 5)
POOLS = ("prefork", "threads", "solo", "gevent")
SIGNALS = (signal.SIGTERM, signal.SIGQUIT)


@pytest.fixture(scope="module")
def ended(standing):
    """How many seconds each kind of worker took to end; all at once, for the sake of time."""
    crews = {
        (pool, number): standing("-P", pool, "-c", "1", ready=False)
        for pool in POOLS
        for number in SIGNALS
    }
    for crew in crews.values():
        crew.worker.wait_ready(60)
        crew.tasks["note"].delay_for(3600)
        eventually(lambda crew=crew: crew.scanners() == 1)
    started = time.monotonic()
    for (_, number), crew in crews.items():
        crew.worker.signal(number)
    seconds = {}

    def all_ended():
        for kind, crew in crews.items():
            if kind not in seconds and not crew.worker.running:
                seconds[kind] = time.monotonic() - started
        return len(seconds) == len(crews)

    eventually(all_ended, timeout=30)
    return seconds, crews


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_ends_promptly(ended, pool, number):
    seconds, crews = ended
    crew = crews[pool, number]
    assert seconds[pool, number] < PROMPTLY + (GEVENT if pool == "gevent" else 0)
    assert crew.worker.exit_status == 0
    assert crew.scanners() == 0
    assert crew.delayq.counts().scheduled == 1


def test_a_worker_ends_promptly_with_much_that_is_due(make_project, start_worker):
    project = make_project(delayq_batch_size=1)
    for number in range(2000):
        project.tasks["note"].apply_async(task_id=f"due-{number}", delayq_at=1_000_000_000)
    worker = start_worker(TASKS, "-P", "solo", "-Q", "elsewhere", env=project.env, ready=False)
    worker.wait_log(r"scanner .* started")
    started = time.monotonic()
    worker.stop()
    assert time.monotonic() - started < PROMPTLY
    assert project.scanners() == 0
    assert project.queued() + project.delayq.counts().scheduled == 2000


def test_a_worker_that_finishes_its_task_first_scans_no_more(make_project, start_worker):
    project = make_project()
    worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    held = project.tasks["hold"].delay(30)
    project.wait_runs(held)
    worker.signal(signal.SIGTERM)
    worker.wait_log(r"scanner .* stopped")
    late = project.tasks["note"].delay_for(0)
    project.let_go(held)
    assert worker.wait() == 0
    assert project.delayq.get(late.id)
    assert project.queued() == 0


@pytest.mark.skipif(not HAS_SOFT_SHUTDOWN, reason="Celery 5.5 brought it")
def test_a_soft_shutdown_ends_promptly(make_project, start_worker):
    project = make_project(worker_soft_shutdown_timeout=2.0)
    env = {**project.env, "REMAP_SIGTERM": "SIGQUIT"}
    worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=env)
    held = project.tasks["hold"].delay(60)
    project.wait_runs(held)
    started = time.monotonic()
    worker.stop(signal.SIGTERM)
    assert 1.5 < time.monotonic() - started < PROMPTLY + 2
    assert project.scanners() == 0

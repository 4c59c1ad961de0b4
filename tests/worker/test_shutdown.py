"""A worker's scanner ends with it, promptly, whichever way the worker is stopped."""

import signal

import celery
import pytest

from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = [pytest.mark.core, pytest.mark.libraries]

# A scanner that did not end would sleep this long; most of the time to end is Celery's own.
SLEEPS = 10 * PATIENCE
HAS_SOFT_SHUTDOWN = celery.VERSION >= (5, 5)
POOLS = ("prefork", "threads", "solo", "gevent")
SIGNALS = (signal.SIGTERM, signal.SIGQUIT)


@pytest.fixture(scope="module")
def ended(standing):
    """Each kind of worker after each signal; all are stopped together, to save time."""
    crews = {
        (pool, number): standing("-P", pool, "-c", "1", ready=False, delayq_safety_interval=SLEEPS)
        for pool in POOLS
        for number in SIGNALS
    }
    for crew in crews.values():
        crew.worker.wait_ready(60)
        crew.tasks["note"].delay_for(3600)
        eventually(lambda crew=crew: crew.scanners() == 1)
    for (_, number), crew in crews.items():
        crew.worker.signal(number)
    return crews


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_ends_promptly(ended, pool, number):
    crew = ended[pool, number]
    assert crew.worker.wait(PATIENCE) == 0
    assert crew.scanners() == 0
    assert crew.delayq.counts().scheduled == 1


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
    project = make_project(worker_soft_shutdown_timeout=2.0, delayq_safety_interval=SLEEPS)
    env = {**project.env, "REMAP_SIGTERM": "SIGQUIT"}
    worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=env, plain=True)
    held = project.tasks["hold"].delay(60)
    project.wait_runs(held)
    worker.stop(signal.SIGTERM)
    assert project.scanners() == 0

"""Real workers, and projects that they and the tests share.

Most tests share workers that are started once: a worker takes one to two seconds to start, and
these tests do not change it.
"""

import contextlib
import gc

import pytest

from celery_delayq.core.handover import link
from tests.support.apps import celery_state_kept
from tests.support.garbage import no_collector
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker import WorkerProcess
from tests.worker.project import TASKS, Project


@pytest.fixture(scope="session")
def server():
    """A Redis that is never emptied: every project has its own prefix and queue.

    It outlives these tests: a result on the Redis backend connects to it when it is dropped, and
    the results in a test's fixtures are dropped only after the next test has begun.
    """
    with RedisServer() as one:
        yield one
        gc.collect()


@pytest.fixture(scope="package", autouse=True)
def results_end_together():
    with no_collector():
        yield
        gc.collect()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let a busy broker take its time to connect if a test publishes by itself."""
    for name in ("REACH", "CONNECT_TIMEOUT"):
        monkeypatch.setattr(link, name, PATIENCE)


def new_project(server, **conf):
    """A project in which servers and processes may get no CPU for a while."""
    project = Project(server, **{"delayq_timeout": PATIENCE, "delayq_lease": 10 * PATIENCE, **conf})
    project.patience = PATIENCE
    return project


def wait_told(project):
    """On Redis, a worker that reports "ready" may not have subscribed yet, and miss a request."""
    ping = project.app.control.ping
    eventually(lambda: ping([project.worker.name], timeout=2))


@pytest.fixture(scope="package")
def standing(server, tmp_path_factory):
    """Make a project and its worker for all of these tests."""
    folder = tmp_path_factory.mktemp("workers")

    with celery_state_kept(), contextlib.ExitStack() as stack:

        def make(*options, ready=True, module=TASKS, **conf):
            project = new_project(server, **conf)
            stack.callback(project.close)
            log = folder / f"{project.queue}.log"
            project.worker = WorkerProcess(module, *options, env=project.env, log=log)
            stack.callback(project.worker.kill)
            if ready:
                project.worker.wait_ready()
            return project

        yield make


@pytest.fixture(scope="package")
def crew(standing):
    """A project with one prefork worker of two children."""
    project = standing("-P", "prefork", "-c", "2")
    wait_told(project)
    return project


@pytest.fixture(scope="package")
def capturing(standing):
    """The same, with every `eta` captured."""
    return standing("-P", "prefork", "-c", "2", delayq_capture_eta=True)


@pytest.fixture
def make_project(server):
    """Make a project for this test alone; its workers come from `start_worker`."""
    made = []

    def make(on=server, **conf):
        made.append(new_project(on, **conf))
        return made[-1]

    with celery_state_kept():
        yield make
        for project in made:
            project.close()

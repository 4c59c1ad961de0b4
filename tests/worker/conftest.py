"""Real workers, and projects that they and the tests share.

Most tests share workers that are started once: a worker takes one to two seconds to start, and
these tests do not change it.
"""

import contextlib
import functools
import gc

import pytest

from tests.support.apps import celery_state_kept
from tests.support.garbage import no_collector
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE, eventually
from tests.support.worker import WorkerProcess
from tests.worker.project import TASKS, Project
from tests.worker.support import Broker


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
def patient(limits):
    """Let a busy broker take its time to connect if a test publishes by itself."""
    limits(broker_reach_s=PATIENCE, broker_connect_s=PATIENCE)


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


@pytest.fixture(scope="package")
def rabbit(standing, server, rabbitmq_server):
    """The same with RabbitMQ as its broker, so that tasks go through a relay."""
    return standing(
        *("-P", "prefork", "-c", "2"),
        broker_url=rabbitmq_server.url,
        delayq_url=server.url(),
        delayq_capture_eta=True,
    )


@pytest.fixture(scope="package")
def pool_of(standing):
    """The project whose worker has the pool of that name."""

    @functools.cache
    def pool_of(name):
        project = standing("-P", name, "-c", "2")
        project.pool = name
        return project

    return pool_of


@pytest.fixture(params=["prefork", "threads", "solo", "gevent"])
def pool(request, pool_of):
    return pool_of(request.param)


@pytest.fixture
def solo(pool_of):
    return pool_of("solo")


def each_of(*names):
    """The fixture of a project that is each of these in turn."""

    @pytest.fixture(params=names)
    def project(request):
        return request.getfixturevalue(request.param)

    return project


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def broker_conf(request, server):
    """The broker's configuration: the store's own Redis, or a RabbitMQ."""
    if request.param == "redis":
        return {}
    rabbitmq = request.getfixturevalue("rabbitmq_server")
    return {"broker_url": rabbitmq.url, "delayq_url": server.url()}


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def broker(request):
    """A broker other than the store."""
    if request.param == "rabbitmq":
        rabbit = request.getfixturevalue("rabbitmq_server")
        yield Broker(rabbit.url, rabbit)
    else:
        with RedisServer() as one:
            yield Broker(one.url())


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

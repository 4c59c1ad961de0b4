"""Fixtures with the suite's own real processes; each server starts when it is first needed."""

import contextlib
import functools
import gc
import math
import signal
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.support import parallel, same_draws
from tests.support.apps import celery_state_kept, new_app
from tests.support.certificates import make_certificates
from tests.support.durations import Recorder
from tests.support.garbage import no_collector
from tests.support.limits import Limits
from tests.support.missing import missing
from tests.support.network import Between
from tests.support.rabbit_server import RabbitServer
from tests.support.redis_programs import absent, redis_binaries
from tests.support.redis_server import RedisServer
from tests.support.worker import WorkerProcess

same_draws.load_profile()
# redis-py reads its version from a file for each connection.
metadata.version = functools.cache(metadata.version)

# The processes of a parallel run write here which tests belong together.
GROUPS = pytest.StashKey[Path]()


def pytest_configure(config):
    # A plain `kill` skips every clean-up, so turn it into an orderly end.
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", returncode=143))
    folder = tempfile.TemporaryDirectory(prefix="delayq-groups-")
    config.add_cleanup(folder.cleanup)
    config.stash[GROUPS] = Path(folder.name, "groups.json")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_generate_tests(metafunc):
    if "each_redis" in metafunc.fixturenames:
        # None keeps the test in the list if the machine lacks the server, so that CI fails there.
        servers = [*redis_binaries(), *((name, None) for name in absent())]
        if "servers" not in metafunc.config.option.markexpr:
            servers = servers[:1]
        metafunc.parametrize(
            "each_redis", servers, ids=[name for name, _ in servers], indirect=True
        )


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(config, items):
    for item in items:
        if "each_redis" in item.fixturenames:
            item.add_marker("servers")
    if "thorough" not in config.option.markexpr and not parallel.is_one_file(config):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    parallel.sort(items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session):
    if told := getattr(session.config, "workerinput", {}).get("groups"):
        parallel.tell(session.items, told)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    return parallel.processes(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["groups"] = str(node.config.stash[GROUPS])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return parallel.Grouping(config, log, config.stash[GROUPS])


@pytest.fixture
def limits(monkeypatch):
    """Set limits of the package until the test ends: ``limits(selection_chunk=2)``."""
    return Limits(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def not_warned_of_silence(limits):
    """Switch off the warning of missing scanners: most tests schedule without one."""
    limits(silent_ms=math.inf)


@pytest.fixture(scope="session")
def redis_server():
    """The suite's Redis, without persistence. To damage a server, get one from `start_redis`."""
    with RedisServer() as server:
        yield server
        # A result on the Redis backend connects to it when it is dropped.
        gc.collect()


@pytest.fixture
def redis_url(redis_server):
    """The URL of the suite's Redis, empty."""
    redis_server.empty()
    return redis_server.url()


@pytest.fixture
def between_of():
    """Put a proxy before a server that acts around the calls of scripts: ``between_of(server)``."""
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(Between(server.port))


@pytest.fixture
def between(between_of, redis_server, redis_url):
    """Such a proxy before the suite's Redis."""
    return between_of(redis_server)


@pytest.fixture(scope="session")
def redis_of_binary():
    with contextlib.ExitStack() as stack:
        servers = {}

        def of_binary(binary):
            if binary not in servers:
                servers[binary] = stack.enter_context(RedisServer(binary=binary))
            return servers[binary]

        yield of_binary


@pytest.fixture
def each_redis(request, redis_of_binary):
    """A server of each version on this machine in turn, empty."""
    name, binary = request.param
    if binary is None:
        missing(name)
    server = redis_of_binary(binary)
    server.empty()
    return server


@pytest.fixture
def start_redis():
    """Start a server for this test alone: ``start_redis("--appendonly", "yes")``."""
    with contextlib.ExitStack() as stack:
        yield lambda *config, **options: stack.enter_context(RedisServer(*config, **options))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """The folder with the certificates for servers that speak TLS."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def rabbitmq_server():
    """The suite's RabbitMQ. It is never emptied: each test uses its own queue names."""
    with RabbitServer() as server:
        yield server


@pytest.fixture
def start_worker(tmp_path):
    """Start a worker and wait for it: ``start_worker("tests.worker.tasks", "-P", "solo")``."""
    started = []

    def start(module, *options, env=None, ready=True, plain=False):
        log = tmp_path / f"worker-{len(started)}.log"
        started.append(WorkerProcess(module, *options, env=env, log=log, plain=plain))
        return started[-1].wait_ready() if ready else started[-1]

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture
def make_app():
    """Make the current app of this test: ``make_app(broker, backend, delayq_batch_size=10)``."""
    apps = []

    def make(broker=None, backend=None, **conf):
        apps.append(new_app(broker, backend, **conf))
        return apps[-1]

    with celery_state_kept(), no_collector():
        yield make
        for app in apps:
            app.close()

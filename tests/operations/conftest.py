import pytest

from tests.app.conftest import delayq_app, redis, redis_client, url
from tests.cli.conftest import app, project, refused, run
from tests.operations.table import prepare
from tests.store.conftest import store, store_on
from tests.store.support import Store
from tests.support.redis_server import RedisServer
from tests.support.waiting import PATIENCE

__all__ = ["app", "delayq_app", "project", "redis", "redis_client", "refused", "run"]
__all__ += ["store", "store_on", "url"]


@pytest.fixture
def ready(store):
    """A store with something to do for each operation, on the suite's Redis."""
    return prepare(store)


@pytest.fixture(scope="module")
def spoilt_server():
    """A server that a test may damage; it is repaired for the next test."""
    with RedisServer("--maxmemory-policy", "noeviction", "--lua-time-limit", "1") as server:
        yield server


@pytest.fixture
def prepare_anew(spoilt_server):
    """Empty that server, and prepare a store on it."""
    made = []

    def anew():
        spoilt_server.empty()
        made.append(Store(spoilt_server, timeout=PATIENCE))
        return prepare(made[-1])

    yield anew
    root = spoilt_server.client()
    root.config_set("maxmemory", 0)
    root.config_set("min-replicas-to-write", 0)
    root.execute_command("REPLICAOF", "NO", "ONE")
    for one in made:
        one.close()


@pytest.fixture
def on_spoilt(prepare_anew):
    """A prepared store on a server that a test may damage."""
    return prepare_anew()

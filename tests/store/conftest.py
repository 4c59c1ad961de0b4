import pytest

from celery_delayq.store import endpoint, wakeup
from tests.store.support import Store


@pytest.fixture
def store(redis_server, redis_url):
    """An empty store on the suite's Redis; its clock stands at NOW_MS until a test moves it."""
    made = Store(redis_server)
    yield made
    made.close()


@pytest.fixture
def real_store(redis_server, redis_url):
    """The same, reading Redis's own TIME."""
    made = Store(redis_server, clocked=False)
    yield made
    made.close()


@pytest.fixture
def store_on():
    """Make a store on another server: ``store_on(server, clocked=False)``."""
    made = []

    def make(server, **options):
        made.append(Store(server, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def short_timeout(monkeypatch):
    """Connections made from here on wait a fifth of a second for an answer."""
    monkeypatch.setattr(endpoint, "TIMEOUT", 0.2)
    monkeypatch.setattr(wakeup, "TIMEOUT", 0.2)


@pytest.fixture
def raw(redis_server, redis_url):
    """A client of the suite's Redis, which is empty."""
    client = redis_server.client()
    yield client
    client.close()

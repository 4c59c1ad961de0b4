import pytest

from tests.store.answering import Answering
from tests.store.asking import MOST, Asking, Line
from tests.store.support import Store, clocked_names
from tests.support.network import Between
from tests.support.slow_link import SlowLink
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def patient(limits):
    """A process that is starved for seconds still gets its answers."""
    limits(answer_s=PATIENCE, wakeup_answer_s=PATIENCE)


@pytest.fixture
def store(redis_server, redis_url):
    """An empty store on the suite's Redis; its clock stands at NOW_MS until a test moves it."""
    made = Store(redis_server)
    yield made
    made.close()


@pytest.fixture
def shard_steps(store):
    """The steps of one scanner."""
    return store.steps()


@pytest.fixture
def store_between(redis_server, redis_url):
    """The same through a proxy that acts around the calls of scripts, `store.between`."""
    with Between(redis_server.port, clocked_names()) as between:
        made = Store(redis_server, port=between.port)
        made.between = between
        yield made
        made.close()


@pytest.fixture
def real_store(redis_server, redis_url):
    """The same, with Redis's own TIME."""
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
def short_timeout(limits):
    """Connections made from here on wait less than half a second for an answer."""
    limits(answer_s=0.4, wakeup_answer_s=0.4)


@pytest.fixture
def raw(redis_server, redis_url):
    """A client of the suite's Redis, which is empty."""
    client = redis_server.client()
    yield client
    client.close()


@pytest.fixture
def answering():
    """Make a server that answers each command as a function says."""
    made = []

    def make(answer):
        made.append(Answering(answer))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def link(redis_server, redis_url):
    with SlowLink(redis_server.port, seconds=0.0005) as link:
        yield link


@pytest.fixture
def asking(link, limits):
    # Tests lose calls more often than every ten seconds.
    limits(collect_again_s=0)
    made = []

    def make(most=MOST):
        limits(connections=most)
        made.append(Asking(link.port, most))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


@pytest.fixture
def line(monkeypatch):
    """The callers that wait for a connection."""
    return Line(monkeypatch)


@pytest.fixture
def ask(asking):
    return asking()

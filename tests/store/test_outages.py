"""Redis is down, silent or killed: a typed error, no partial change, and recovery."""

import contextlib

import pytest

from celery_delayq.core.servers.connection import Connection
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.store import Entries
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreUnavailable
from tests.store.support import FAR_MS, MEMBERSHIP, SETTINGS, endpoint
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture
def server(start_redis):
    return start_redis("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def own(server, store_on):
    """A store on a server of its own."""
    return store_on(server, clocked=False)


def answers(store):
    """Whether it finds something in its time; from then on it has a connection."""
    with contextlib.suppress(StoreUnavailable):
        return store.entries.counts().scheduled == 1


def test_a_silent_server_is_unavailable_and_its_late_answer_goes_to_no_other_call(
    server, own, store_on, limits
):
    own.schedule("a", FAR_MS)
    store = store_on(server, clocked=False)
    with limits.within(answer_s=0.4):
        eventually(lambda: answers(store))
        server.pause()
        with pytest.raises(StoreUnavailable):
            store.entries.find("a")
    server.resume()
    assert store.entries.counts().scheduled == 1
    assert store.entries.find("b") is None
    assert store.entries.find("a").task_id == "a"


def test_a_server_that_goes_on_after_a_call_has_ended_refuses_it(server, own):
    own.schedule("earlier", FAR_MS)
    own.limit_calls(0.5)
    server.pause()
    with pytest.raises(StoreUnavailable) as caught:
        own.schedule("a", FAR_MS)
    assert caught.value.may_have_run
    server.resume()
    # The server answers this only after the calls that waited for it.
    eventually(lambda: server.client().info("commandstats")["cmdstat_evalsha"]["calls"] >= 1)
    assert own.entries.counts().scheduled == 1
    assert own.entries.find("a") is None


def test_a_wrong_password_is_unavailable(server):
    server.client().config_set("requirepass", "right")
    wrong = Endpoint("127.0.0.1", server.port, password="wrong")
    for place in (wrong, endpoint(server)):
        client = Connection(place)
        with pytest.raises(StoreUnavailable):
            Entries([Scripts(client, Keys("delayq"), SETTINGS)], MEMBERSHIP).counts()
        client.close()

"""Redis is down, silent or killed: a typed error, no partial change, and recovery."""

import contextlib

import pytest
import redis
from kombu.exceptions import OperationalError

from celery_delayq.core.servers.connection import PooledConnection
from celery_delayq.core.servers.endpoint import Endpoint
from celery_delayq.core.store import Entries
from celery_delayq.core.store.keys import Keys
from celery_delayq.core.store.scripts import Scripts
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.store.support import FAR_MS, MEMBERSHIP, endpoint
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


def test_an_unavailable_store_is_what_apply_async_raises_when_its_broker_is_away():
    connection = PooledConnection(Endpoint("127.0.0.1", free_port()))
    entries = Entries([Scripts(connection, Keys("delayq"))], MEMBERSHIP)
    with pytest.raises(OperationalError) as caught:
        entries.counts()
    assert isinstance(caught.value, StoreUnavailable)
    assert caught.value.step == "read"
    assert isinstance(caught.value.__cause__, redis.ConnectionError)


def test_after_a_kill_the_next_call_finds_the_server_again(start_redis, store_on):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store = store_on(server, clocked=False)
    store.schedule("a", FAR_MS)
    server.kill()
    with pytest.raises(StoreUnavailable):
        store.entries.find("a")
    server.start()
    assert store.entries.find("a").due_ms == FAR_MS


def test_with_an_append_only_file_a_kill_loses_and_doubles_nothing(start_redis, store_on):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store = store_on(server, clocked=False)
    for step in range(40):
        store.schedule(f"a{step}", 1 if step < 20 else FAR_MS, share=step % 2 == 0)
        store.schedule_relayed(f"r{step}", 1)
    shard_steps = store.steps(batch_size=15)
    assert shard_steps.hand_over().handed_over == 15
    claimed, *_ = shard_steps.claim(30)
    shard_steps.ack(claimed[:10])
    store.entries.cancel("a39")
    before = store.contents()
    server.kill()
    server.start()
    assert store.contents() == before
    store.check()


def answers(store):
    """Whether it finds something in its time; from then on it has a connection."""
    with contextlib.suppress(StoreUnavailable):
        return store.entries.counts().scheduled == 1


def test_a_silent_server_is_unavailable_and_its_late_answer_goes_to_nobody(
    start_redis, store_on, monkeypatch
):
    server = start_redis()
    store_on(server, clocked=False).schedule("a", FAR_MS)
    store = store_on(server, clocked=False)
    with monkeypatch.context() as patch:
        patch.setattr("celery_delayq.core.servers.endpoint.TIMEOUT", 0.4)
        eventually(lambda: answers(store))
        server.pause()
        with pytest.raises(StoreUnavailable):
            store.entries.find("a")
    server.resume()
    assert store.entries.counts().scheduled == 1
    assert store.entries.find("b") is None
    assert store.entries.find("a").task_id == "a"


def test_a_server_that_goes_on_after_a_call_has_ended_refuses_it(start_redis, store_on):
    server = start_redis()
    store = store_on(server, clocked=False)
    store.schedule("earlier", FAR_MS)
    store.limit_calls(0.5)
    server.pause()
    with pytest.raises(StoreUnavailable) as caught:
        store.schedule("a", FAR_MS)
    assert caught.value.may_have_run
    server.resume()
    # The server answers this only after the calls that waited for it.
    eventually(lambda: server.client().info("commandstats")["cmdstat_evalsha"]["calls"] >= 1)
    assert store.entries.counts().scheduled == 1
    assert store.entries.find("a") is None


def test_a_wrong_password_is_unavailable(start_redis):
    server = start_redis()
    server.client().config_set("requirepass", "right")
    wrong = Endpoint("127.0.0.1", server.port, password="wrong")
    for place in (wrong, endpoint(server)):
        client = PooledConnection(place)
        with pytest.raises(StoreUnavailable):
            Entries([Scripts(client, Keys("delayq"))], MEMBERSHIP).counts()
        client.close()


def test_a_missing_right_is_an_error_of_the_store_and_not_an_outage(start_redis, store_on):
    server = start_redis()
    store = store_on(server, clocked=False)
    store.entries.counts()
    server.client().execute_command("ACL", "SETUSER", "default", "-evalsha")
    with pytest.raises(StoreError) as caught:
        store.entries.counts()
    assert not isinstance(caught.value, StoreUnavailable)
    assert caught.value.step == "read"

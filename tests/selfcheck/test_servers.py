import os
import socket
import time
from pathlib import Path

import pytest
import redis
from celery import current_app, shared_task

from tests.support.redis_programs import default_binary
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

LATE = str(Path(__file__).parents[1] / "support" / "late" / "redis-server")


def test_each_test_gets_an_empty_redis(redis_server, redis_url):
    client = redis.Redis.from_url(redis_url)
    assert client.dbsize() == 0
    assert redis_server.client().set("left", "behind")
    client.close()


def test_the_next_test_gets_an_empty_redis_too(redis_server, redis_url):
    assert redis_server.client().dbsize() == 0


def test_restart_keeps_data_where_it_is_persisted(start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    client, port = server.client(), server.port
    client.set("kept", "1")
    server.restart()
    assert (client.get("kept"), server.port) == (b"1", port)


def test_kill_loses_data_that_is_not_persisted(start_redis):
    server = start_redis()
    client = server.client()
    client.set("lost", "1")
    server.kill()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    server.start()
    assert client.get("lost") is None


def test_a_paused_server_answers_later(start_redis):
    server = start_redis()
    client = server.client(socket_timeout=0.05)
    server.pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    server.resume()
    assert server.client().ping()


def test_shared_tasks_belong_to_the_app_of_the_test(make_app):
    app = make_app(task_always_eager=True)

    @shared_task
    def double(x):
        return 2 * x

    assert current_app._get_current_object() is app
    assert double.delay(4).get() == 8
    assert double.app is app


def test_a_late_redis_answers_late_at_its_port_and_its_socket_and_ends_as_any(monkeypatch):
    monkeypatch.setenv("DELAYQ_LATE_MS", "100")
    # Under `./tests/run late` the default one is late itself.
    monkeypatch.setenv("DELAYQ_LATE_REDIS", os.environ.get("DELAYQ_LATE_REDIS", default_binary()))
    with RedisServer("--appendonly", "yes", binary=LATE) as server:
        at_port = redis.Redis.from_url(server.url())
        for client in (server.client(), at_port):
            began = time.monotonic()
            assert client.ping()
            assert time.monotonic() - began >= 0.1
        at_port.set("a", 1)
        server.restart()
        assert at_port.get("a") == b"1"
        server.kill()
        # The child that forwards ends with it, and lets go of the port a moment later.
        eventually(lambda: is_refused(server.port))
        at_port.close()


def is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False

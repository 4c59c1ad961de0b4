"""The instruments themselves: a proxy that loses and delays, a watch that misses nothing."""

import json
import time
from base64 import b64encode

import pytest
import redis
from kombu import Connection

from tests.lab.faults.history import Copy
from tests.lab.faults.proxy import Proxy
from tests.lab.faults.watches import ListWatch, QueueWatch
from tests.relay.house import new_name
from tests.support.waiting import eventually

pytestmark = pytest.mark.thorough

HEADERS = {"id": "a", "delayq_due": 5}


@pytest.fixture
def link(redis_server, redis_url):
    with Proxy(redis_server.port) as one:
        yield one


@pytest.fixture
def through(link):
    clients = []

    def connect(**options):
        # By default the client would repeat a lost command.
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        clients.append(redis.Redis(port=link.port, retry=retry, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_each_third_reply_is_lost_and_its_command_has_run(link, through, client):
    link.lose(b"INCR", every=3)
    one, heard = through(), []
    for _ in range(6):
        try:
            heard.append(one.incr("count"))
        except redis.ConnectionError:
            heard.append(None)
    assert heard == [1, 2, None, 4, 5, None]
    assert client.get("count") == b"6"
    assert link.cuts == 2
    link.lose(b"INCR", every=0)
    assert [one.incr("count") for _ in range(3)] == [7, 8, 9]


def test_a_delayed_request_arrives_although_its_sender_is_gone(link, through, client):
    link.delay(b"INCR", every=1, seconds=1.0)
    sender, began = through(socket_timeout=0.5), time.monotonic()
    with pytest.raises(redis.TimeoutError):
        sender.incr("count")
    sender.close()
    eventually(lambda: client.get("count") == b"1")
    assert time.monotonic() - began > 1.0
    assert link.delayed == 1


def text(version, **more):
    body = b64encode(json.dumps([[version], {}, {}]).encode()).decode()
    return json.dumps({"headers": {**HEADERS, **more}, "body": body})


def whole(copies):
    return sorted((copy.version, copy.marked) for copy in copies)


def test_a_watch_of_a_list_sees_each_message_when_it_comes(client):
    with ListWatch(client, "queue") as watch:
        client.lpush("queue", text(1))
        client.lpush("queue", text(2, delayq_redelivered=True), text(2, delayq_redelivered=True))
        eventually(lambda: len(watch._seen) == 2)
        seen = time.time_ns() // 1_000_000
        # A server that is killed forgets messages; the watch has to see the later ones anyway.
        client.lpop("queue", 2)
        eventually(lambda: watch._length == 1)
        client.lpush("queue", text(3))
        eventually(lambda: len(watch._seen) == 3)
        copies = watch.read()
    assert whole(copies) == [(1, False), (3, False)]
    (first,) = [copy for copy in copies if copy.version == 1]
    assert first == Copy("a", 1, 5, first.seen)
    assert first.seen <= seen


def test_a_watch_of_a_queue_gives_every_message_back(rabbitmq_server):
    queue = new_name()
    with QueueWatch(rabbitmq_server.url, queue) as watch:
        with Connection(rabbitmq_server.url) as connection:
            producer = connection.Producer()
            for version in (1, 2, 2):
                producer.publish(
                    json.dumps([[version], {}, {}]),
                    routing_key=queue,
                    headers=HEADERS,
                    content_type="application/json",
                    content_encoding="utf-8",
                )
            eventually(lambda: len(watch._seen) == 2)
        copies = watch.read()
    assert whole(copies) == [(1, False), (2, False), (2, False)]

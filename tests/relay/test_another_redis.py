"""Delivery to a Redis that is not the store's."""

import json

import pytest
import redis
from celery.utils import uuid
from kombu import VERSION, Exchange, Queue
from redis.connection import AbstractConnection

from celery_delayq.core.store.record import FORM, NAME_BYTES
from celery_delayq.errors import BrokerDown, UnreadableRecord
from tests.app.support import comparable, lists
from tests.lab.faults.proxy import Proxy
from tests.relay.house import LONG_AGO, new_name
from tests.support.copies import publish
from tests.support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": 0},
        {"priority": 4},
        {"priority": 9},
        {"queue": "mail"},
        {"headers": {"tenant": "a"}},
        {"compression": "zlib"},
        {"serializer": "pickle"},
    ],
    ids=str,
)
@pytest.mark.parametrize("prefix", ["", "shop-"])
def test_a_task_lies_where_celery_would_have_put_it(other_redis, options, prefix):
    other_redis.app.conf.broker_transport_options = {"global_keyprefix": prefix}
    task_id = uuid()
    sent = {"args": (1, "ä", 2**60), "task_id": task_id, **options}
    other_redis.task.apply_async(**sent)
    plain = lists(other_redis.client)
    other_redis.client.flushall()
    other_redis.task.apply_async(**sent, delayq_at=LONG_AGO)
    other_redis.relay_once()
    held = lists(other_redis.client)
    assert held.keys() == plain.keys()
    for key, [raw] in held.items():
        assert comparable(raw) == comparable(*plain[key])
    assert other_redis.counts() == (0, 0, 0)


def test_a_fanout_is_published(make_house, start_redis):
    queue = Queue("f", Exchange("news", "fanout"))
    server = start_redis()
    house = make_house(server.url(), task_queues=[queue], task_default_queue="f")
    listener = server.client().pubsub()
    listener.psubscribe("*")
    listener.get_message(timeout=30)
    house.due_now(task_id="a")
    house.relay_once()
    heard = listener.get_message(timeout=30)
    listener.close()
    assert json.loads(heard["data"])["headers"]["id"] == "a"
    assert house.counts() == (0, 0, 0)


def test_an_exchange_that_no_queue_is_bound_to_loses_nothing(other_redis, caplog):
    """kombu's Redis transport drops such a message without a word."""
    other_redis.due_now(task_id="a", exchange=Exchange("nowhere", "topic"), routing_key="k")
    other_redis.relay_once()
    assert other_redis.counts() == (1, 0, 0)
    assert any("no queue is bound" in message for message in caplog.messages)


@pytest.mark.parametrize("same", [True, False], ids=["the store's own Redis", "another Redis"])
def test_a_queue_that_expires_goes_through_kombu(make_house, start_redis, redis_server, same):
    queue = Queue(new_name(), queue_arguments={"x-expires": 60_000})
    server = redis_server if same else start_redis()
    house = make_house(server.url(), task_queues=[queue], task_default_queue=queue.name)
    house.task.apply_async(task_id="plain")
    # kombu 5.4 knows no such queues on Redis; later ones let the list expire.
    with server.client() as client:
        expires = client.pttl(queue.name) > 0
        assert expires or VERSION < (5, 5)
        house.ids()
        house.due_now(task_id="a")
        assert house.relay_once() == 1
        assert (0 < client.pttl(queue.name) <= 60_000) == expires
    assert house.ids() == ["a"]


def spoilt_list(house):
    house.client.set("spoilt", "not a list")
    return "spoilt"


def odd_exchange(house):
    """kombu raises a KeyError for it, which it counts among the errors of a connection."""
    house.app.amqp.queues.add(Queue("odd", Exchange("odd", "headers")))
    return "odd"


@pytest.mark.parametrize("queue", [spoilt_list, odd_exchange])
def test_a_task_whose_queue_takes_no_message_is_refused_and_others_go_on(other_redis, queue):
    other_redis.due_now(task_id="bad", queue=queue(other_redis))
    other_redis.due_now(task_id="good")
    other_redis.start()
    assert other_redis.take()[0].headers["id"] == "good"
    eventually(lambda: other_redis.delayq.get("bad").error)
    assert other_redis.counts() == (1, 0, 0)


def test_a_lost_reply_makes_one_marked_copy_and_not_ten(make_house, start_redis):
    """redis-py 8 repeats a command ten times by default."""
    server = start_redis()
    with Proxy(server.port) as proxy:
        house = make_house(
            f"redis://127.0.0.1:{proxy.port}/0", where=server.url(), delayq_safety_interval=0.2
        )
        proxy.cut_after = b"LPUSH"
        house.due_now(task_id="a")
        house.start()
        first, second = house.take(count=2)
        assert proxy.cuts == 1
        assert "delayq_redelivered" not in first.headers
        assert second.headers["delayq_redelivered"] is True
        eventually(lambda: house.counts() == (0, 0, 0))  # it is acknowledged after it arrived
        assert house.ids() == []


@pytest.mark.parametrize("earlier", [0, 2], ids=["whole", "template"])
def test_each_attempt_has_a_delivery_tag_of_its_own(other_redis, earlier):
    """Acknowledging one of two copies leaves the other one in kombu's care."""
    mine = {"delivery_tag": "mine"}
    for number in range(earlier):
        other_redis.due_now(mine, task_id=f"{number}", headers=mine)
    other_redis.relay_once()
    other_redis.client.flushall()
    other_redis.due_now(mine, task_id="a", headers=mine)
    for verdict in ("unknown", "unknown", "sent"):
        relay = other_redis.relay()
        [claimed], *_ = relay.steps.claim(1)
        assert bool(claimed.template) == bool(earlier)
        publish(other_redis.delayq, claimed)
        relay.steps.ack([claimed]) if verdict == "sent" else relay.steps.nack(verdict, [claimed])
    with other_redis.channel() as channel:
        copies = [channel.basic_get(other_redis.queue) for _ in range(3)]
        assert len({copy.delivery_tag for copy in copies}) == 3
        copies[1].ack()
        assert other_redis.client.hlen("unacked") == 2
    assert {copy.headers["delivery_tag"] for copy in copies} == {"mine"}
    assert [copy.headers["delayq_attempt"] for copy in copies] == [1, 2, 3]


def test_the_error_counts_the_tasks_that_went_before_a_reply_was_lost(make_house, start_redis):
    server = start_redis()
    with Proxy(server.port) as proxy:
        house = make_house(f"redis://127.0.0.1:{proxy.port}/0", where=server.url())
        for number in range(5):
            house.due_now(task_id=f"{number}", queue="first" if number < 3 else "second")
        proxy.cut_after = b"second"
        with pytest.raises(BrokerDown) as caught:
            house.relay_once()
    assert caught.value.sent == 3


def test_a_hung_redis_costs_one_time_out_and_not_one_per_queue(
    make_house, start_redis, monkeypatch, limits
):
    limits(publish_s=1.0)
    server = start_redis()
    house = make_house(server.url())
    relay = house.relay()
    house.due_now(task_id="warm")
    house.relay_all(relay)
    for number in range(8):
        house.due_now(task_id=f"{number}", queue=f"q{number}")
    time_outs, read = [], AbstractConnection.read_response

    def reading(self, *args, **options):
        try:
            return read(self, *args, **options)
        except redis.TimeoutError as error:
            time_outs.append(error)
            raise

    monkeypatch.setattr(AbstractConnection, "read_response", reading)
    server.pause()
    with pytest.raises(Exception, match="the broker cannot be reached"):
        relay.batch(lambda: False)
    assert len(time_outs) == 1
    server.resume()
    assert house.counts() == (8, 0, 0)


def test_a_task_that_cannot_be_assembled_becomes_dead_and_the_others_go_on(other_redis):
    # The second of a kind shares a template; a record cut off behind its name does not fit it.
    for task_id in ("first", "bad", "good"):
        other_redis.due_now(task_id=task_id)
    scripts = other_redis.delayq.services.scripts[0]
    store = redis.Redis.from_url(other_redis.app.conf.delayq_url)
    record = other_redis.delayq.services.entries.find("bad").record
    cut_off = record.text[: record.header_end + FORM + 1 + NAME_BYTES]
    store.hset(scripts.keys["records"], "bad", cut_off)
    other_redis.relay_once()
    (arrived,) = lists(other_redis.client).values()
    assert [json.loads(raw)["headers"]["id"] for raw in arrived] == ["first", "good"]
    assert other_redis.counts() == (0, 0, 1)
    with pytest.raises(UnreadableRecord, match="does not fit"):
        other_redis.delayq.get("bad")

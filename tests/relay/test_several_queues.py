"""One of an exchange's queues refuses a message: the others may have it."""

from unittest.mock import Mock

import pytest
from kombu import Exchange, Queue
from kombu.transport.redis import Channel
from redis.exceptions import ResponseError

from celery_delayq import Outcome
from celery_delayq.errors import BrokerDown
from tests.relay.house import new_name

pytestmark = pytest.mark.libraries

FULL = {"x-max-length": 0, "x-overflow": "reject-publish"}


@pytest.fixture
def on_rabbitmq(make_house, rabbitmq_server):
    exchange = Exchange(new_name("topic"), "topic")
    good = Queue(new_name(), exchange, routing_key="#")
    bad = Queue(new_name(), exchange, routing_key="#", queue_arguments=FULL)
    house = make_house(rabbitmq_server.url, task_queues=[good, bad], task_default_queue=good.name)
    house.queues = [good.name]
    return house, {"exchange": exchange.name, "routing_key": "k"}


@pytest.fixture
def on_redis(make_house, start_redis):
    """The queue that kombu pushes to last is a key of another type."""
    server = start_redis()
    exchange = Exchange("orders", "direct")
    queues = [Queue(name, exchange, routing_key="k") for name in ("a", "b", "c")]
    # The app knows none of them, so it declares none anew: a declaration would meet the key first.
    house = make_house(server.url())
    house.declare(*queues)
    with house.channel() as channel:
        *_, last = channel._lookup("orders", "k")
    server.client().set(last, "not a list")
    house.queues = sorted({"a", "b", "c"} - {last})
    return house, {"exchange": "orders", "routing_key": "k"}


@pytest.fixture(params=["on_rabbitmq", "on_redis"])
def several(request):
    return request.getfixturevalue(request.param)


def test_each_copy_after_the_first_is_marked(several):
    house, where = several
    house.due_now(task_id="a", **where)
    for _ in range(3):
        house.relay_once()
        # A refused task waits for its retry; rescheduling it only makes that sooner.
        house.delayq.reschedule("a", after=0)
    for queue in house.queues:
        copies = house.take(queue, 3)
        marks = [copy.headers.get("delayq_redelivered", False) for copy in copies]
        assert marks == [False, True, True]


@pytest.mark.parametrize(("limit", "counts"), [(8, (1, 0, 0)), (1, (0, 0, 1))])
def test_cancelling_a_refused_or_dead_task_is_uncertain(several, limits, limit, counts):
    limits(relay_refusals=limit)
    house, where = several
    house.due_now(task_id="a", **where)
    house.relay_once()
    assert house.counts() == counts
    assert house.delayq.cancel("a") is Outcome.UNCERTAIN


def test_a_task_whose_queues_cannot_be_read_after_the_refusal_is_uncertain(on_redis, monkeypatch):
    house, where = on_redis
    house.due_now(task_id="a", **where)
    put = Channel._put

    def put_or_lose_the_table(channel, *args, **options):
        try:
            put(channel, *args, **options)
        except ResponseError:
            monkeypatch.setattr(Channel, "get_table", Mock(side_effect=ResponseError))
            raise

    monkeypatch.setattr(Channel, "_put", put_or_lose_the_table)
    house.relay_once()
    assert house.counts() == (1, 0, 0)
    assert house.delayq.cancel("a") is Outcome.UNCERTAIN


def test_a_redis_that_is_full_amid_the_queues_leaves_a_task_uncertain(make_house, start_redis):
    server = start_redis()
    exchange = Exchange("orders", "topic")
    queues = [Queue(name, exchange, routing_key="#") for name in ("a", "b")]
    house = make_house(server.url(), task_queues=queues, task_default_queue="a")
    relay = house.relay()
    house.due_now(task_id="first", exchange="orders", routing_key="k")
    relay.batch(lambda: False)  # which declares the queues
    house.due_now(task_id="a", exchange="orders", routing_key="k")
    server.client().config_set("maxmemory", 1)
    with pytest.raises(BrokerDown):
        relay.batch(lambda: False)
    server.client().config_set("maxmemory", 0)
    assert house.delayq.cancel("a") is Outcome.UNCERTAIN


def test_a_task_whose_single_queue_refuses_is_cancelled_for_certain(make_house, start_redis):
    server = start_redis()
    house = make_house(server.url())
    house.declare(Queue("a", Exchange("orders", "direct"), routing_key="k"))
    server.client().set("a", "not a list")
    house.due_now(task_id="a", exchange="orders", routing_key="k")
    house.relay_once()
    assert house.delayq.cancel("a") is Outcome.DONE


def test_a_task_that_came_back_unrouted_is_cancelled_for_certain(make_house, rabbitmq_server):
    exchange = Exchange(new_name("topic"), "topic")
    house = make_house(rabbitmq_server.url)
    house.declare(exchange)
    house.due_now(task_id="a", exchange=exchange, routing_key="nobody")
    house.relay_once()
    assert house.delayq.cancel("a") is Outcome.DONE

"""The routes of relayed tasks on RabbitMQ: every kind of exchange, named in every way."""

import pytest
from kombu import Exchange, Queue

from tests.relay.house import new_name

pytestmark = [pytest.mark.core, pytest.mark.libraries]


def by_name(_house, name):
    return {"queue": name}


def by_exchange(house, name):
    exchange = Exchange(new_name("x"), "topic")
    house.declare(Queue(name, exchange, routing_key="a.*"))
    return {"exchange": exchange, "routing_key": "a.b"}


def by_exchange_name(house, name):
    """The app does not know it."""
    exchange = Exchange(new_name("x"), "direct")
    house.declare(Queue(name, exchange, routing_key="k"))
    return {"exchange": exchange.name, "routing_key": "k"}


def by_task_routes(house, name):
    house.app.conf.task_routes = {"note": {"queue": name}}
    return {}


@pytest.mark.parametrize("route", [by_name, by_exchange, by_exchange_name, by_task_routes])
def test_a_task_reaches_the_queue_of_its_route(rabbit, route):
    name = new_name()
    rabbit.due_now(task_id="a", **route(rabbit, name))
    rabbit.relay_once()
    assert rabbit.ids(name) == ["a"]


def test_a_fanout_that_nobody_listens_to_is_no_failure(make_house, rabbitmq_server):
    exchange = Exchange(new_name("fan"), "fanout")
    house = make_house(rabbitmq_server.url)
    house.declare(exchange)
    house.due_now(exchange=exchange, routing_key="")
    house.relay_once()
    assert house.counts() == (0, 0, 0)


def test_quorum_queues_and_native_delay_leave_a_scheduled_task_alone(make_house, rabbitmq_server):
    """Celery 5.5 and later would send an eta through a cascade of delay queues."""
    exchange, name = Exchange(new_name("topic"), "topic"), new_name()
    queue = Queue(name, exchange, routing_key=name, queue_arguments={"x-queue-type": "quorum"})
    house = make_house(
        rabbitmq_server.url,
        task_queues=[queue],
        task_default_queue=name,
        task_default_exchange=exchange.name,
        task_default_exchange_type="topic",
        task_default_routing_key=name,
        delayq_capture_eta=True,
    )
    house.declare(queue)
    house.task.apply_async(task_id="captured", countdown=1)
    house.due_now(task_id="asked")
    house.start()
    arrived = [message.headers["id"] for message in house.take(name, 2)]
    assert sorted(arrived) == ["asked", "captured"]


def test_entries_for_several_queues_in_one_batch_each_reach_theirs(rabbit):
    names = [new_name() for _ in range(4)]
    for number in range(40):
        rabbit.due_now(task_id=f"{number}", queue=names[number % 4])
    assert rabbit.relay_once() == 40
    for place, name in enumerate(names):
        assert rabbit.ids(name) == [f"{number}" for number in range(place, 40, 4)]


def test_a_queue_that_is_not_to_be_declared_is_not(make_house, rabbitmq_server):
    queue = Queue(new_name(), no_declare=True)
    house = make_house(rabbitmq_server.url, task_queues=[queue], task_default_queue=queue.name)
    house.due_now(task_id="a")
    house.relay_once()
    assert house.counts() == (1, 0, 0), "it is not there, so it is refused"
    house.declare(Queue(queue.name))
    house.delayq.reschedule("a", after=0)
    house.relay_once()
    assert house.ids(queue.name) == ["a"]

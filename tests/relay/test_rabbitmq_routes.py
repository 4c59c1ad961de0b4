"""The routes of relayed tasks on RabbitMQ: every kind of exchange, named in every way."""

import pytest
from kombu import Exchange, Queue

from tests.relay.house import new_name

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.fixture
def topic(make_house, rabbitmq_server):
    """A house whose queues are bound to a topic exchange."""
    exchange = Exchange(new_name("topic"), "topic")
    names = [new_name("eu"), new_name("all")]
    house = make_house(
        rabbitmq_server.url,
        task_queues=[
            Queue(names[0], exchange, routing_key="order.eu.*"),
            Queue(names[1], exchange, routing_key="order.#"),
        ],
        task_default_queue=names[1],
    )
    house.names, house.exchange = names, exchange
    return house


def test_a_queue_by_name(rabbit):
    name = new_name()
    rabbit.due_now(task_id="a", queue=name)
    rabbit.relay_once()
    assert rabbit.ids(name) == ["a"]


def test_a_route_of_the_app(make_house, rabbitmq_server):
    name = new_name()
    house = make_house(rabbitmq_server.url, task_routes={"note": {"queue": name}})
    house.due_now(task_id="a")
    house.relay_once()
    assert house.ids(name) == ["a"]


def test_a_routing_key_of_a_topic_exchange(topic):
    topic.due_now(task_id="eu", exchange=topic.exchange.name, routing_key="order.eu.1")
    topic.due_now(task_id="us", exchange=topic.exchange.name, routing_key="order.us.1")
    topic.relay_once()
    assert topic.ids(topic.names[0]) == ["eu"]
    assert topic.ids(topic.names[1]) == ["eu", "us"]


def test_an_exchange_object(rabbit):
    exchange = Exchange(new_name("x"), "topic")
    name = new_name()
    rabbit.declare(Queue(name, exchange, routing_key="a.*"))
    rabbit.due_now(task_id="a", exchange=exchange, routing_key="a.b")
    rabbit.relay_once()
    assert rabbit.ids(name) == ["a"]


def test_an_exchange_and_a_routing_key_that_the_app_does_not_know(rabbit):
    exchange, name = Exchange(new_name("x"), "direct"), new_name()
    rabbit.declare(Queue(name, exchange, routing_key="k"))
    rabbit.due_now(task_id="a", exchange=exchange.name, routing_key="k")
    rabbit.relay_once()
    assert rabbit.ids(name) == ["a"]


def test_a_fanout_reaches_every_queue(make_house, rabbitmq_server):
    exchange = Exchange(new_name("fan"), "fanout")
    queues = [Queue(new_name("f"), exchange) for _ in range(2)]
    house = make_house(rabbitmq_server.url, task_queues=queues, task_default_queue=queues[0].name)
    house.declare(*queues)
    house.due_now(task_id="a")
    house.relay_once()
    assert [house.ids(queue.name) for queue in queues] == [["a"], ["a"]]


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

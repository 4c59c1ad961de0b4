"""A RabbitMQ user that may write to its own exchange, and to nothing else."""

import pytest
from kombu import Exchange, Queue

from tests.relay.house import new_name
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture
def orders(rabbitmq_server):
    name = new_name("orders")
    control = rabbitmq_server.control
    control("add_user", name, "secret")
    control("set_permissions", name, ".*", f"^{name}", ".*")
    return name


def test_it_hands_over_what_it_may(make_house, rabbitmq_server, orders):
    exchange = Exchange(f"{orders}-x", "topic")
    queue = Queue(f"{orders}-q", exchange, routing_key="a.*")
    house = make_house(
        rabbitmq_server.url.replace("guest:guest", f"{orders}:secret"),
        where=rabbitmq_server.url,
        task_queues=[queue],
        task_default_queue=queue.name,
    )
    house.declare(queue)
    house.due_now(task_id="mine", exchange=exchange.name, routing_key="a.b")
    house.due_now(task_id="foreign", exchange="amq.topic", routing_key="a.b")
    house.start()
    eventually(lambda: house.counts() == (1, 0, 0))
    assert house.delayq.get("foreign")
    first, *copies = house.take(queue.name, count=house.left(queue.name))
    assert first.headers["id"] == "mine"
    assert all(copy.headers["delayq_redelivered"] for copy in copies)

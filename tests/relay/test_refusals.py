"""A message that the broker refuses: retried at longer and longer intervals, then dead."""

import pytest
from kombu import Exchange, Queue

from celery_delayq import State
from celery_delayq.core.handover import relay
from tests.relay.conftest import LONG
from tests.relay.house import new_name
from tests.support.shards import put_message
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture
def impatient(limits):
    """Two attempts, almost without a wait between them."""
    limits(relay_refusals=2, relay_wait_s=0.05)


def missing_queue(house):
    exchange = Exchange(new_name("x"), "direct")
    house.declare(exchange)
    return {"exchange": exchange.name, "routing_key": "nobody"}


def missing_exchange(_house):
    return {"exchange": new_name("absent"), "routing_key": "k"}


def declared_otherwise(house):
    name = new_name()
    house.declare(Queue(name, queue_arguments={"x-max-priority": 3}))
    return {"queue": name}


def name_too_long(_house):
    """AMQP has one byte for a key's length; py-amqp raises a connection error for a longer one."""
    return {"exchange": "amq.direct", "routing_key": "k" * 256}


def full_queue(house):
    name = new_name()
    queue = Queue(name, queue_arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    house.declare(queue)
    house.app.amqp.queues.add(queue)
    return {"queue": name}


# Each with a part of its reason.
TROUBLES = {
    missing_queue: "NO_ROUTE",
    missing_exchange: "no exchange",
    declared_otherwise: "inequivalent arg",
    name_too_long: "255",
    full_queue: "nack",
}


@pytest.fixture(params=TROUBLES, ids=lambda trouble: trouble.__name__)
def trouble(request, rabbit):
    rabbit.trouble = request.param
    return request.param(rabbit)


def test_a_refused_task_is_dead_after_the_limit_with_its_reason(rabbit, trouble, impatient):
    rabbit.due_now(task_id="bad", **trouble)
    rabbit.start()
    eventually(lambda: rabbit.counts() == (0, 0, 1))
    found = rabbit.delayq.get("bad")
    assert found.state is State.DEAD
    assert TROUBLES[rabbit.trouble] in found.reason


def test_a_refused_task_is_tried_again_later_and_counted(rabbit, trouble, caplog):
    rabbit.due_now(task_id="bad", **trouble)
    before = rabbit.delayq.counts().now_ms
    rabbit.relay_once()
    after = rabbit.delayq.counts().now_ms
    assert rabbit.counts() == (1, 0, 0)
    next_try = rabbit.delayq.get("bad").next_try.timestamp() * 1000
    assert before + 2000 <= next_try <= after + 2001, "it waits"
    queue = trouble.get("queue", trouble.get("routing_key"))
    said = f"task bad: attempt 1 was refused, next in 2 s: note, for the queue {queue}: "
    assert any(said in one for one in caplog.messages)


def test_tasks_beside_a_refused_one_go_on_each_once(rabbit, trouble):
    """The bad one is in the middle of a batch."""
    wanted = [f"{number:02}" for number in range(40)]
    for task_id in wanted:
        if task_id == "20":
            rabbit.due_now(task_id="bad", **trouble)
        rabbit.due_now(task_id=task_id)
    rabbit.start()
    eventually(lambda: rabbit.left() >= 40)
    eventually(lambda: rabbit.counts() == (1, 0, 0))
    assert sorted(rabbit.ids()) == wanted


def test_many_refused_tasks_do_not_hold_up_a_good_one(rabbit, trouble):
    for number in range(30):
        rabbit.due_now(task_id=f"bad{number}", **trouble)
    rabbit.due_now(task_id="good")
    rabbit.start()
    assert rabbit.take()[0].headers["id"] == "good"


def test_a_refused_task_goes_once_the_trouble_is_gone(rabbit, impatient, limits):
    limits(relay_refusals=1000)
    exchange, name = Exchange(new_name("x"), "direct"), new_name()
    rabbit.declare(exchange)
    rabbit.due_now(task_id="late", exchange=exchange.name, routing_key="k")
    rabbit.relay_once()
    rabbit.declare(Queue(name, exchange, routing_key="k"))
    rabbit.start()
    [message] = rabbit.take(name)
    assert message.headers["id"] == "late"
    assert message.headers["delayq_attempt"] >= 2
    assert "delayq_redelivered" not in message.headers, "it was never delivered"


def test_a_queue_that_was_deleted_is_declared_again(rabbit):
    relay = rabbit.relay()
    rabbit.due_now(task_id="a")
    relay.batch(lambda: False)
    with rabbit.channel() as channel:
        channel.queue_delete(rabbit.queue)
    rabbit.due_now(task_id="b")
    relay.batch(lambda: False)
    assert rabbit.counts() == (1, 0, 0)
    assert rabbit.delayq.reschedule("b", after=0)
    relay.batch(lambda: False)
    assert rabbit.ids() == ["b"]


@pytest.mark.parametrize(
    "spoilt", [b"{", b'{"headers": null, "properties": {}, "body": {"a": ', b'{"a": {"b": ']
)
def test_a_message_that_cannot_be_read_becomes_dead_and_others_go_on(rabbit, redis_server, spoilt):
    rabbit.due_now(task_id="bad")
    rabbit.due_now(task_id="good")
    with redis_server.client() as client:
        put_message(client, "bad", spoilt)
    rabbit.relay_once()
    assert rabbit.ids() == ["good"]
    assert rabbit.counts() == (0, 0, 1)
    assert "cannot be read" in rabbit.delayq.get("bad").reason


@pytest.fixture
def limited(make_house, rabbitmq_server):
    """A house whose user may write to, and declare, what begins with its name; and a permitter."""
    user = new_name("orders")

    def permit(configure=f"^{user}", write=f"^{user}"):
        rabbitmq_server.control("set_permissions", user, configure, write, ".*")

    rabbitmq_server.control("add_user", user, "secret")
    permit()
    queue = Queue(f"{user}-q", Exchange(f"{user}-x", "topic"), routing_key="a.*")
    house = make_house(
        rabbitmq_server.url.replace("guest:guest", f"{user}:secret"),
        where=rabbitmq_server.url,
        task_queues=[queue],
        task_default_queue=queue.name,
    )
    house.declare(queue)
    house.mine = {"exchange": queue.exchange.name, "routing_key": "a.b"}
    return house, permit


FOREIGN = {"exchange": "amq.topic", "routing_key": "a.b"}


def denied_to_write(house):
    queue = Queue(new_name(), Exchange("amq.topic"), routing_key="a.b")
    house.declare(queue)
    return queue.name, FOREIGN


def denied_to_declare(house):
    name = new_name()
    house.declare(Queue(name, Exchange(name), routing_key=name))
    return name, {"queue": name}


@pytest.mark.parametrize("denied", [denied_to_write, denied_to_declare])
def test_a_task_waits_for_a_right_however_often_it_is_denied(limited, denied, impatient, limits):
    limits(broker_denied_s=0)
    house, permit = limited
    queue, where = denied(house)
    house.due_now(task_id="foreign", **where)
    house.start()
    eventually(lambda: house.delayq.get("foreign").attempts > relay.MAX_REFUSALS + 1)
    assert house.counts() == (1, 0, 0)
    assert "ACCESS_REFUSED" in house.delayq.get("foreign").error

    permit(".*", ".*")

    [message] = house.take(queue)
    assert message.headers["id"] == "foreign"
    assert "delayq_redelivered" not in message.headers


def test_a_refusal_is_counted_from_when_the_right_is_there(limited, impatient, limits):
    limits(broker_denied_s=0)
    house, permit = limited
    house.due_now(task_id="nobody's", exchange="amq.topic", routing_key=new_name())
    house.start()
    eventually(lambda: house.delayq.get("nobody's").attempts > relay.MAX_REFUSALS)

    permit(write=".*")

    eventually(lambda: house.counts() == (0, 0, 1))
    assert "NO_ROUTE" in house.delayq.get("nobody's").reason


def test_tasks_beside_denied_ones_flow_unmarked_while_the_right_is_missing(limited, limits):
    limits(broker_denied_s=LONG)
    house, _ = limited
    steps = house.relay()
    house.due_now(task_id="first", **FOREIGN)
    steps.batch(lambda: False)

    for number in range(40):
        name, where = ("denied", FOREIGN) if number % 2 else ("mine", house.mine)
        house.due_now(task_id=f"{name} {number:02}", **where)
    steps.batch(lambda: False)

    arrived = house.take(count=20)
    assert [one.headers["id"] for one in arrived] == [f"mine {n:02}" for n in range(0, 40, 2)]
    assert not any("delayq_redelivered" in one.headers for one in arrived)
    assert house.counts() == (21, 0, 0)


def test_a_user_hands_over_what_it_may_write_and_the_rest_waits(limited):
    house, _ = limited
    house.due_now(task_id="mine", **house.mine)
    house.due_now(task_id="foreign", **FOREIGN)
    house.start()
    eventually(lambda: house.counts() == (1, 0, 0))
    assert house.delayq.get("foreign")
    first, *copies = house.take(count=house.left())
    assert first.headers["id"] == "mine"
    assert all(copy.headers["delayq_redelivered"] for copy in copies)

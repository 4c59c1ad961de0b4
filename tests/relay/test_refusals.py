"""A message that the broker, or one of several queues, refuses: tried again, then dead."""

from unittest.mock import Mock

import pytest
from kombu import Exchange, Queue
from kombu.transport.redis import Channel
from redis.exceptions import ResponseError

from celery_delayq import Outcome, State
from celery_delayq.core.handover import relay
from celery_delayq.errors import BrokerDown
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


# One of an exchange's queues refuses a message: the others may have it.


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

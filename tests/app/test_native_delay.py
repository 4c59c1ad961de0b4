"""Celery's own delayed delivery with quorum queues: a scheduled message undoes it.

Celery 5.5 and later rewrite the exchange and routing key of a message with an eta. A scheduled
message goes to the queue that it would have reached without an eta.
"""

import json
import uuid

import pytest
from kombu import Exchange, Queue

from celery_delayq.core.message import broker
from tests.app.support import FAR
from tests.support.ports import free_port
from tests.support.shards import keys_of

pytestmark = pytest.mark.libraries

TOPIC = Exchange("shop", type="topic")
QUORUM = {"queue_arguments": {"x-queue-type": "quorum"}}
ORDERS = Queue("orders", TOPIC, routing_key="order.new", **QUORUM)
MAIL = Queue("mail", TOPIC, routing_key="mail.#", **QUORUM)


@pytest.fixture
def app_with(delayq_app, url):
    """Make an app that captures, whose default queue is the first: ``app_with(ORDERS, MAIL)``."""

    def app_with(first, *more, broker=None):
        return delayq_app(
            broker or f"amqp://127.0.0.1:{free_port()}//",
            delayq_url=url,
            delayq_capture_eta=True,
            task_queues=[first, *more],
            task_default_queue=first.name,
            task_default_exchange=first.exchange.name,
            task_default_exchange_type=first.exchange.type,
            task_default_routing_key=first.routing_key,
        )

    return app_with


@pytest.fixture
def quorum_app(app_with):
    return app_with(ORDERS, MAIL)


@pytest.fixture
def amqp(quorum_app):
    return quorum_app.amqp


def route_of(redis, task_id):
    """The route by which a scanner would publish an entry."""
    record = redis.hget(keys_of(task_id)["records"], task_id)
    length, rest = record[2:].split(b":", 1)
    return json.loads(rest[: int(length)])


@pytest.mark.parametrize("options", [{}, {"queue": "orders"}, {"queue": "mail"}], ids=repr)
def test_a_captured_countdown_goes_where_the_task_would_have_gone_at_once(
    quorum_app, redis, options
):
    plain = quorum_app.send_task("t", delayq_after=3600, **options)

    captured = quorum_app.send_task("t", countdown=3600, **options)

    assert quorum_app.delayq.get(captured.id).queue == options.get("queue", "orders")
    assert route_of(redis, captured.id) == route_of(redis, plain.id)
    assert "celery_delayed" not in json.dumps(route_of(redis, captured.id))


OTHER = Exchange("other", type="topic")
FIRST = Queue("first", Exchange("direct"), routing_key="k")
ONE, TWO = (
    Queue(name, exchange, routing_key="k", **QUORUM)
    for name, exchange in (("one", TOPIC), ("two", OTHER))
)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "one"},
        {"queue": "two"},
        {"queue": TWO},
        {"exchange": "other", "routing_key": "k", "exchange_type": "topic"},
        {"exchange": "elsewhere", "routing_key": "unknown", "exchange_type": "topic"},
    ],
    ids=repr,
)
def test_of_queues_that_are_bound_with_one_key_it_goes_to_the_right_one(
    delayq_app, url, redis, options
):
    app = delayq_app(
        f"amqp://127.0.0.1:{free_port()}//",
        delayq_url=url,
        delayq_capture_eta=True,
        task_queues=[FIRST, ONE, TWO],
        task_default_queue="one",
        task_routes={"routed": {"queue": "two"}},
    )
    for name in ("t", "routed"):
        plain = app.send_task(name, delayq_after=3600, **options)

        captured = app.send_task(name, countdown=3600, **options)

        assert route_of(redis, captured.id) == route_of(redis, plain.id)


def test_only_for_an_amqp_broker_is_the_router_listened_to(quorum_app, delayq_app, url):
    on_redis = delayq_app(url)

    assert "route" in vars(quorum_app.amqp.router)
    assert "route" not in vars(on_redis.amqp.router)


def test_the_route_of_another_call_is_not_taken(amqp, quorum_app):
    quorum_app.amqp.router.route({"queue": "mail"}, "t")
    options = rewritten("order.new")

    broker.undo(options, amqp)

    assert options["queue"].name == "orders"


def rewritten(routing_key, exchange=None):
    """The routing key into which Celery rewrites this one for a countdown of 5 seconds."""
    digits = ".".join(f"{5:028b}")
    return {"exchange": exchange or "celery_delayed_27", "routing_key": f"{digits}.{routing_key}"}


@pytest.mark.parametrize(
    "exchange",
    ["celery_delayed_27", Exchange("celery_delayed_27", "topic"), "shop_celery_delayed_27"],
    ids=str,
)
def test_the_digits_are_taken_off_and_the_queue_with_that_key_is_found(amqp, exchange):
    options = {**rewritten("order.new", exchange), "priority": 3}

    broker.undo(options, amqp)

    assert options["queue"].name == "orders"
    assert (options["exchange"], options["routing_key"]) == (None, "order.new")
    assert options["priority"] == 3


def test_a_key_that_no_queue_has_goes_to_the_default_queue_s_exchange(amqp):
    options = rewritten("other.key")

    broker.undo(options, amqp)

    assert options["queue"].name == "orders"
    assert options["routing_key"] == "other.key"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "mail"},
        {"exchange": "shop", "routing_key": "1.0.1"},
        {"exchange": TOPIC},
        {"exchange": "celery_delayed_27", "routing_key": "1.0.1"},
        {"exchange": "shop_celery_delayed_26", "routing_key": f"{'0.' * 28}k"},
    ],
    ids=repr,
)
def test_options_that_celery_did_not_rewrite_stay_as_they_are(amqp, options):
    before = dict(options)

    broker.undo(options, amqp)

    assert options == before


def test_on_rabbitmq_a_captured_task_arrives_in_its_quorum_queue(app_with, rabbitmq_server):
    mark = uuid.uuid4().hex
    exchange = Exchange(f"x-{mark}", type="topic")
    queue = Queue(f"q-{mark}", exchange, routing_key=f"key.{mark}", **QUORUM)
    app = app_with(queue, broker=rabbitmq_server.url)
    result = app.send_task("t", (1,), countdown=FAR / 1000)
    app.delayq.reschedule(result.id, 0)

    assert app.delayq.hand_over() == 1

    with app.connection_for_read() as connection:
        headers = queue(connection.default_channel).get(no_ack=True).headers
    assert (headers["id"], headers["eta"], headers["delayq_due"]) == (result.id, None, 0)

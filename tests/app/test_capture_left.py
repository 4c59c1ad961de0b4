"""Captured calls that the store does not take, and those for which Celery has delays of its own."""

import base64
import json
import logging
import re
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery, signals
from celery.exceptions import Ignore, Retry
from kombu import Connection, Exchange, Queue

from celery_delayq.core import clock
from celery_delayq.core.message import broker
from celery_delayq.core.message.headers import identity_of
from celery_delayq.core.scheduling import writing
from celery_delayq.errors import StoreDiffers, StoreFull, StoreUnavailable
from tests.app.support import FAR, lists, noop, only_message
from tests.app.test_defer import run
from tests.support.network import QUICK
from tests.support.ports import free_port
from tests.support.shards import keys_of
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


# Celery sends a captured task that the store does not take, as it would without the package.


DUE = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=30)
CALLS = {
    "eta": {"eta": DUE},
    "countdown": {"countdown": 3600},
    "expires": {"eta": DUE, "expires": DUE + timedelta(hours=1)},
    "seconds": {"eta": DUE, "expires": 600},
    "priority": {"eta": DUE, "priority": 7},
    "headers": {"eta": DUE, "headers": {"tenant": "t1"}, "shadow": "other"},
    "serializer": {"eta": DUE, "serializer": "pickle", "compression": "zlib"},
    "queue": {"eta": DUE, "queue": "mail"},
    "exchange": {"eta": DUE, "exchange": "shop", "routing_key": "order.new"},
    "properties": {"eta": DUE, "delivery_mode": 1, "app_id": "shop", "user": "u"},
    "links": {"eta": DUE, "link": {"task": "next", "args": [], "kwargs": {}, "options": {}}},
}


def send(app, **options):
    fixed = {"task_id": "a", "reply_to": "r", "root_id": "root", "parent_id": "parent"}
    return app.send_task("t", (1, ["x"]), {"y": 2}, **fixed, **options)


def away():
    """The URL of a Redis that is not there."""
    return f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def capturing(delayq_app, url):
    """Make an app that captures: ``capturing(STORE, broker)``."""
    conf = {"delayq_capture_eta": True, "task_publish_retry_policy": QUICK}
    return lambda store, broker=url, **more: delayq_app(broker, delayq_url=store, **conf, **more)


@pytest.fixture
def refused(capturing):
    """An app that captures, whose store is not there."""
    return capturing(away())


def agree(headers, plain, properties, plain_properties):
    """Compare headers and properties; times that count from the call differ a little."""
    for name in ("eta", "expires"):
        ours, theirs = headers.pop(name), plain.pop(name)
        if ours != theirs:
            apart = datetime.fromisoformat(ours) - datetime.fromisoformat(theirs)
            assert abs(apart) < timedelta(minutes=5)
    ours, theirs = (int(one.pop("expiration", 0)) for one in (properties, plain_properties))
    assert abs(ours - theirs) < 300_000
    assert (headers, properties) == (plain, plain_properties)


@pytest.mark.parametrize("call", CALLS)
def test_on_redis_it_is_byte_for_byte_the_message_that_plain_celery_sends(
    refused, redis, stranger, call
):
    queues = [Queue("orders", Exchange("shop"), routing_key="order.new"), Queue("mail")]
    made = []
    with stranger.connection() as connection:
        queues[0](connection).declare()
    for app in (stranger, refused):
        app.conf.update(task_queues=[*queues, Queue("celery")], task_default_queue="celery")
        send(app, **CALLS[call])
        key, raw = only_message(redis)
        message = json.loads(raw)
        message["properties"].pop("delivery_tag")
        names = list(message["headers"]), list(message["properties"])
        parts = message.pop("headers"), message.pop("properties")
        made.append((parts, (key, names, message)))
        redis.delete(key)

    ((plain, plain_properties), whole), ((headers, properties), ours) = made
    agree(headers, plain, properties, plain_properties)
    assert ours == whole


class Rabbit:
    """A queue of RabbitMQ: a classic one, or a quorum queue, for which Celery uses other queues."""

    def __init__(self, url, kind):
        self.url, self.name = url, f"left-{uuid.uuid4()}"
        self.conf = {"task_default_queue": self.name}
        self.read_from = self.name
        if kind == "quorum":
            delays = pytest.importorskip("kombu.transport.native_delayed_delivery")
            self.read_from = "celery_delayed_16"  # at least 65,536 s, and less than twice that
            self._use_quorum()
            with Connection(url) as connection:
                delays.declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")

    def _use_quorum(self):
        exchange, key = Exchange(self.name, type="topic"), f"{self.name}.new"
        arguments = {"x-queue-type": "quorum"}
        queue = Queue(self.name, exchange, routing_key=key, queue_arguments=arguments)
        self.conf.update(
            task_queues=[queue],
            task_default_exchange=self.name,
            task_default_exchange_type="topic",
            task_default_routing_key=key,
        )

    def only_message(self):
        """Its way, its properties and its body; the time of its delay as a number."""
        with Connection(self.url) as connection:
            message = eventually(
                lambda: connection.default_channel.basic_get(self.read_from, no_ack=True)
            )
        digits, _, key = message.delivery_info["routing_key"].rpartition("left-")
        delay = int(digits.replace(".", "") or "0", 2)
        return (message.delivery_info["exchange"], key), delay, message.properties, message.body


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("call", ["eta", "expires", "seconds", "priority", "serializer"])
def test_on_rabbitmq_it_is_the_message_that_plain_celery_sends(
    capturing, rabbitmq_server, call, kind
):
    rabbit = Rabbit(rabbitmq_server.url, kind)
    app = capturing(away(), rabbit.url, **rabbit.conf)
    tomorrow = clock.utc_now() + timedelta(days=1)
    options = {**CALLS[call], "eta": tomorrow}
    with Celery("stranger", broker=rabbit.url, set_as_current=False) as stranger:
        stranger.conf.update(rabbit.conf)
        send(stranger, **options)
        way, delay, plain, body = rabbit.only_message()
        send(app, **options)
    our_way, our_delay, ours, our_body = rabbit.only_message()

    assert ours.pop("message_id")
    agree(ours.pop("application_headers"), plain.pop("application_headers"), ours, plain)
    assert abs(our_delay - delay) < 300
    assert (our_way, our_body) == (way, body)


def test_celery_s_signals_come_once_and_its_event_is_sent(refused, redis, listen):
    refused.conf.task_send_sent_event = True
    heard = []

    def before(headers, **_):
        headers["traced"] = 1
        heard.append("before")

    def after(headers, **_):
        heard.append(("after", headers["eta"]))

    listen(signals.before_task_publish, before)
    listen(signals.after_task_publish, after)
    with redis.pubsub() as events:
        events.psubscribe("*celeryev*")
        eventually(events.get_message)
        send(refused, eta=DUE)
        event = eventually(events.get_message)

    assert heard == ["before", ("after", DUE.isoformat())]
    assert json.loads(only_message(redis)[1])["headers"]["traced"] == 1
    assert b"task-sent" in base64.b64decode(json.loads(event["data"])["body"])


def full(redis):
    redis.config_set("maxmemory-policy", "noeviction")
    redis.config_set("maxmemory", 1)


def resharding(redis):
    redis.hset("{delayq:0}:meta", mapping={"closed": "1 1 3 run", "schema": "1", "shards": "1"})


def of_another_layout(redis):
    redis.hset("{delayq:0}:meta", mapping={"schema": "99", "shards": "1"})


STORES = {
    "full": (full, StoreFull, "used memory"),
    "resharding": (resharding, StoreUnavailable, "it can only be read"),
    "another layout": (of_another_layout, StoreDiffers, "the store has layout '99'"),
}


@pytest.fixture(params=STORES)
def spoilt(request, capturing, start_redis):
    """An app that captures, whose store, a Redis of its own, refuses; the error and its reason."""
    spoil, error, why = STORES[request.param]
    store = start_redis()
    with store.client() as client:
        spoil(client)
    return capturing(store.url()), error, why


def test_a_message_that_the_store_refuses_for_any_reason_is_sent_unmarked(spoilt, redis, caplog):
    app, error, why = spoilt

    with caplog.at_level(logging.WARNING, "celery_delayq"):
        send(app, eta=DUE)

    headers = json.loads(only_message(redis)[1])["headers"]
    assert headers["eta"] == DUE.isoformat()
    assert not [name for name in headers if name.startswith("delayq_")]
    [told] = [one for one in caplog.messages if "left to Celery" in one]
    pattern = r"task a is left to Celery, as are all captured calls of the next \d+ s: "
    assert re.match(pattern, told)
    assert why in told
    with pytest.raises(error):
        app.send_task("t", delayq_after=60)


@pytest.mark.parametrize("option", [{"delayq_key": "k"}, {"delayq_tags": ["x"]}])
def test_a_call_with_an_option_of_ours_is_refused(refused, redis, option):
    with pytest.raises(StoreUnavailable):
        send(refused, eta=DUE, **option)

    assert lists(redis) == {}


def test_a_default_of_its_task_is_no_option_of_the_call(refused, redis):
    refused.task(name="tagged", delayq_tags=["x"])(noop).apply_async(eta=DUE)

    assert len(lists(redis)) == 1


def test_after_a_refusal_the_store_is_left_alone_for_a_while_and_then_asked_again(
    capturing, redis, hanging_up, monkeypatch
):
    app = capturing(f"redis://127.0.0.1:{hanging_up.port}/0", task_publish_retry=False)
    app.send_task("t", eta=DUE)
    asked = hanging_up.connections
    for _ in range(3):
        app.send_task("t", eta=DUE)
    assert (hanging_up.connections, redis.llen("celery")) == (asked, 4)
    with pytest.raises(StoreUnavailable):
        app.send_task("t", delayq_after=60)
    assert hanging_up.connections > asked

    asked, now = hanging_up.connections, clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: now() + 10 * PATIENCE)
    app.send_task("t", eta=DUE)

    assert hanging_up.connections > asked


def test_a_store_is_left_alone_for_nine_times_as_long_as_it_took_to_refuse(monkeypatch):
    times = iter([100.0, 144.9, 145.1])
    monkeypatch.setattr(clock, "monotonic", lambda: next(times))
    refusals = writing.Refusals()

    assert refusals.note(95.0) == 45.0
    assert [refusals.is_recent, refusals.is_recent] == [True, False]


def test_a_store_that_is_back_takes_captured_calls_again(capturing, redis, start_redis):
    store = start_redis("--appendonly", "yes")
    app = capturing(store.url(), task_publish_retry=False)
    store.kill()
    app.send_task("t", task_id="a", eta=DUE)
    store.start()
    app.amqp.send_task_message.refusals = writing.Refusals()  # as after these seconds

    app.send_task("t", task_id="b", eta=DUE)

    assert (redis.llen("celery"), [one.id for one in app.delayq.tasks()]) == (1, ["b"])


def later(app):
    """A task that puts itself off."""

    @app.task(name="later", bind=True, shared=False)
    def later(self, _x):
        raise self.defer(after=3600)

    return later


HOLD = {"id": "a", "key": "k", "delivery": "d", "ms": 5000}


@pytest.mark.parametrize("is_recent", [False, True], ids=["refused", "refused before"])
def test_a_task_that_puts_itself_off_goes_to_its_queue_with_an_eta_its_count_and_its_hold(
    refused, redis, is_recent
):
    if is_recent:
        refused.send_task("t", eta=DUE, queue="others")
        redis.delete("others")
    before = clock.utc_now()

    with pytest.raises(Ignore):
        run(later(refused), delayq_hold=HOLD, delayq_put_offs=2, headers={"delayq_put_offs": 2})

    key, raw = only_message(redis)
    headers = json.loads(raw)["headers"]
    wait = datetime.fromisoformat(headers["eta"]) - before
    assert key == b"mail\x06\x163"
    assert timedelta(hours=1) <= wait < timedelta(hours=1, minutes=5)
    assert (headers["id"], headers["delayq_put_offs"], headers["delayq_hold"]) == ("a", 3, HOLD)


def test_a_retry_takes_its_hold_along(refused, redis):
    @refused.task(name="again", bind=True, shared=False, max_retries=3)
    def again(self, _x):
        raise self.retry(countdown=3600)

    with pytest.raises(Retry):
        run(again, delayq_hold=HOLD)

    headers = json.loads(only_message(redis)[1])["headers"]
    assert (headers["retries"], headers["delayq_hold"]) == (1, HOLD)


@pytest.fixture
def unanswered(capturing, swallowing, passing):
    """An app whose store does all requests with `the-id` in them, and whose calls get no answer."""
    proxy = swallowing(b"the-id", times=99)
    with passing(proxy):
        yield capturing(f"redis://127.0.0.1:{proxy.port}/0")


@pytest.fixture
def answered(delayq_app, url):
    """An app with the same store, which answers."""
    return delayq_app(url)


def test_a_call_that_gets_no_answer_is_sent_too_with_its_id_and_a_mark(
    unanswered, answered, redis, caplog
):
    with caplog.at_level(logging.WARNING, "celery_delayq"):
        began = clock.monotonic()
        unanswered.send_task("t", task_id="the-id", eta=DUE)
        assert clock.monotonic() - began >= PATIENCE  # asked until the call's end

    headers = json.loads(only_message(redis)[1])["headers"]
    assert (headers["id"], headers["delayq_redelivered"]) == ("the-id", True)
    assert answered.delayq.get("the-id").due == DUE
    assert (
        "task the-id is left to Celery as well, marked as a possible duplicate, as" in caplog.text
    )


@pytest.mark.parametrize("done", [True, False])
def test_a_task_that_puts_itself_off_without_an_answer_has_its_message_s_name_in_the_copy(
    unanswered, answered, redis, done
):
    """By that name a worker asks whether the message became an entry, and drops the copy then."""

    with pytest.raises(Ignore):
        run(later(unanswered), task_id="the-id")

    headers = json.loads(only_message(redis)[1])["headers"]
    assert (headers["delayq_redelivered"], headers["delayq_hand_over"]) == (True, "t1")
    if not done:  # as if no request had arrived
        redis.flushall()
    name, until = identity_of("the-id", headers, {}), clock.monotonic() + PATIENCE
    assert answered.delayq.services.copies.is_taken(name, until) is done


# Celery's own delayed delivery with quorum queues: a scheduled message undoes it.


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

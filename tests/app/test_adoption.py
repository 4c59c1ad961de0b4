"""Messages that this package did not schedule: a worker schedules them, or leaves them."""

import json
import logging
from datetime import datetime, timedelta, timezone
from threading import Event
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from celery.worker import state
from kombu import Exchange, Queue
from kombu.common import QoS

from celery_delayq.contrib.adoption.adopting import AdoptingStep
from celery_delayq.core import clock
from tests.app.support import FAR, LONG_AGO, comparable, envelope, lists, noop, only_message, to_ms
from tests.app.test_keys import TERMS, WORDS, terms
from tests.support.network import AWAY, CUT, FULL
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


# A process without `DelayQ(app)` sends a task at once; the receiving worker schedules it.


DUE = datetime.fromtimestamp(FAR, timezone.utc)


class Consumer:
    """As much of a worker's consumer as the step needs."""

    connection_errors = ()

    def __init__(self, app):
        self.app, self.strategies = app, {}
        self.ran, self.acked = [], []
        self.step = AdoptingStep(self)
        self.update_strategies()

    def update_strategies(self):
        self.strategies["t"] = lambda message, *_: self.ran.append(message)

    def receive(self, queue="celery", **info):
        with self.app.connection_for_read() as connection:
            simple = connection.SimpleQueue(queue, no_ack=True, accept=["json", "pickle"])
            message = simple.get_nowait()
            message.delivery_info.update(info)
            self.take(message)
            simple.close()
        return message

    def take(self, message):
        body = None if "task" in message.headers else message.payload
        ack = lambda *_: self.acked.append(message.properties["correlation_id"])  # noqa: E731
        self.strategies["t"](message, body, ack, None, [])


@pytest.fixture
def consumer(app):
    return Consumer(app)


OPTIONS = [
    {},
    {"priority": 4},
    {"headers": {"trace": "ü"}},
    {"serializer": "pickle"},
    {"compression": "zlib"},
    {"eta": DUE},
    {"expires": DUE},
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_an_adopted_task_waits_and_then_arrives_as_it_was_sent(
    stranger, consumer, delayq, redis, options
):
    plain = {name: value for name, value in options.items() if name != "eta"}
    stranger.send_task("t", (1,), {"x": "ü"}, task_id="a", **plain)
    key, sent = only_message(redis)
    redis.flushall()

    stranger.send_task("t", (1,), {"x": "ü"}, task_id="a", delayq_at=LONG_AGO, **options)
    consumer.receive(key.decode())
    assert (consumer.ran, consumer.acked) == ([], ["a"])
    assert delayq.hand_over() == 1

    arrived_in, arrived = only_message(redis)
    assert arrived_in == key
    assert without_origin(arrived) == without_origin(sent)


def without_origin(raw):
    message = comparable(raw)
    message["headers"].pop("origin")
    return message


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("when", [DUE, FAR])
def test_an_adopted_task_is_due_when_its_sender_wanted(stranger, consumer, delayq, protocol, when):
    stranger.conf.task_protocol = protocol

    stranger.send_task("t", (1,), task_id="a", delayq_at=when)
    consumer.receive()

    assert to_ms(delayq.get("a").due) == FAR * 1000
    assert delayq.get("a").args == (1,)


@pytest.mark.parametrize("protocol", [1, 2])
def test_an_adopted_task_has_the_entry_options_of_its_call_and_else_of_its_task(
    stranger, app, delayq, protocol
):
    stranger.conf.task_protocol = protocol
    app.task(name="t", delayq_tags=["a"])(noop)
    consumer = Consumer(app)

    stranger.send_task("t", task_id="a", delayq_at=FAR, **WORDS)
    consumer.receive()
    stranger.send_task("t", task_id="b", delayq_at=FAR)
    consumer.receive()

    assert terms(delayq, "a") == TERMS
    assert terms(delayq, "b") == ("", ("a",), None)
    assert "delayq_key" not in str(envelope(delayq, "a").raw)


def test_a_task_that_a_worker_would_adopt_is_dropped_if_its_key_is_taken(
    stranger, consumer, add, delayq, caplog
):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")
    stranger.send_task("t", task_id="late", delayq_at=FAR, delayq_key="k")

    consumer.receive()

    assert (consumer.acked, consumer.ran) == (["late"], [])
    assert caplog.messages == [f"task late: dropped, as task {holder.id} has its key"]
    assert [task.id for task in delayq.tasks()] == [holder.id]


def test_the_log_says_who_sent_it_and_what_to_do(stranger, consumer, delayq, redis, caplog):
    stranger.send_task("t", task_id="a", delayq_after=3600)
    origin = json.loads(only_message(redis)[1])["headers"]["origin"]

    consumer.receive()

    assert delayq.get("a") is not None
    [said] = caplog.messages
    assert said == (
        f"task a: scheduled on arrival; {origin} sent it at once, as its app has no DelayQ; "
        "create DelayQ(app) there"
    )


def test_a_message_without_properties_is_celery_s(consumer):
    message = Mock(headers={"id": "a", "task": "t"})  # as in the tests of Celery's worker

    consumer.strategies["t"](message, None, None, None, [])

    assert consumer.ran == [message]


@pytest.mark.parametrize("options", [{}, {"delayq_key": "k"}], ids=["plain", "key"])
def test_a_redelivered_copy_is_dropped_while_the_task_waits(
    stranger, consumer, delayq, caplog, options
):
    for _ in range(2):
        stranger.send_task("t", task_id="a", delayq_at=FAR, **options)
        consumer.receive()

    assert delayq.counts().scheduled == 1
    assert (consumer.ran, consumer.acked) == ([], ["a", "a"])
    assert caplog.messages[1] == "task a: dropped this copy, as the task is already waiting"


def test_a_message_of_any_size_waits(stranger, consumer, app, delayq):
    app.conf.delayq_max_message = 10_000
    stranger.send_task("t", ("x" * 20_000,), task_id="a", delayq_at=FAR)

    consumer.receive()

    assert delayq.state("a") == "SCHEDULED"
    assert (consumer.ran, consumer.acked) == ([], ["a"])


@pytest.mark.parametrize(
    "wrong", [{"delayq_at": "nonsense"}, {"delayq_eta": 5}, {"delayq_key": "k"}], ids=str
)
def test_a_task_with_a_wrong_option_runs_at_once_and_logs_an_error(
    stranger, consumer, delayq, caplog, wrong
):
    stranger.send_task("t", task_id="a", **wrong)

    consumer.receive()

    assert len(consumer.ran) == 1
    assert delayq.counts().scheduled == 0
    assert caplog.records[0].levelno == logging.ERROR
    assert caplog.messages[0].startswith("task a: runs at once: ")


def test_a_message_that_the_store_does_not_take_is_left_to_the_broker(
    between, stranger, consumer, caplog
):
    between.before("schedule", lambda: AWAY)
    stranger.send_task("t", task_id="a", delayq_at=FAR)

    consumer.receive()

    assert (consumer.ran, consumer.acked) == ([], [])
    [line] = caplog.messages
    assert line.startswith("task a: left to its broker, not scheduled: schedule failed: NOREPLICAS")


def test_a_plain_task_and_a_delivered_one_run_at_once(stranger, consumer, app, add, redis):
    stranger.send_task("t", task_id="plain")
    app.send_task("t", task_id="handed over", delayq_at=LONG_AGO)
    app.delayq.hand_over()

    for _ in range(2):
        consumer.receive()

    ids = [one.properties["correlation_id"] for one in consumer.ran]
    assert ids == ["plain", "handed over"]
    assert lists(redis) == {}


def test_an_app_without_a_delayq_is_left_alone(stranger):
    consumer = SimpleNamespace(app=stranger, update_strategies=len)

    AdoptingStep(consumer)

    assert consumer.update_strategies is len


# A worker and a message that has an `eta` and no header of this package.


NOW = datetime.now(timezone.utc).replace(microsecond=0)
TOMORROW = NOW + timedelta(days=1)


class EtaConsumer(Consumer):
    """As much of a worker's consumer as the step needs; it has no hub."""

    initial_prefetch_count = 8
    hub = None

    def __init__(self, app, *queues):
        self.soon = []
        self.qos = QoS(lambda **_: None, self.initial_prefetch_count)
        self.task_consumer = SimpleNamespace(
            _active_tags=dict.fromkeys(("celery", *queues)), on_message=self.take
        )
        super().__init__(app)
        self.step.start(self)

    def call_soon(self, call):
        self.soon.append(call)

    def receive(self, queue="celery", *, again=False):
        return super().receive(queue, redelivered=again)

    def settle(self):
        while self.soon:
            self.soon.pop()()


@pytest.fixture
def adopting(delayq_app, url):
    app = delayq_app(url, delayq_adopt_after=60, accept_content=["json", "pickle"])
    app.task(name="t", shared=False)(noop)
    yield app
    state.revoked.discard("a")
    state.revoked_stamps.clear()


@pytest.fixture
def eta_consumer(adopting, stranger):
    one = EtaConsumer(adopting)
    one.stranger = stranger
    yield one
    one.step.stop(one)


@pytest.fixture
def hanging(between):
    """The store gets no call that schedules before ``hanging.set()``."""
    may_come = Event()
    between.before("schedule", lambda: may_come.wait(PATIENCE) and None)
    yield may_come
    may_come.set()


def is_adopted(eta_consumer, task_id="a"):
    def known():
        eta_consumer.settle()
        return eta_consumer.acked or eta_consumer.ran

    eventually(known)
    held = eta_consumer.app.delayq.get(task_id)
    assert (eta_consumer.acked == [task_id]) is (eta_consumer.ran == []) is (held is not None)
    return held


ENCODINGS = [
    (("json", None), 1),
    (("json", None), 2),
    (("pickle", None), 1),
    (("json", "zlib"), 2),
]


@pytest.mark.parametrize(("encoding", "protocol"), ENCODINGS, ids=str)
def test_an_adopted_eta_waits_and_then_is_the_message_of_a_plain_call(
    stranger, eta_consumer, redis, protocol, encoding
):
    adopting, stranger.conf.task_protocol = eta_consumer.app, protocol
    options = dict(zip(("serializer", "compression"), encoding, strict=True), priority=3)
    stranger.send_task("t", (1,), {"x": "ü"}, task_id="a", eta=TOMORROW, **options)
    key, _ = only_message(redis)

    eta_consumer.receive(key.decode().partition("\x06")[0])
    held = is_adopted(eta_consumer)

    assert to_ms(held.due) == to_ms(TOMORROW)
    # Its name is in the body there, and no pickle is read to show a name.
    name = "" if (protocol, options["serializer"]) == (1, "pickle") else "t"
    assert (held.task, held.args, held.kwargs, held.queue) == (name, (1,), {"x": "ü"}, "celery")
    adopting.delayq.run_now("a")
    assert adopting.delayq.hand_over() == 1
    assert only_message(redis)[0] == key
    message = eta_consumer.receive()
    assert eta_consumer.ran == [message]
    body = message.payload if protocol == 1 else message.headers
    assert (body["eta"], body["id"], message.properties["priority"]) == (None, "a", 3)


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_naive_eta_or_expiry_is_utc_as_for_celery_s_own_worker(
    stranger, eta_consumer, adopting, protocol
):
    adopting.conf.timezone, stranger.conf.task_protocol = "Asia/Tokyo", protocol
    naive = TOMORROW.replace(tzinfo=None)
    hour = timedelta(hours=1)
    stranger.send_task("t", task_id="a", eta=naive, expires=NOW.replace(tzinfo=None) + hour)

    eta_consumer.receive()

    assert is_adopted(eta_consumer).due == TOMORROW


NEAR = NOW + timedelta(seconds=30)
LEFT = {
    "near": {"eta": NEAR},
    "past": {"eta": NOW - timedelta(days=1)},
    "none": {},
    "no such zone": {"eta": "2090-01-01T00:00:00+99:99"},
    "no time": {"eta": "tomorrow"},
    "too far": {"eta": "2400-01-01T00:00:00+00:00"},
    "expired": {"eta": TOMORROW, "expires": NOW - timedelta(seconds=5)},
    "opted out by a header": {"eta": TOMORROW, "headers": {"delayq_capture": False}},
    "opted out by an option": {"eta": TOMORROW, "delayq_capture": False},
    "an id too long": {"eta": TOMORROW, "task_id": "x" * 513},
}


# Protocol 1 has these fields at other places of a message: one case for each place.
BY_EACH = [
    *((why, 2) for why in LEFT),
    *((why, 1) for why in ("near", "no time", "expired", "opted out by an option")),
]


@pytest.mark.parametrize(("why", "protocol"), BY_EACH)
def test_an_eta_that_is_near_wrong_or_opted_out_is_left_to_celery(
    stranger, eta_consumer, caplog, protocol, why
):
    options, stranger.conf.task_protocol = LEFT[why], protocol
    eta = options.get("eta")
    if isinstance(eta, str):  # which no call accepts
        made = stranger.amqp.as_task_v1 if protocol == 1 else stranger.amqp.as_task_v2
        message = made("a", "t", (), {}, eta=TOMORROW)
        where = message.body if protocol == 1 else message.headers
        where["eta"] = eta
        with stranger.producer_pool.acquire() as producer:
            stranger.amqp.send_task_message(producer, "t", message)
    else:
        stranger.send_task("t", **{"task_id": "a", **options})

    eta_consumer.receive()

    assert (len(eta_consumer.ran), eta_consumer.acked) == (1, [])
    assert eta_consumer.app.delayq.counts().scheduled == 0
    assert not [one for one in caplog.records if one.name.startswith("celery_delayq")]


# Reasons for which a worker leaves a message to Celery, which drops a revoked one.
REASONS = {
    "no setting": lambda app: app.conf.update(delayq_adopt_after=None),
    "an opt-out of the task": lambda app: setattr(app.tasks["t"], "delayq_capture", False),
    "a large message": lambda app: app.conf.update(delayq_max_message=10_000),
    "a revoked id": lambda _: state.revoked.add("a"),
    "a revoked stamp": lambda _: state.revoked_stamps.update(mark="m"),
    "another task with the id": lambda app: app.send_task("t", task_id="a", delayq_after=3600),
}


@pytest.mark.parametrize("why", REASONS)
def test_a_worker_leaves_it_to_celery_because_of(stranger, eta_consumer, adopting, why):
    REASONS[why](adopting)
    stamp = {"stamped_headers": ["mark"], "mark": "m"}
    stranger.send_task("t", ("x" * 20_000,), task_id="a", eta=TOMORROW, **stamp)

    eta_consumer.receive()
    eventually(lambda: eta_consumer.settle() or eta_consumer.ran)

    assert (len(eta_consumer.ran), eta_consumer.acked) == (1, [])


def test_a_message_from_the_store_is_not_adopted(adopting, eta_consumer):
    adopting.send_task("t", task_id="a", delayq_after=0)
    adopting.delayq.hand_over()

    message = eta_consumer.receive()
    message.headers["eta"] = TOMORROW.isoformat()
    eta_consumer.take(message)

    assert len(eta_consumer.ran) == 2


def test_a_task_that_is_revoked_on_its_way_is_not_held(between, stranger, eta_consumer):
    between.before("schedule", lambda: state.revoked.add("a"))
    stranger.send_task("t", task_id="a", eta=TOMORROW)

    eta_consumer.receive()

    assert is_adopted(eta_consumer) is None


@pytest.mark.parametrize("since", ["waits", "cancelled", "left"])
@pytest.mark.parametrize("ahead", [86_400, 600], ids=["far", "near by then"])
def test_an_adopted_message_that_is_redelivered_is_acknowledged_and_does_not_run(
    eta_consumer, redis, monkeypatch, since, ahead
):
    adopting, eta = eta_consumer.app, datetime.now(timezone.utc) + timedelta(seconds=ahead)
    eta_consumer.stranger.send_task("t", task_id="a", eta=eta)
    _, raw = only_message(redis)
    eta_consumer.receive()
    is_adopted(eta_consumer)
    if since == "cancelled":
        adopting.delayq.cancel("a")
    elif since == "left":
        adopting.delayq.run_now("a")
        adopting.delayq.hand_over()
        redis.delete("celery")
    later = clock.utc_now() + timedelta(seconds=570)
    monkeypatch.setattr(clock, "utc_now", lambda: later)

    redis.lpush("celery", raw)
    eta_consumer.receive(again=True)
    eventually(lambda: eta_consumer.settle() or len(eta_consumer.acked) == 2)

    assert eta_consumer.ran == []
    assert adopting.delayq.counts().scheduled == (since == "waits")


def test_a_late_request_of_a_stopped_worker_stores_nothing_once_another_runs_the_task(
    between, eta_consumer, redis, monkeypatch
):
    adopting, eta = eta_consumer.app, datetime.now(timezone.utc) + timedelta(seconds=600)
    eta_consumer.stranger.send_task("t", task_id="a", eta=eta)
    _, raw = only_message(redis)
    is_sent, may_arrive, arrived = Event(), Event(), Event()

    def hold():
        is_sent.set()
        may_arrive.wait(2 * PATIENCE)

    between.before("schedule", hold)
    between.after("schedule", arrived.set)
    eta_consumer.receive()
    assert is_sent.wait(PATIENCE)
    eta_consumer.step.stop(eta_consumer)
    later = clock.utc_now() + timedelta(seconds=570)
    monkeypatch.setattr(clock, "utc_now", lambda: later)
    redis.lpush("celery", raw)
    other = EtaConsumer(adopting)
    other.receive(again=True)
    assert len(other.ran) == 1

    may_arrive.set()

    assert arrived.wait(PATIENCE)
    assert adopting.delayq.counts().scheduled == 0
    other.step.stop(other)


@pytest.mark.parametrize("eta", [TOMORROW, NEAR])
def test_a_redelivered_message_that_was_never_adopted_is_adopted_if_its_eta_is_far(
    stranger, eta_consumer, eta
):
    stranger.send_task("t", task_id="a", eta=eta)

    eta_consumer.receive(again=True)

    assert (is_adopted(eta_consumer) is None) is (eta is NEAR)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (AWAY, "NOREPLICAS Not enough good replicas to write."),
        (FULL, "command not allowed when used memory > 'maxmemory'."),
    ],
)
def test_while_the_store_is_away_messages_are_left_to_celery(  # noqa: PLR0917
    between, stranger, eta_consumer, caplog, answer, error
):
    between.before("schedule", lambda: answer)
    for task_id in "ab":
        stranger.send_task("t", task_id=task_id, eta=TOMORROW)
        eta_consumer.receive()
    eventually(lambda: eta_consumer.settle() or len(eta_consumer.ran) == 2)

    assert eta_consumer.acked == []
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    held = "workers hold eta messages for the next 5 s"
    assert caplog.messages == [f"{held}: schedule failed: {error}"]


def test_a_message_that_may_be_stored_is_neither_run_nor_acknowledged_before_an_answer(
    between, stranger, eta_consumer, adopting, limits
):
    limits(adoption_again_s=0.05)
    adopting.conf.delayq_timeout = 0.2
    asked, is_lost = between.asked, [True]
    between.after("schedule", lambda: CUT if is_lost else None)
    stranger.send_task("t", task_id="a", eta=TOMORROW)
    eta_consumer.receive()
    eventually(lambda: asked["schedule"] >= 3)
    eta_consumer.settle()
    assert (eta_consumer.ran, eta_consumer.acked) == ([], [])
    stranger.send_task("t", task_id="b", eta=TOMORROW)
    eta_consumer.receive()
    assert [one.headers["id"] for one in eta_consumer.ran] == ["b"]
    is_lost.clear()

    eventually(lambda: eta_consumer.settle() or eta_consumer.acked)

    assert eta_consumer.acked == ["a"]
    assert adopting.delayq.counts().scheduled == 1


def test_a_store_that_hangs_does_not_hold_up_the_consumer(
    stranger, eta_consumer, adopting, hanging
):
    for number in range(20):
        stranger.send_task("t", task_id=str(number), eta=TOMORROW)
    for _ in range(20):
        eta_consumer.receive()
    assert (eta_consumer.acked, adopting.delayq.counts().scheduled) == ([], 0)
    assert eta_consumer.qos.value > eta_consumer.initial_prefetch_count
    hanging.set()

    eventually(
        lambda: eta_consumer.settle() or len(eta_consumer.acked) + len(eta_consumer.ran) == 20
    )

    assert eta_consumer.qos.value == eta_consumer.initial_prefetch_count
    assert adopting.delayq.counts().scheduled == len(eta_consumer.acked)


def test_a_message_of_a_lost_connection_is_not_acknowledged(
    stranger, eta_consumer, adopting, hanging
):
    stranger.send_task("t", task_id="a", eta=TOMORROW)
    message = eta_consumer.receive()
    eta_consumer.step.stop(eta_consumer)
    eta_consumer.step.start(eta_consumer)
    message.delivery_info["redelivered"] = True
    eta_consumer.take(message)
    hanging.set()

    eventually(lambda: eta_consumer.settle() or eta_consumer.acked)

    assert (eta_consumer.acked, eta_consumer.ran) == (["a"], [])
    assert adopting.delayq.counts().scheduled == 1


def test_an_error_of_ours_is_no_worker_s_end(stranger, eta_consumer, caplog):
    """Such as one about a consumer that is not as Celery's is today."""
    del eta_consumer.task_consumer
    stranger.send_task("t", task_id="a", eta=TOMORROW)

    eta_consumer.receive()

    assert len(eta_consumer.ran) == 1
    assert caplog.messages == ["a message with an eta is left to Celery"]


BINDINGS = [
    ("direct", ("one",), True),
    ("topic", ("one",), True),
    ("topic", ("one", "two"), False),
    ("fanout", ("one",), False),
]


@pytest.mark.parametrize(("kind", "queues", "adopted"), BINDINGS)
def test_an_eta_by_an_exchange_goes_to_its_one_queue_or_is_left_to_celery(
    stranger, adopting, kind, queues, adopted
):
    eta_consumer, exchange = EtaConsumer(adopting, *queues), Exchange("x", type=kind)
    made = stranger.amqp.as_task_v2("a", "t", (), {}, eta=TOMORROW)
    with stranger.connection_for_write() as connection:
        for queue in queues:
            Queue(queue, exchange, routing_key="k")(connection.default_channel).declare()
        sent = {"headers": made.headers, "correlation_id": "a", "serializer": "json"}
        connection.Producer().publish(made.body, routing_key="one", **sent)
        simple = connection.SimpleQueue("one", no_ack=True)
        message = simple.get_nowait()
        # As of a message that was sent to the exchange.
        message.delivery_info.update(exchange="x", routing_key="k")

        eta_consumer.take(message)

        assert (is_adopted(eta_consumer) is not None) is adopted
        if adopted:
            adopting.delayq.run_now("a")
            adopting.delayq.hand_over()
            assert simple.get_nowait().headers["id"] == "a"
        simple.close()
    eta_consumer.step.stop(eta_consumer)


def test_a_message_of_a_content_type_that_is_not_accepted_is_left_to_celery(
    stranger, eta_consumer, adopting
):
    stranger.send_task("t", task_id="a", eta=TOMORROW, serializer="pickle")
    message = eta_consumer.receive()
    eventually(lambda: eta_consumer.settle() or eta_consumer.acked)
    adopting.delayq.cancel("a")

    message.accept = {"application/json"}
    eta_consumer.take(message)

    assert eta_consumer.ran == [message]


def test_a_retry_of_a_call_that_opted_out_is_not_captured(adopting, redis):
    adopting.conf.delayq_capture_eta = True

    # As a retry sends it, with the headers of its message.
    adopting.send_task("t", eta=TOMORROW, headers={"delayq_capture": False})

    assert adopting.delayq.counts().scheduled == 0
    assert redis.llen("celery") == 1

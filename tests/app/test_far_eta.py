"""A worker and a message that has an `eta` and no header of this package."""

import logging
from datetime import datetime, timedelta, timezone
from threading import Event
from types import SimpleNamespace

import pytest
from celery.worker import state
from kombu import Exchange, Queue
from kombu.common import QoS

from celery_delayq.core import clock
from tests.app import test_adoption
from tests.app.support import noop, only_message, to_ms
from tests.support.network import AWAY, CUT, FULL
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

NOW = datetime.now(timezone.utc).replace(microsecond=0)
FAR = NOW + timedelta(days=1)


class Consumer(test_adoption.Consumer):
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
def consumer(adopting, stranger):
    one = Consumer(adopting)
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


def is_adopted(consumer, task_id="a"):
    def known():
        consumer.settle()
        return consumer.acked or consumer.ran

    eventually(known)
    held = consumer.app.delayq.get(task_id)
    assert (consumer.acked == [task_id]) is (consumer.ran == []) is (held is not None)
    return held


ENCODINGS = [
    (("json", None), 1),
    (("json", None), 2),
    (("pickle", None), 1),
    (("json", "zlib"), 2),
]


@pytest.mark.parametrize(("encoding", "protocol"), ENCODINGS, ids=str)
def test_an_adopted_eta_waits_and_then_is_the_message_of_a_plain_call(
    stranger, consumer, redis, protocol, encoding
):
    adopting, stranger.conf.task_protocol = consumer.app, protocol
    options = dict(zip(("serializer", "compression"), encoding, strict=True), priority=3)
    stranger.send_task("t", (1,), {"x": "ü"}, task_id="a", eta=FAR, **options)
    key, _ = only_message(redis)

    consumer.receive(key.decode().partition("\x06")[0])
    held = is_adopted(consumer)

    assert to_ms(held.due) == to_ms(FAR)
    # Its name is in the body there, and no pickle is read to show a name.
    name = "" if (protocol, options["serializer"]) == (1, "pickle") else "t"
    assert (held.task, held.args, held.kwargs, held.queue) == (name, (1,), {"x": "ü"}, "celery")
    adopting.delayq.run_now("a")
    assert adopting.delayq.hand_over() == 1
    assert only_message(redis)[0] == key
    message = consumer.receive()
    assert consumer.ran == [message]
    body = message.payload if protocol == 1 else message.headers
    assert (body["eta"], body["id"], message.properties["priority"]) == (None, "a", 3)


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_naive_eta_or_expiry_is_utc_as_for_celery_s_own_worker(
    stranger, consumer, adopting, protocol
):
    adopting.conf.timezone, stranger.conf.task_protocol = "Asia/Tokyo", protocol
    naive = FAR.replace(tzinfo=None)
    hour = timedelta(hours=1)
    stranger.send_task("t", task_id="a", eta=naive, expires=NOW.replace(tzinfo=None) + hour)

    consumer.receive()

    assert is_adopted(consumer).due == FAR


NEAR = NOW + timedelta(seconds=30)
LEFT = {
    "near": {"eta": NEAR},
    "past": {"eta": NOW - timedelta(days=1)},
    "none": {},
    "no such zone": {"eta": "2090-01-01T00:00:00+99:99"},
    "no time": {"eta": "tomorrow"},
    "too far": {"eta": "2400-01-01T00:00:00+00:00"},
    "expired": {"eta": FAR, "expires": NOW - timedelta(seconds=5)},
    "opted out by a header": {"eta": FAR, "headers": {"delayq_capture": False}},
    "opted out by an option": {"eta": FAR, "delayq_capture": False},
    "an id too long": {"eta": FAR, "task_id": "x" * 513},
}


# Protocol 1 has these fields at other places of a message: one case for each place.
BY_EACH = [
    *((why, 2) for why in LEFT),
    *((why, 1) for why in ("near", "no time", "expired", "opted out by an option")),
]


@pytest.mark.parametrize(("why", "protocol"), BY_EACH)
def test_an_eta_that_is_near_wrong_or_opted_out_is_left_to_celery(
    stranger, consumer, caplog, protocol, why
):
    options, stranger.conf.task_protocol = LEFT[why], protocol
    eta = options.get("eta")
    if isinstance(eta, str):  # which no call accepts
        made = stranger.amqp.as_task_v1 if protocol == 1 else stranger.amqp.as_task_v2
        message = made("a", "t", (), {}, eta=FAR)
        where = message.body if protocol == 1 else message.headers
        where["eta"] = eta
        with stranger.producer_pool.acquire() as producer:
            stranger.amqp.send_task_message(producer, "t", message)
    else:
        stranger.send_task("t", **{"task_id": "a", **options})

    consumer.receive()

    assert (len(consumer.ran), consumer.acked) == (1, [])
    assert consumer.app.delayq.counts().scheduled == 0
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
def test_a_worker_leaves_it_to_celery_because_of(stranger, consumer, adopting, why):
    REASONS[why](adopting)
    stamp = {"stamped_headers": ["mark"], "mark": "m"}
    stranger.send_task("t", ("x" * 20_000,), task_id="a", eta=FAR, **stamp)

    consumer.receive()
    eventually(lambda: consumer.settle() or consumer.ran)

    assert (len(consumer.ran), consumer.acked) == (1, [])


def test_a_message_from_the_store_is_not_adopted(adopting, consumer):
    adopting.send_task("t", task_id="a", delayq_after=0)
    adopting.delayq.hand_over()

    message = consumer.receive()
    message.headers["eta"] = FAR.isoformat()
    consumer.take(message)

    assert len(consumer.ran) == 2


def test_a_task_that_is_revoked_on_its_way_is_not_held(between, stranger, consumer):
    between.before("schedule", lambda: state.revoked.add("a"))
    stranger.send_task("t", task_id="a", eta=FAR)

    consumer.receive()

    assert is_adopted(consumer) is None


@pytest.mark.parametrize("since", ["waits", "cancelled", "left"])
@pytest.mark.parametrize("ahead", [86_400, 600], ids=["far", "near by then"])
def test_an_adopted_message_that_is_redelivered_is_acknowledged_and_does_not_run(
    consumer, redis, monkeypatch, since, ahead
):
    adopting, eta = consumer.app, datetime.now(timezone.utc) + timedelta(seconds=ahead)
    consumer.stranger.send_task("t", task_id="a", eta=eta)
    _, raw = only_message(redis)
    consumer.receive()
    is_adopted(consumer)
    if since == "cancelled":
        adopting.delayq.cancel("a")
    elif since == "left":
        adopting.delayq.run_now("a")
        adopting.delayq.hand_over()
        redis.delete("celery")
    later = clock.utc_now() + timedelta(seconds=570)
    monkeypatch.setattr(clock, "utc_now", lambda: later)

    redis.lpush("celery", raw)
    consumer.receive(again=True)
    eventually(lambda: consumer.settle() or len(consumer.acked) == 2)

    assert consumer.ran == []
    assert adopting.delayq.counts().scheduled == (since == "waits")


def test_a_late_request_of_a_stopped_worker_stores_nothing_once_another_runs_the_task(
    between, consumer, redis, monkeypatch
):
    adopting, eta = consumer.app, datetime.now(timezone.utc) + timedelta(seconds=600)
    consumer.stranger.send_task("t", task_id="a", eta=eta)
    _, raw = only_message(redis)
    is_sent, may_arrive, arrived = Event(), Event(), Event()

    def hold():
        is_sent.set()
        may_arrive.wait(2 * PATIENCE)

    between.before("schedule", hold)
    between.after("schedule", arrived.set)
    consumer.receive()
    assert is_sent.wait(PATIENCE)
    consumer.step.stop(consumer)
    later = clock.utc_now() + timedelta(seconds=570)
    monkeypatch.setattr(clock, "utc_now", lambda: later)
    redis.lpush("celery", raw)
    other = Consumer(adopting)
    other.receive(again=True)
    assert len(other.ran) == 1

    may_arrive.set()

    assert arrived.wait(PATIENCE)
    assert adopting.delayq.counts().scheduled == 0
    other.step.stop(other)


@pytest.mark.parametrize("eta", [FAR, NEAR])
def test_a_redelivered_message_that_was_never_adopted_is_adopted_if_its_eta_is_far(
    stranger, consumer, eta
):
    stranger.send_task("t", task_id="a", eta=eta)

    consumer.receive(again=True)

    assert (is_adopted(consumer) is None) is (eta is NEAR)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (AWAY, "NOREPLICAS Not enough good replicas to write."),
        (FULL, "command not allowed when used memory > 'maxmemory'."),
    ],
)
def test_while_the_store_is_away_messages_are_left_to_celery(  # noqa: PLR0917
    between, stranger, consumer, caplog, answer, error
):
    between.before("schedule", lambda: answer)
    for task_id in "ab":
        stranger.send_task("t", task_id=task_id, eta=FAR)
        consumer.receive()
    eventually(lambda: consumer.settle() or len(consumer.ran) == 2)

    assert consumer.acked == []
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    held = "workers hold eta messages for the next 5 s"
    assert caplog.messages == [f"{held}: schedule failed: {error}"]


def test_a_message_that_may_be_stored_is_neither_run_nor_acknowledged_before_an_answer(
    between, stranger, consumer, adopting, limits
):
    limits(adoption_again_s=0.05)
    adopting.conf.delayq_timeout = 0.2
    asked, is_lost = between.asked, [True]
    between.after("schedule", lambda: CUT if is_lost else None)
    stranger.send_task("t", task_id="a", eta=FAR)
    consumer.receive()
    eventually(lambda: asked["schedule"] >= 3)
    consumer.settle()
    assert (consumer.ran, consumer.acked) == ([], [])
    stranger.send_task("t", task_id="b", eta=FAR)
    consumer.receive()
    assert [one.headers["id"] for one in consumer.ran] == ["b"]
    is_lost.clear()

    eventually(lambda: consumer.settle() or consumer.acked)

    assert consumer.acked == ["a"]
    assert adopting.delayq.counts().scheduled == 1


def test_a_store_that_hangs_does_not_hold_up_the_consumer(stranger, consumer, adopting, hanging):
    for number in range(20):
        stranger.send_task("t", task_id=str(number), eta=FAR)
    for _ in range(20):
        consumer.receive()
    assert (consumer.acked, adopting.delayq.counts().scheduled) == ([], 0)
    assert consumer.qos.value > consumer.initial_prefetch_count
    hanging.set()

    eventually(lambda: consumer.settle() or len(consumer.acked) + len(consumer.ran) == 20)

    assert consumer.qos.value == consumer.initial_prefetch_count
    assert adopting.delayq.counts().scheduled == len(consumer.acked)


def test_a_message_of_a_lost_connection_is_not_acknowledged(stranger, consumer, adopting, hanging):
    stranger.send_task("t", task_id="a", eta=FAR)
    message = consumer.receive()
    consumer.step.stop(consumer)
    consumer.step.start(consumer)
    message.delivery_info["redelivered"] = True
    consumer.take(message)
    hanging.set()

    eventually(lambda: consumer.settle() or consumer.acked)

    assert (consumer.acked, consumer.ran) == (["a"], [])
    assert adopting.delayq.counts().scheduled == 1


def test_an_error_of_ours_is_no_worker_s_end(stranger, consumer, caplog):
    """Such as one about a consumer that is not as Celery's is today."""
    del consumer.task_consumer
    stranger.send_task("t", task_id="a", eta=FAR)

    consumer.receive()

    assert len(consumer.ran) == 1
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
    consumer, exchange = Consumer(adopting, *queues), Exchange("x", type=kind)
    made = stranger.amqp.as_task_v2("a", "t", (), {}, eta=FAR)
    with stranger.connection_for_write() as connection:
        for queue in queues:
            Queue(queue, exchange, routing_key="k")(connection.default_channel).declare()
        sent = {"headers": made.headers, "correlation_id": "a", "serializer": "json"}
        connection.Producer().publish(made.body, routing_key="one", **sent)
        simple = connection.SimpleQueue("one", no_ack=True)
        message = simple.get_nowait()
        # As of a message that was sent to the exchange.
        message.delivery_info.update(exchange="x", routing_key="k")

        consumer.take(message)

        assert (is_adopted(consumer) is not None) is adopted
        if adopted:
            adopting.delayq.run_now("a")
            adopting.delayq.hand_over()
            assert simple.get_nowait().headers["id"] == "a"
        simple.close()
    consumer.step.stop(consumer)


def test_a_message_of_a_content_type_that_is_not_accepted_is_left_to_celery(
    stranger, consumer, adopting
):
    stranger.send_task("t", task_id="a", eta=FAR, serializer="pickle")
    message = consumer.receive()
    eventually(lambda: consumer.settle() or consumer.acked)
    adopting.delayq.cancel("a")

    message.accept = {"application/json"}
    consumer.take(message)

    assert consumer.ran == [message]


def test_a_retry_of_a_call_that_opted_out_is_not_captured(adopting, redis):
    adopting.conf.delayq_capture_eta = True

    # As a retry sends it, with the headers of its message.
    adopting.send_task("t", eta=FAR, headers={"delayq_capture": False})

    assert adopting.delayq.counts().scheduled == 0
    assert redis.llen("celery") == 1

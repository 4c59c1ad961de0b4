"""A process without `DelayQ(app)` sends a task at once; the receiving worker schedules it."""

import json
import logging
from datetime import datetime, timezone
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from celery_delayq.contrib.adoption.adopting import AdoptingStep
from tests.app.support import FAR, LONG_AGO, comparable, envelope, lists, noop, only_message, to_ms
from tests.app.test_keys import TERMS, WORDS, terms
from tests.support.network import AWAY

pytestmark = pytest.mark.libraries

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

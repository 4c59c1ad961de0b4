"""The guard alone, between a real broker and a real store: which copies reach the task."""

import logging
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import redis
from celery import Celery
from kombu import Connection, Consumer, Exchange, Queue

from celery_delayq import Outcome
from celery_delayq.contrib import consumer
from celery_delayq.contrib.copies import GuardingStep
from tests.lab.faults.proxy import Proxy
from tests.relay.house import LONG_AGO, new_name
from tests.support.copies import attempts_at, publish
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries


@pytest.fixture(autouse=True)
def patient_query(limits):
    """Let a busy store take its time, and do not ask a lost one again during a test."""
    limits(query_answer_s=PATIENCE, query_again_s=10 * PATIENCE)


class Receiver:
    """The part of a worker's consumer that the step needs, with messages of the real broker."""

    connection_errors = ()

    def __init__(self, app):
        self.app = app
        self.strategies = {}
        self.ran, self.dropped, self.wanted = [], [], 0
        GuardingStep(self)
        self.update_strategies()

    def update_strategies(self):
        self.strategies["note"] = lambda message, *_: self.ran.append(attempt_of(message))

    def give(self, message):
        ack = lambda *_: self.dropped.append(attempt_of(message))  # noqa: E731
        self.strategies["note"](message, None, ack, None, [])

    @contextmanager
    def listening(self, url, *queues):
        """Consume; ``receive(count)`` waits for *count* more messages."""
        with Connection(url) as connection:
            channel = connection.channel()
            self.task_consumer = Consumer(channel, queues, no_ack=True, on_message=self.give)
            self.task_consumer.consume()

            def receive(count):
                self.wanted += count
                while len(self.ran) + len(self.dropped) < self.wanted:
                    connection.drain_events(timeout=30)

            yield receive


def attempt_of(message):
    return message.headers.get("delayq_attempt")


@pytest.fixture
def house(request):
    """Its broker is a Redis; or each, by ``each_broker``."""
    made = request.getfixturevalue(getattr(request, "param", "other_redis"))
    made.app.conf.delayq_once = True
    return made


each_broker = pytest.mark.parametrize("house", ["rabbit", "other_redis"], indirect=True)


@pytest.fixture
def receiver(house):
    made = Receiver(house.app)
    with made.listening(house.where, Queue(house.queue)) as made.receive:
        yield made


@pytest.fixture
def two_copies(house):
    house.due_now(task_id="a")
    return attempts_at(house.delayq, "a", 2)


def send(house, receiver, *copies):
    publish(house.delayq, *copies)
    receiver.receive(len(copies))


ORDERS = {
    "in order": (1, 2),
    "the third first": (3, 1, 2),
    "the broker delivers one again amid others": (2, 3, 2, 1),
}


@each_broker
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_copy_that_comes_first_runs_and_the_others_do_not(house, receiver, order):
    house.due_now(task_id="a")
    copies = attempts_at(house.delayq, "a", 3)

    send(house, receiver, *(copies[attempt - 1] for attempt in order))

    assert receiver.ran == [attempt for attempt in order if attempt == order[0]]
    assert receiver.dropped == [attempt for attempt in order if attempt != order[0]]


def test_the_log_names_what_is_dropped_and_why(house, receiver, caplog):
    caplog.set_level(logging.INFO)
    task_id = "a\n\x1b[2J"
    house.due_now(task_id=task_id)
    copies = attempts_at(house.delayq, task_id, 2)

    send(house, receiver, *reversed(copies))

    said = [one for one in caplog.records if one.name.endswith("contrib.copies")]
    assert [(one.levelno, one.getMessage()) for one in said] == [
        (
            logging.INFO,
            r"task a\n\x1b[2J: attempt 1 is dropped, as attempt 2 reached a worker first",
        )
    ]


def test_a_task_that_is_scheduled_anew_under_its_id_runs(house, receiver):
    house.due_now(task_id="a")
    first = attempts_at(house.delayq, "a", 2, ack=False)
    send(house, receiver, first[1])
    assert house.delayq.cancel("a") is Outcome.UNCERTAIN
    house.due_now(task_id="a")
    [anew] = attempts_at(house.delayq, "a", 1)

    send(house, receiver, anew, first[0])

    # The second call has the same id and due time, and an attempt after the first.
    assert (receiver.ran, receiver.dropped) == ([2, 1], [1])


@pytest.mark.parametrize(
    "dues", [[LONG_AGO + 1], [LONG_AGO + 1, LONG_AGO]], ids=["later", "later and back again"]
)
def test_a_task_that_is_put_off_is_handed_over_anew(house, receiver, dues):
    house.due_now(task_id="a")
    [first] = attempts_at(house.delayq, "a", 1, ack=False)
    send(house, receiver, first)
    for due in dues:
        assert house.delayq.reschedule("a", due) is Outcome.UNCERTAIN
    house.relay_once()
    receiver.receive(1)

    assert (receiver.ran, receiver.dropped) == ([1, 2], [])


@pytest.mark.parametrize("option", [None, True, False])
@pytest.mark.parametrize("setting", [True, False])
def test_the_option_of_a_call_goes_before_the_setting(house, receiver, setting, option):
    house.app.conf.delayq_once = setting
    house.due_now(task_id="a", delayq_once=option)

    send(house, receiver, *attempts_at(house.delayq, "a", 2))

    is_guarded = setting if option is None else option
    assert receiver.ran == ([1] if is_guarded else [1, 2])


def test_the_guard_asks_for_no_message_that_was_never_relayed(house, receiver, caplog, monkeypatch):
    """A plain message passes, and so does one of an app without a DelayQ."""
    monkeypatch.setattr(consumer.StoreQuery, "ask", None)
    house.task.apply_async()
    house.task.apply_async(delayq_once=True)
    with Celery(broker=house.where, set_as_current=False) as stranger:
        stranger.send_task("note", queue=house.queue)
    receiver.receive(3)

    assert (receiver.ran, receiver.dropped) == ([None] * 3, [])
    assert caplog.messages == []


def ours(attempt, **others):
    return {"delayq_attempt": attempt, "delayq_hand_over": "1.1", **others}


ATTEMPTS = (None, "2", True, 2.5, 0, -1, 2**62 + 1, [2])
STRANGE = [
    *((ours(value), ours(value)) for value in ATTEMPTS),
    *(
        tuple(ours(attempt, delayq_hand_over=value) for attempt in (1, 2))
        for value in (None, 5, {"a": 1})
    ),
    (ours(1, delayq_hand_over="x" * 100_000),) * 2,
    *((ours(2, delayq_once=value),) * 2 for value in ("yes", [], None)),
    ({"delayq_attempt": 1}, {"delayq_attempt": 2}),
]


@each_broker
@pytest.mark.parametrize("both", STRANGE, ids=lambda both: repr(both[0])[:60])
def test_headers_that_are_not_ours_stop_no_worker_and_cost_no_task(house, receiver, both):
    with Celery(broker=house.where, set_as_current=False) as stranger:
        for headers in both:
            stranger.send_task("note", queue=house.queue, task_id="a", headers=headers)
    receiver.receive(2)

    assert len(receiver.ran) == 2


# The store is away, or refuses.


@pytest.fixture
def store_proxy(house, two_copies, redis_server):
    """A proxy that all connections to the store go through from now on."""
    with Proxy(redis_server.port) as one:
        house.app.conf.delayq_url = f"redis://127.0.0.1:{one.port}/0"
        yield one


@pytest.fixture(params=["refuse", "stall"])
def store_is_away(request, store_proxy, limits):
    # If the store is down for the whole test, waiting for it is of no use.
    limits(query_answer_s=0.5)
    getattr(store_proxy, request.param)()


@pytest.mark.usefixtures("store_is_away")
def test_while_the_store_is_away_all_run_and_it_is_asked_once_in_a_while(
    house, receiver, two_copies, caplog
):

    send(house, receiver, *two_copies, *two_copies)

    assert (receiver.ran, receiver.dropped) == ([1, 2, 1, 2], [])
    [said] = [one for one in caplog.messages if one.startswith("task a")]
    assert said.startswith(
        "task a: runs, like all for the next 5 s, even if it is a duplicate: arrive failed: "
    )


def test_a_store_that_was_away_is_asked_again_after_a_while(
    house, receiver, two_copies, store_proxy, limits
):
    limits(query_again_s=0)
    store_proxy.refuse()
    send(house, receiver, *two_copies)
    assert receiver.ran == [1, 2]

    store_proxy.accept()
    send(house, receiver, *two_copies)

    assert (receiver.ran, receiver.dropped) == ([1, 2, 1], [2])


def test_a_store_that_refuses_costs_no_task(house, receiver, two_copies, caplog):
    with closing(redis.Redis.from_url(house.app.conf.delayq_url)) as client:
        for shard in house.delayq.services.scripts:
            client.set(shard.keys["arrived"], "somebody's")

    send(house, receiver, *two_copies)

    assert receiver.ran == [1, 2]
    assert "WRONGTYPE" in caplog.text


def test_each_queue_of_an_exchange_gets_a_copy(rabbit):
    """The first attempt may have reached only one of them."""
    rabbit.app.conf.delayq_once = True
    exchange = Exchange(new_name("x"), type="fanout")
    queues = [Queue(new_name(), exchange) for _ in range(2)]
    rabbit.declare(*queues)
    rabbit.app.amqp.queues.update({queue.name: queue for queue in queues})
    rabbit.due_now(task_id="a", exchange=exchange.name, routing_key="any")
    copies = attempts_at(rabbit.delayq, "a", 2)
    publish(rabbit.delayq, *copies)
    # The first attempt never reached one of them.
    assert [attempt_of(one) for one in rabbit.take(queues[1].name)] == [1]

    receiver = Receiver(rabbit.app)
    with receiver.listening(rabbit.where, *queues) as receive:
        receive(3)

    assert (sorted(receiver.ran), receiver.dropped) == ([1, 2], [2])


def test_where_the_queue_of_an_exchange_is_not_known_all_run(other_redis):
    other_redis.app.conf.delayq_once = True
    exchange = Exchange(new_name("x"), type="direct")
    queue = Queue(new_name(), exchange, routing_key="any")
    other_redis.declare(queue)
    other_redis.app.amqp.queues.add(queue)
    other_redis.due_now(task_id="a", exchange=exchange.name, routing_key="any")
    copies = attempts_at(other_redis.delayq, "a", 2)
    receiver = Receiver(other_redis.app)

    with receiver.listening(other_redis.where, queue) as receive:
        publish(other_redis.delayq, *copies)
        receive(2)

    assert (receiver.ran, receiver.dropped) == ([1, 2], [])


def test_an_app_without_a_delayq_is_left_alone():
    with Celery(set_as_current=False) as app:
        consumer = SimpleNamespace(app=app, update_strategies=len)

        GuardingStep(consumer)

        assert consumer.update_strategies is len

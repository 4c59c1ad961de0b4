"""A broker that does not answer: every call is bounded, and possible copies are marked."""

import contextlib
import threading
import time

import pytest
from amqp import Channel
from kombu import Queue

from celery_delayq.core import clock
from celery_delayq.errors import BrokerDown
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

LEASE = 2  # seconds; the broker may take 0.3 of it
BOUND = LEASE * 0.8


@pytest.fixture
def hung(make_house, rabbitmq_server, proxy, limits):
    """A house with a live connection to a broker, which a test then stalls."""
    house = make_house(
        f"amqp://guest:guest@127.0.0.1:{proxy.port}//",
        where=rabbitmq_server.url,
        delayq_lease=LEASE,
    )
    house.declare(Queue(house.queue))
    house.warm = house.relay()
    house.due_now(task_id="warm")
    house.relay_all(house.warm)
    house.ids()
    # Not before: the connection that the test stalls has to come about.
    limits(broker_connect_s=0.5)
    return house


def seconds_of_batch(house):
    started = time.monotonic()
    with pytest.raises(BrokerDown):
        house.warm.batch(lambda: False)
    return time.monotonic() - started


@pytest.fixture
def once_held(proxy, monkeypatch):
    """The relay's time starts when the proxy holds its message, not before."""
    before, since = proxy.held, []

    def monotonic():
        if proxy.held > before and not since:
            since.append(time.monotonic())
        return time.monotonic() - since[0] if since else 0.0

    return lambda: monkeypatch.setattr(clock, "monotonic", monotonic)


def test_a_publish_is_bounded_and_marked(hung, proxy, once_held, monkeypatch):
    hung.due_now(task_id="a")
    proxy.stall()
    once_held()
    assert seconds_of_batch(hung) < PATIENCE
    monkeypatch.undo()
    assert hung.counts() == (1, 0, 0)
    proxy.resume()
    hung.relay_all()
    # The message that the proxy held may come last.
    messages = hung.take(count=hung.left())
    last = max(messages, key=lambda one: one.headers["delayq_attempt"])
    assert last.headers["delayq_redelivered"] is True


def test_a_batch_of_megabytes_is_bounded(hung, proxy, once_held):
    """More than the sockets' buffers take: writing blocks, not only the wait for confirms."""
    for number in range(9):
        hung.due_now("x" * 100_000, task_id=f"{number}")
    proxy.stall()
    once_held()
    assert seconds_of_batch(hung) < PATIENCE


def declaring(house):
    """This connection has not declared the queue yet, so it waits for an answer."""
    house.due_now(task_id="a", queue=f"{house.queue}-new")


def connecting(house):
    house.warm.close()
    house.due_now(task_id="a")


@pytest.mark.parametrize("step", [declaring, connecting])
def test_a_step_before_the_publish_is_bounded(hung, proxy, step):
    step(hung)
    proxy.stall()
    assert seconds_of_batch(hung) < PATIENCE
    assert hung.counts() == (1, 0, 0)


def test_a_broker_that_takes_each_message_slowly_ends_the_window(hung, monkeypatch):
    """No single write times out, but all of them together take too long."""
    late = 0.0
    tried = []
    publish = Channel.basic_publish

    def slowly(channel, *message, **options):
        nonlocal late
        late += BOUND / 8
        tried.append(message)
        return publish(channel, *message, **options)

    monkeypatch.setattr(clock, "monotonic", lambda: late)
    monkeypatch.setattr(Channel, "basic_publish", slowly)
    wanted = [hung.due_now(task_id=f"{number}").id for number in range(20)]
    with contextlib.suppress(BrokerDown):  # not every confirm is there by then
        hung.warm.batch(lambda: False)
    assert 0 < len(tried) <= 4, "0.2 s each, of 0.6 s"
    hung.relay_all()
    assert {message.headers["id"] for message in hung.take(count=hung.left())} == set(wanted)


@pytest.mark.parametrize("trouble", ["stall", "refuse"])
def test_a_stop_meanwhile_is_bounded(hung, proxy, trouble):
    hung.due_now(task_id="a")
    scanner = hung.start()
    hung.take()
    eventually(lambda: hung.counts() == (0, 0, 0))
    before = proxy.held
    getattr(proxy, trouble)()
    hung.due_now(task_id="b", queue=f"{hung.queue}-new")
    eventually(lambda: proxy.held > before or trouble == "refuse")
    started = time.monotonic()
    scanner.stop(PATIENCE)
    assert time.monotonic() - started < PATIENCE
    assert "delayq-scanner" not in {one.name for one in threading.enumerate()}


def is_down(house):
    """Whether a batch says so; one that gets no CPU for the whole of its time sends nothing."""
    try:
        house.warm.batch(lambda: False)
    except BrokerDown:
        return True
    return False


def test_a_blocked_broker_does_not_collect_copies(hung, rabbitmq_server, monkeypatch):
    """A memory alarm: RabbitMQ accepts connections, reads nothing, and catches up afterwards."""
    tried = []
    publish = Channel.basic_publish

    def counted(channel, message, *, routing_key, **options):
        tried.append(routing_key)
        return publish(channel, message, routing_key=routing_key, **options)

    monkeypatch.setattr(Channel, "basic_publish", counted)
    rabbitmq_server.control("set_vm_memory_high_watermark", "0")
    try:
        hung.due_now(task_id="a")
        for _ in range(4):
            eventually(lambda: is_down(hung))
        assert tried.count(hung.queue) <= 1
    finally:
        rabbitmq_server.control("set_vm_memory_high_watermark", "0.4")
    hung.relay_all(hung.warm)
    assert hung.take()[0].headers["id"] == "a"

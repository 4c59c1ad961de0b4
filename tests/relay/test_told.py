"""A relay's signals: for published, dead and late tasks; and events."""

import pytest
from kombu import Connection

from celery_delayq import signals
from celery_delayq.core import clock
from celery_delayq.core.hooks import Hooks
from tests.support.places import take
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries

FAR_AWAY = 4_102_444_800
COUNTED = ("left", "refused", "uncertain", "reclaimed", "broker_down")
NAMES = ("task_edited", "task_handed_over", "task_dead", "task_skipped")


@pytest.fixture
def house(make_house):
    return make_house("memory://")


@pytest.fixture
def heard(house):
    told = []

    def receiver(signal, sender, **facts):
        assert sender is house.app
        told.append((signal.name.removeprefix("delayq_"), facts))

    for name in NAMES:
        getattr(signals, name).connect(receiver, sender=house.app, dispatch_uid=name)
    yield told
    for name in NAMES:
        getattr(signals, name).disconnect(sender=house.app, dispatch_uid=name)


DOORS = {
    "a relay": lambda house: house.relay_once(),
    "a scanner in a thread": lambda house: (house.start(), house.take(count=3), house.close()),
    "a call": lambda house: house.delayq.hand_over(),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_batch_is_signalled_once_when_the_broker_has_it(house, heard, door):
    sent = house.due_now_many(3)

    DOORS[door](house)

    assert heard == [("task_handed_over", {"task_ids": sent})]


def test_a_refused_task_sends_no_signal_and_a_dead_one_does(house, deal, heard):
    _, dead, _ = deal(house, "refused", "dead", "unknown")

    [(name, facts)] = heard
    assert (name, facts["task_id"]) == ("task_dead", dead)
    assert facts["reason"].startswith("record cannot be read: JSONDecodeError")


def test_hooks_get_the_lateness_of_tasks_and_counts_of_refusals_and_missing_answers(house, deal):
    told = []
    hooks = {name: lambda *facts, name=name: told.append((name, *facts)) for name in COUNTED}
    house.delayq.services.hooks.add(Hooks(**hooks, hears_left=lambda: True))

    deal(house, "sent", "sent", "refused", "unknown")

    [(_, path, late), *rest] = told
    # They were scheduled just now, so their lateness is not the age of their due time.
    assert (path, len(late)) == ("relay", 2)
    assert all(0 <= one < 60 for one in late)
    assert sorted(rest) == [("refused", "relay", 1), ("uncertain", 1)]


def test_a_hook_is_called_for_a_task_that_is_taken_back_from_a_lease(house):
    told = []
    house.delayq.services.hooks.add(Hooks(reclaimed=told.append))
    task_id = house.due_now().id
    take(house.delayq, "lapsed", task_id)
    assert house.delayq.hand_over() == 1

    assert told == [[task_id]]


def test_a_late_task_is_signalled_as_skipped(house, heard):
    late = house.due_now(delayq_late="skip", delayq_grace=5).id

    house.relay_once()

    [(name, facts)] = heard
    assert (name, facts["task_id"]) == ("task_skipped", late)


# Events, over RabbitMQ.


@pytest.fixture
def watched(make_house, rabbitmq_server, proxy):
    """A house whose events go through a proxy, and a function that waits for the next event."""
    broker = f"amqp://guest:guest@127.0.0.1:{proxy.port}//"
    house = make_house(broker, where=rabbitmq_server.url, task_send_sent_event=True)
    seen = []
    with Connection(rabbitmq_server.url) as given:
        receiver = house.app.events.Receiver(given, handlers={"*": seen.append})
        with receiver.consumer_context() as (connection, *_):

            def next_one():
                while not seen:
                    connection.drain_events(timeout=30)
                event = seen.pop(0)
                return event["type"], event["uuid"]

            yield house, next_one


def test_events_go_through_rabbitmq(watched):
    house, next_one = watched

    result = house.task.delay_until(FAR_AWAY)
    # Each kind has a connection of its own, and RabbitMQ keeps the order within one.
    assert next_one() == ("task-sent", result.id)
    result.cancel()
    assert next_one() == ("task-revoked", result.id)
    again = house.task.delay_until(FAR_AWAY)
    assert next_one() == ("task-sent", again.id)


@pytest.mark.parametrize("fault", ["cut", "refuse", "stall", "deaden"])
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_call_waits_for_no_rabbitmq_that_is_away(watched, proxy, fault, is_connected):
    house, next_one = watched
    if is_connected:
        house.task.delay_until(FAR_AWAY)
        next_one()
    getattr(proxy, fault)()
    began = clock.monotonic()

    for _ in range(3):
        house.task.delay_until(FAR_AWAY)

    # A silent link takes as much as fits into its buffers; the sender waits for no answer.
    assert clock.monotonic() - began < PATIENCE
    assert house.counts() == (3 + is_connected, 0, 0)

"""Real scanners on a real Redis: events that wake them, and tasks left to the safety scan."""

import threading

import pytest

from tests.support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]

FOREVER = 300  # seconds of safety interval: only a notification can wake the scanner


WAKES = {
    "a task is due soon": lambda made, _: made.task.delay_for(0.2),
    "a task is due already": lambda made, _: made.task.delay_for(0),
    "the far task is moved": lambda _, far: far.reschedule(after=0.1) and far,
}


@pytest.mark.parametrize("wake", WAKES)
def test_a_scanner_that_sleeps_towards_a_far_task_is_woken_on_time(house, wake):
    made = house(delayq_safety_interval=FOREVER)
    result = WAKES[wake](made, made.asleep())
    task_id, at = made.next_arrival()
    assert task_id == result.id
    assert at >= result.due.timestamp()


@pytest.mark.parametrize("change", ["move", "cancel"])
def test_a_task_that_was_moved_or_cancelled_does_not_fire_and_the_next_one_does(house, change):
    def then(first):
        return first.reschedule(after=3600) if change == "move" else first.cancel()

    made = house(delayq_safety_interval=FOREVER)
    _, next_one = made.asleep_towards(1, 1.2, then=then)
    assert made.next_arrival()[0] == next_one.id
    assert made.arrived() == []


@pytest.fixture
def unheard(house, redis_server):
    """A house whose words reach nobody: its user may not publish."""
    with redis_server.client() as client:
        client.acl_setuser("mute", enabled=True, nopass=True, keys="*", commands=["+@all"])
        yield house(f"redis://mute:x@127.0.0.1:{redis_server.port}/0")
        client.acl_deluser("mute")


def test_a_lost_word_costs_at_most_the_safety_interval(house, unheard):
    made = house(delayq_safety_interval=0.5)
    made.start_asleep()
    result = unheard.task.delay_for(0)
    assert made.next_arrival()[0] == result.id


def test_a_scanner_whose_connections_broke_hears_again(house):
    made = house(delayq_safety_interval=FOREVER)
    made.start_asleep()
    listeners = {one["id"] for one in made.client.client_list(_type="pubsub")}
    for kind in ("normal", "pubsub"):
        made.client.client_kill_filter(_type=kind, skipme=True)
    missed = made.task.apply_async(delayq_after=0, retry=True)  # no scanner is notified
    assert made.next_arrival()[0] == missed.id
    now = {one["id"] for one in made.client.client_list(_type="pubsub")}
    assert now
    assert not now & listeners
    result = made.task.delay_for(0.1)
    assert made.next_arrival()[0] == result.id


def test_a_hundred_starts_and_stops_leave_nothing(house, descriptors):
    """This holds even if references to the stopped scanners remain."""
    made = house()
    made.start_asleep().stop()
    keys, threads = set(made.client.keys()), threading.active_count()
    files, clients = descriptors(), len(made.client.client_list())
    for _ in range(100):
        made.start().stop()
    eventually(lambda: len(made.client.client_list()) <= clients, message="connections to Redis")
    assert set(made.client.keys()) <= keys
    eventually(lambda: threading.active_count() <= threads)
    assert descriptors() <= files

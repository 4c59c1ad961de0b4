"""Faults of the Redis under a scanner: it recovers by itself, and no task is lost."""

import threading

import pytest

from tests.lab.faults.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries

TIMEOUT = 0.5


@pytest.fixture
def proxy(redis_server, redis_url):
    with Proxy(redis_server.port) as one:
        yield one


@pytest.fixture
def behind(house, proxy, limits):
    """A house whose every connection goes through the proxy."""
    made = house(
        f"redis://127.0.0.1:{proxy.port}/0",
        delayq_safety_interval=0.5,
    )
    limits(answer_s=TIMEOUT)
    return made


@pytest.fixture
def fall_due(house):
    """Let a task fall due, by a link of its own."""

    def fall_due(result):
        assert house().delayq.reschedule(result.id, after=0)

    return fall_due


@pytest.fixture
def durable(house, start_redis):
    """A house on its own Redis, which persists its data."""
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    made = house(server.url(), delayq_safety_interval=0.5)
    made.server, made.client = server, server.client()
    return made


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_restart_or_crash_is_survived(durable, end):
    durable.start_asleep()
    due, far = (durable.task.delay_for(delay) for delay in (0.5, 3600))
    getattr(durable.server, end)()
    if end == "kill":
        durable.server.start()
    assert durable.next_arrival()[0] == due.id
    assert durable.delayq.get(far.id).due == far.due


def test_after_a_link_that_died_without_a_word_a_scanner_is_told_of_tasks_again(
    house, proxy, limits
):
    """The subscription died with it: only a new one hears of a task that is due first."""
    made = house(f"redis://127.0.0.1:{proxy.port}/0", delayq_safety_interval=60)
    limits(answer_s=TIMEOUT)

    def deaden(first):
        proxy.deaden()
        return made.seconds() < first.due.timestamp()

    caller = house()  # its links stay alive
    [result] = made.asleep_towards(0.5, then=deaden, by=caller)
    assert made.next_arrival()[0] == result.id
    soon = caller.task.delay_for(0.1)
    assert made.next_arrival()[0] == soon.id


def test_a_link_that_stalls_is_survived(behind, proxy, fall_due):
    result = behind.asleep()
    proxy.stall()
    fall_due(result)
    fell_due = behind.seconds()
    eventually(lambda: behind.seconds() > fell_due + TIMEOUT)
    assert behind.arrived() == []
    proxy.resume()
    assert behind.next_arrival()[0] == result.id


@pytest.mark.parametrize("trouble", ["refuse", "stall"])
def test_a_stop_while_redis_is_away_is_bounded(behind, proxy, trouble):
    scanner = behind.start_asleep()
    getattr(proxy, trouble)()
    started = behind.seconds()
    scanner.stop(PATIENCE)
    assert "delayq-scanner" not in {one.name for one in threading.enumerate()}
    assert behind.seconds() - started < PATIENCE


def test_a_lost_reply_of_a_move_neither_loses_nor_repeats(house, proxy, fall_due):
    # The scanner's next call is the one that moves the task.
    behind = house(f"redis://127.0.0.1:{proxy.port}/0", delayq_safety_interval=60)
    result = behind.asleep()
    proxy.cut_after = b"}:scanners"
    fall_due(result)
    assert behind.next_arrival()[0] == result.id
    assert proxy.cuts == 1
    next_one = behind.task.apply_async(delayq_after=0.2, retry=True)
    assert behind.next_arrival()[0] == next_one.id
    assert behind.arrived() == []

"""After a stop the scanner claims nothing more, and closes everything."""

import logging
import threading

import pytest

from celery_delayq.errors import StoreUnavailable
from tests.scanner.fakes import START_MS
from tests.support.waiting import PATIENCE, eventually, interrupt

pytestmark = pytest.mark.core


def test_a_stop_between_batches_moves_nothing_afterwards(world):
    made = world(batch_size=10)
    made.steps.due = [START_MS] * 100
    made.steps.on_move = lambda: made.log.count("hand_over") == 3 and made.scanner.stop()
    made.run(waits=2)
    assert len(made.steps.moved) == 30
    assert made.log == [
        *["hand_over"] * 3,
        "interrupt",
        "wait",
        "close relay",
        "leave",
        "close wakeup",
    ]
    assert made.waits == [pytest.approx(0, abs=0.05)]


def test_a_stop_during_a_wait_starts_no_pass(world):
    made = world()
    made.wakeup.on_wait = made.scanner.stop
    made.run(waits=5)
    assert made.log.count("hand_over") == 1


def test_a_stop_during_a_backoff_starts_no_pass(world):
    made = world()

    def fail():
        made.scanner.stop()
        raise StoreUnavailable("hand_over", "refused")

    made.steps.on_move = fail
    made.run(waits=5)
    assert made.log.count("hand_over") == 1


def test_a_relay_is_told_of_a_stop(world):
    made = world()
    made.steps.relay = [START_MS]
    told = []

    def batch(stopping):
        told.append(stopping())
        made.scanner.stop()
        told.append(stopping())
        return 1

    made.relay.batch = batch
    made.run()
    assert told == [False, True]
    assert made.log.count("hand_over") == 1


@pytest.mark.parametrize("error", [StoreUnavailable("leave", "gone"), RuntimeError("boom")])
def test_an_end_without_redis_closes_the_rest(world, error):
    made = world()

    def leave():
        raise error

    made.steps.leave = leave
    made.run()
    assert made.log[-2:] == ["close relay", "close wakeup"]


@pytest.mark.parametrize("starts", [0, 1])
def test_a_scanner_that_does_not_run_is_stopped_without_an_error(house, starts):
    made = house()
    scanner = made.start_asleep() if starts else made.delayq.scanner()
    scanner.stop()
    scanner.stop()


def test_a_stop_waits_for_the_thread_and_the_scanner_no_longer_counts_as_alive(house):
    made = house()
    before = set(threading.enumerate())
    scanner = made.start_asleep()
    assert made.delayq.counts().scanners == 1
    scanner.stop(PATIENCE)
    assert set(threading.enumerate()) - before == set()
    assert made.delayq.counts().scanners == 0


@pytest.mark.operations
def test_stop_in_the_middle_of_many_batches_leaves_the_rest_in_the_store(house, between):
    made = house(between.url(), delayq_batch_size=1)
    made.delayq.schedule_many(made.task, [((), {})] * 400, at=1_000_000_000)
    stopping = threading.Event()

    def held_up():
        assert between.asked["hand_over"] <= 100 or stopping.wait(PATIENCE)

    between.before("hand_over", held_up)
    scanner = made.start()
    eventually(lambda: between.asked["hand_over"] > 100)
    scanner.stop(0)
    stopping.set()
    scanner.stop(PATIENCE)
    moved = len(made.arrived())
    assert 0 < moved < 400
    assert made.delayq.counts().scheduled == 400 - moved


# A scanner whose thread was ended goes on in another one, under a name that says so.


def end_thread(made):
    """Let SystemExit come up in the thread of a sleeping scanner, and wake it."""
    [thread] = [one for one in threading.enumerate() if one.name == "delayq-scanner"]
    interrupt(thread, SystemExit)
    made.task.delay_for(0)


def test_a_scanner_whose_thread_ended_is_one_still_with_another_name_and_channel(house, limits):
    limits(thread_first_s=0.01)
    made = house(delayq_safety_interval=300)
    made.delayq.services.hooks.restarted = (restarted := []).append
    made.start_asleep()
    [before] = made.delayq.services.entries.scanners()

    end_thread(made)

    made.next_arrival()
    [there] = made.delayq.services.entries.scanners()
    assert (there.name, there.restarts) == (f"{before.name}-1", 1)
    assert restarted == [there.name]
    [channel] = made.client.pubsub_channels("*wake:*")
    assert channel.decode().endswith(there.name)


def test_a_stop_before_the_next_thread_begins_ends_it_at_once(house, limits, caplog):
    limits(thread_first_s=3600.0, thread_longest_s=3600.0)
    made = house()
    scanner = made.start_asleep()
    end_thread(made)
    said = eventually(lambda: [one for one in caplog.records if one.levelno == logging.CRITICAL])

    scanner.stop(PATIENCE)

    assert "delayq-scanner" not in {one.name for one in threading.enumerate()}
    assert "the thread delayq-scanner has ended: SystemExit()" in said[0].getMessage()
    assert made.delayq.services.entries.scanners() == []

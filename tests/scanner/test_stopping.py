"""After a stop the scanner claims nothing more, and closes everything."""

import threading

import pytest

from celery_delayq.core.store.scanner_steps import ScannerSteps
from celery_delayq.errors import StoreUnavailable
from tests.scanner.fakes import START_MS
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.core


def test_a_stop_between_batches_moves_nothing_afterwards(world):
    made = world(batch_size=10)
    made.steps.due = [START_MS] * 100
    made.steps.on_move = lambda: made.log.count("hand_over") == 3 and made.scanner.stop()
    made.run()
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


def test_stopping_a_scanner_that_never_started_is_no_error(house):
    house().delayq.scanner().stop()


def test_stopping_twice_is_no_error(house):
    scanner = house().start_asleep()
    scanner.stop()
    scanner.stop()


def test_stop_waits_for_the_thread(house):
    made = house()
    before = set(threading.enumerate())
    scanner = made.start_asleep()
    scanner.stop(PATIENCE)
    assert set(threading.enumerate()) - before == set()


def test_a_stopped_scanner_is_not_counted_as_alive(house):
    made = house()
    scanner = made.start_asleep()
    assert made.delayq.counts().scanners == 1
    scanner.stop(PATIENCE)
    assert made.delayq.counts().scanners == 0


@pytest.mark.operations
def test_stop_in_the_middle_of_many_batches_leaves_the_rest_in_the_store(house, monkeypatch):
    made = house(delayq_batch_size=1)
    made.delayq.schedule_many(made.task, [((), {})] * 400, at=1_000_000_000)
    hand_over, passes, stopping = ScannerSteps.hand_over, [], threading.Event()

    def held_up(shard_steps, **asked):
        passes.append(shard_steps)
        assert len(passes) <= 100 or stopping.wait(PATIENCE)
        return hand_over(shard_steps, **asked)

    monkeypatch.setattr(ScannerSteps, "hand_over", held_up)
    scanner = made.start()
    eventually(lambda: len(passes) > 100)
    scanner._stopping.set()
    stopping.set()
    scanner.stop(PATIENCE)
    moved = len(made.arrived())
    assert 0 < moved < 400
    assert made.delayq.counts().scheduled == 400 - moved

"""The loop with a failing store or broker, in virtual time."""

import logging

import pytest

from celery_delayq.core.handover.backoff import LONGEST_BACKOFF, Backoff
from celery_delayq.errors import BrokerDown, StoreError, StoreUnavailable
from tests.scanner.fakes import START_MS


def failing(times, error):
    """A function that raises *times* times, and then does nothing."""
    left = [error] * times

    def fail():
        if left:
            raise left.pop()

    return fail


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("boom"), "a pass failed; the scanner goes on"),
        (StoreError("hand_over", "WRONGTYPE"), "hand over failed: WRONGTYPE; retrying in "),
    ],
)
def test_an_exception_in_a_pass_is_logged_and_does_not_end_the_loop(world, caplog, error, line):
    made = world()
    made.steps.due = [START_MS]
    made.steps.on_move = failing(1, error)
    made.run(waits=2)
    assert made.log[:4] == ["hand_over", "pause", "hand_over", "wait"]
    assert made.steps.moved == [START_MS]
    assert any(message.startswith(line) for message in caplog.messages)
    # For a refusal by Redis its sentence is enough; any other error is logged with a traceback.
    assert [bool(one.exc_info) for one in caplog.records if one.levelno == logging.ERROR] == [
        not isinstance(error, StoreError)
    ]


def test_an_exception_in_the_relay_does_not_end_the_loop(world):
    made = world()
    made.steps.relay = [START_MS]
    made.relay.on_batch = failing(1, RuntimeError("boom"))
    made.run(waits=2)
    assert made.relay.published == [START_MS]


def test_an_exception_in_the_wait_does_not_end_the_loop(world):
    made = world()
    made.wakeup.on_wait = failing(1, StoreUnavailable("wake", "gone"))
    made.run(waits=3)
    assert made.log[:5] == ["hand_over", "wait", "pause", "hand_over", "wait"]


def test_an_exception_in_a_pause_does_not_end_the_loop(world, caplog):
    made = world()
    made.steps.due = [START_MS]
    made.steps.on_move = failing(1, StoreUnavailable("hand_over", "refused"))
    made.wakeup.on_rest = failing(1, RuntimeError("boom"))
    made.run(waits=2)
    assert made.log[:4] == ["hand_over", "pause", "hand_over", "wait"]
    assert 0.25 <= made.waits[0] <= 0.5
    assert "a pause failed; the scanner goes on" in caplog.messages


def test_a_store_that_is_away_is_tried_less_and_less_often(world, caplog):
    made = world()
    made.steps.on_move = failing(100, StoreUnavailable("hand_over", "refused"))
    made.run(waits=12)
    bounds = [min(LONGEST_BACKOFF, 0.5 * 2**failures) for failures in range(12)]
    assert all(
        bound / 2 <= wait <= bound for bound, wait in zip(bounds, made.waits, strict=True)
    ), made.waits
    assert caplog.messages[0].startswith(
        "cannot reach the store of delayq_url (refused); retrying in"
    )


def test_after_an_outage_the_backoff_starts_anew(world):
    made = world()
    away = StoreUnavailable("hand_over", "refused")
    passes = iter([away] * 6 + [None, away])

    def on_move():
        if error := next(passes, None):
            raise error

    made.steps.on_move = on_move
    made.run(waits=8)
    assert made.log[:16:2] == ["hand_over"] * 8
    assert made.log[1:16:2] == [*["pause"] * 6, "wait", "pause"]
    assert made.waits[5] >= LONGEST_BACKOFF / 2
    assert 0.25 <= made.waits[7] <= 0.5


def test_a_relay_that_backs_off_does_not_hold_up_direct_entries(world):
    made = world()
    made.steps.relay = [START_MS - 1]
    made.relay.on_batch = failing(10_000, BrokerDown("refused"))
    made.steps.due = [START_MS + 10 * step for step in range(2000)]
    made.steps.on_move = lambda: made.steps.due or made.scanner.stop()
    made.run(waits=10_000)
    assert len(made.steps.moved) == 2000
    assert max(made.steps.lateness) <= 1
    assert made.log.count("relay") < 20


def test_a_broker_that_is_away_is_not_asked_at_every_pass(world):
    made = world(safety_interval=5.0)
    made.steps.relay = [START_MS - 1]
    made.relay.on_batch = failing(10_000, BrokerDown("refused"))
    made.run(waits=200)
    seconds = sum(made.waits)
    assert made.log.count("relay") <= seconds / (LONGEST_BACKOFF / 2) + 8
    # No busy loop: a due entry that cannot leave must not shorten the waits.
    assert made.log.count("hand_over") <= 205 + made.log.count("relay")
    assert seconds > 250


def test_a_broker_that_is_away_is_asked_again_within_its_longest_backoff(world):
    made = world()
    made.steps.relay = [START_MS - 1]
    made.relay.on_batch = failing(8, BrokerDown("refused"))
    made.run(waits=60)
    assert made.relay.published == [START_MS - 1]


def test_a_broker_that_came_back_is_used_at_once(world):
    made = world()
    made.steps.relay = [START_MS - 1] * 25
    made.relay.on_batch = failing(1, BrokerDown("refused"))
    made.run(waits=2)
    assert len(made.relay.published) == 25
    assert 0.25 <= made.waits[0] <= 0.5


def test_an_empty_claim_is_no_reason_to_spin(world):
    """Another scanner took the entry that this one saw; its next look decides."""
    made = world()
    made.steps.relay = [START_MS - 1]
    made.relay.on_batch = made.steps.relay.clear
    made.run(waits=2)
    assert made.log[:4] == ["hand_over", "relay", "hand_over", "wait"]
    assert made.waits[0] >= 4.0


def test_a_broker_that_takes_some_before_each_loss_is_asked_again_soon(world):
    made = world()
    made.steps.relay = [START_MS - 1]
    made.relay.on_batch = failing(24, BrokerDown("a reply was lost", sent=1))
    made.run(waits=60)
    assert made.relay.published == [START_MS - 1]
    assert max(made.waits[:24]) <= 0.5


def test_short_pauses_make_no_more_lines_in_the_log_than_long_ones():
    often, seldom = Backoff(longest=1.0), Backoff(longest=30.0)
    lines = {}
    for name, one in (("often", often), ("seldom", seldom)):
        now, lines[name] = 0.0, 0
        while now < 300:
            lines[name] += one.is_news(now)
            now += one.next()

    assert lines["seldom"] / 2 <= lines["often"] <= lines["seldom"] * 2
    often.reset()
    assert often.is_news(now)


def test_of_long_pauses_each_is_news():
    one, now = Backoff(longest=30.0), 0.0
    for _ in range(20):
        assert one.is_news(now)
        now += one.next()

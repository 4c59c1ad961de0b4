"""After an outage: how soon a scanner is back, and its log lines. In virtual time."""

import logging
from types import SimpleNamespace

import pytest

from celery_delayq.core.handover import backoff, scanner
from celery_delayq.core.handover.backoff import Backoff
from celery_delayq.core.handover.contact import Contact
from celery_delayq.errors import BrokerDown, StoreError, StoreUnavailable
from tests.scanner.fakes import START_MS

pytestmark = pytest.mark.core

OUTAGE = 25.0  # seconds
BACK_WITHIN = 3.0
STORE = "store redis://red:6379/0"
BROKER = "broker amqp://rabbit:5672//"


@pytest.fixture(autouse=True)
def longest_pauses(monkeypatch):
    """Chance picks the longest pause each time."""
    for module in (backoff, scanner):
        monkeypatch.setattr(module, "random", SimpleNamespace(uniform=lambda _, high: high))


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO)

    def said():
        lines = [(one.levelname, one.getMessage()) for one in caplog.records]
        return [line for line in lines if not line[1].endswith(" stopped")]

    return said


def away_for(made, seconds, error):
    """Raise for this many seconds from now on."""
    until = made.monotonic() + seconds

    def fail():
        if made.monotonic() < until:
            raise error.with_traceback(None)

    return fail


def named(made):
    made.scanner._store = Contact(STORE, "delayq_url")
    made.scanner._broker = Contact(BROKER, "broker_url")
    return made


def lost_store(why="Connection closed by server."):
    return StoreUnavailable("wake", why)


def test_no_pause_is_longer_than_three_seconds():
    pauses = Backoff()
    assert max(pauses.next() for _ in range(20)) == BACK_WITHIN


def test_a_task_due_while_the_store_was_away_leaves_within_three_seconds_of_its_return(world):
    made = world(safety_interval=300.0)
    made.steps.due = [START_MS + 1000]
    made.steps.on_move = away_for(made, OUTAGE, lost_store())
    made.run(waits=30)
    assert OUTAGE * 1000 <= made.steps.lateness[0] + 1000 <= (OUTAGE + BACK_WITHIN) * 1000


def test_a_task_due_while_the_broker_was_away_leaves_soon_after_it_is_back(world):
    made = world(safety_interval=300.0)
    made.steps.relay = [START_MS - 1]
    gone_at = []
    down = away_for(made, OUTAGE, BrokerDown("refused"))
    made.relay.on_batch = lambda: down() or gone_at.append(made.monotonic())
    made.run(waits=30)
    assert made.relay.published == [START_MS - 1]
    assert OUTAGE <= gone_at[0] <= OUTAGE + BACK_WITHIN + 0.5


def run_outage(made, error, seconds=2.0):
    """Let it work once, lose its store for some seconds, and work again."""
    made.run(waits=1)
    made.scanner._stopping._set = False
    made.steps.on_move = away_for(made, seconds, error)
    made.run(waits=len(made.waits) + 9)


def test_a_store_that_is_lost_and_back_is_a_line_each(world, said):
    made = named(world())
    run_outage(made, lost_store())
    assert said() == [
        (
            "WARNING",
            (
                "lost the store redis://red:6379/0 of delayq_url (connection closed by server); "
                "retrying in 0.5 s"
            ),
        ),
        (
            "WARNING",
            (
                "the store redis://red:6379/0 of delayq_url is still down after 0 s (connection "
                "closed by server); retrying in 1.0 s"
            ),
        ),
        (
            "WARNING",
            (
                "the store redis://red:6379/0 of delayq_url is still down after 2 s (connection "
                "closed by server); retrying in 2.0 s"
            ),
        ),
        ("INFO", "store redis://red:6379/0 is back after 4 s"),
    ]


def test_a_broker_that_is_lost_and_back_is_a_line_each(world, said):
    made = named(world())
    made.steps.relay = [START_MS - 1]
    made.run(waits=1)
    made.scanner._stopping._set = False
    made.steps.relay = [START_MS - 1]
    made.relay.on_batch = away_for(made, 1.2, BrokerDown("[Errno 111] Connection refused"))
    made.run(waits=len(made.waits) + 5)
    assert said() == [
        (
            "WARNING",
            (
                "lost the broker amqp://rabbit:5672// of broker_url ([Errno 111] Connection "
                "refused); retrying in 0.5 s"
            ),
        ),
        (
            "WARNING",
            (
                "the broker amqp://rabbit:5672// of broker_url is still down after 0 s ([Errno "
                "111] Connection refused); retrying in 1.0 s"
            ),
        ),
        ("INFO", "broker amqp://rabbit:5672// is back after 2 s"),
    ]


def test_a_store_that_was_never_reached_is_not_called_lost(world, said):
    made = named(world())
    made.steps.on_move = away_for(made, 0.1, lost_store())
    made.run(waits=2)
    assert said()[0][1].startswith("cannot reach the store redis://red:6379/0 of delayq_url (")
    assert said()[1] == ("INFO", "store redis://red:6379/0 is back after 0 s")


def test_it_says_how_many_tasks_are_overdue_before_they_go(world, said):
    made = named(world())
    made.steps.due = [START_MS + 1000 + number for number in range(3)]
    counted = lambda: sum(when <= made.now_ms for when in made.steps.due)  # noqa: E731
    made.scanner._start = SimpleNamespace(join=lambda: None, overdue=counted)
    run_outage(made, lost_store())
    assert ("INFO", "store redis://red:6379/0 is back after 4 s; 3 overdue") in said()
    assert len(made.steps.moved) == 3


def test_a_day_without_a_store_is_not_a_line_for_each_try(world, said):
    made = named(world())
    made.steps.on_move = away_for(made, 86_400.0, lost_store())
    made.run(waits=1000)
    seconds = sum(made.waits)
    assert len(said()) <= seconds / backoff.QUIET + 8


@pytest.mark.parametrize("error", [StoreError("hand_over", "WRONGTYPE"), RuntimeError("boom")])
def test_a_lasting_refusal_is_not_logged_at_each_try(world, said, error):
    made = named(world())
    made.steps.on_move = away_for(made, 86_400.0, error)
    made.run(waits=1000)
    assert 2 <= len(said()) <= sum(made.waits) / backoff.QUIET + 8


def test_another_trouble_is_said_at_once(world, said):
    made = named(world())
    made.steps.on_move = away_for(made, 60.0, lost_store())
    made.run(waits=20)
    made.scanner._stopping._set = False
    made.steps.on_move = away_for(made, 60.0, StoreError("hand_over", "WRONGTYPE"))
    before = len(said())
    made.run(waits=len(made.waits) + 1)
    assert said()[before][1].startswith("hand over failed: WRONGTYPE; retrying in ")

"""The loop with a failing store or broker: its pauses, and its log lines. In virtual time."""

import logging
from types import SimpleNamespace

import pytest

from celery_delayq.core.handover import contact
from celery_delayq.core.handover.contact import LONGEST_BACKOFF, Backoff, Contact
from celery_delayq.errors import BrokerDown, StoreError, StoreUnavailable
from tests.scanner.fakes import START_MS

pytestmark = pytest.mark.core

OUTAGE = 25.0  # seconds
BACK_WITHIN = 3.0
STORE = "store redis://red:6379/0"
BROKER = "broker amqp://rabbit:5672//"


@pytest.fixture
def longest_pauses(monkeypatch):
    """Chance picks the longest pause each time."""
    monkeypatch.setattr("random.SystemRandom.uniform", lambda *given: given[-1])


@pytest.fixture
def said(caplog, longest_pauses):
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


@pytest.fixture
def named(world):
    """A world whose store and broker have names."""

    def make(**options):
        contacts = Contact(STORE, "delayq_url"), Contact(BROKER, "broker_url")
        return world(contacts=contacts, **options)

    return make


def lost_store(why="Connection closed by server."):
    return StoreUnavailable("wake", why)


@pytest.mark.usefixtures("longest_pauses")
def test_a_task_due_while_the_store_was_away_leaves_within_three_seconds_of_its_return(world):
    made = world(safety_interval=300.0)
    made.steps.due = [START_MS + 1000]
    made.steps.on_move = away_for(made, OUTAGE, lost_store())
    made.run(waits=30)
    assert OUTAGE * 1000 <= made.steps.lateness[0] + 1000 <= (OUTAGE + BACK_WITHIN) * 1000


@pytest.mark.usefixtures("longest_pauses")
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

    def lose():
        made.steps.on_move = away_for(made, seconds, error)

    made.after(1, lose)
    made.run(waits=10)


def warnings(what, why, *after):
    """The lines about a server that is lost; *after*: seconds of each later try."""
    first = ("WARNING", f"lost the {what} ({why}); retrying in 0.5 s")
    return [first] + [
        ("WARNING", f"the {what} is still down after {s} s ({why}); retrying in {2.0**n:.1f} s")
        for n, s in enumerate(after)
    ]


def test_a_store_that_is_lost_and_back_is_a_line_each(named, said):
    run_outage(named(), lost_store())
    assert said() == [
        *warnings(f"{STORE} of delayq_url", "connection closed by server", 0, 2),
        ("INFO", f"{STORE} is back after 4 s"),
    ]


def test_a_broker_that_is_lost_and_back_is_a_line_each(named, said):
    why = "[Errno 111] Connection refused"
    made = named()
    made.steps.relay = [START_MS - 1]

    def lose():
        made.steps.relay = [START_MS - 1]
        made.relay.on_batch = away_for(made, 1.2, BrokerDown(why))

    made.after(1, lose)
    made.run(waits=6)
    assert said() == [
        *warnings(f"{BROKER} of broker_url", why, 0),
        ("INFO", f"{BROKER} is back after 2 s"),
    ]


def test_a_store_that_was_never_reached_is_not_called_lost(named, said):
    made = named()
    made.steps.on_move = away_for(made, 0.1, lost_store())
    made.run(waits=2)
    assert said()[0][1].startswith("cannot reach the store redis://red:6379/0 of delayq_url (")
    assert said()[1] == ("INFO", "store redis://red:6379/0 is back after 0 s")


def test_the_log_has_the_number_of_overdue_tasks_before_they_go(named, said):
    start = SimpleNamespace(
        join=lambda: None,
        overdue=lambda: sum(when <= made.now_ms for when in made.steps.due),
    )
    made = named(start=start)
    made.steps.due = [START_MS + 1000 + number for number in range(3)]
    run_outage(made, lost_store())
    assert ("INFO", "store redis://red:6379/0 is back after 4 s; 3 overdue") in said()
    assert len(made.steps.moved) == 3


def test_a_day_without_a_store_is_not_a_line_for_each_try(named, said):
    made = named()
    made.steps.on_move = away_for(made, 86_400.0, lost_store())
    made.run(waits=1000)
    seconds = sum(made.waits)
    assert len(said()) <= seconds / contact.QUIET + 8


@pytest.mark.parametrize("error", [StoreError("hand_over", "WRONGTYPE"), RuntimeError("boom")])
def test_a_lasting_refusal_is_not_logged_at_each_try(named, said, error):
    made = named()
    made.steps.on_move = away_for(made, 86_400.0, error)
    made.run(waits=1000)
    assert 2 <= len(said()) <= sum(made.waits) / contact.QUIET + 8


def test_another_trouble_is_said_at_once(named, said):
    made, before = named(), []
    made.steps.on_move = away_for(made, 60.0, lost_store())

    def refuse():
        made.steps.on_move = away_for(made, 60.0, StoreError("hand_over", "WRONGTYPE"))
        before.extend(said())

    made.after(20, refuse)
    made.run(waits=21)
    assert said()[len(before)][1].startswith("hand over failed: WRONGTYPE; retrying in ")


# The loop's reaction.


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

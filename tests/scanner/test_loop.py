"""The scanner's steps between two waits, also with a failing store or broker."""

import logging
from types import SimpleNamespace

import pytest

from celery_delayq.core.handover import contact
from celery_delayq.core.handover.contact import LONGEST_BACKOFF, Backoff, Contact
from celery_delayq.core.handover.scanner import GRACE, LONGEST
from celery_delayq.errors import BrokerDown, StoreError, StoreUnavailable
from tests.scanner.fakes import HOUR_MS, START_MS

pytestmark = pytest.mark.core


ENDS = ["wait", "interrupt", "close relay", "leave", "close wakeup"]


@pytest.mark.parametrize(
    ("due", "passes"), [(10, 1), (11, 2), (35, 4)], ids=["a batch", "one more", "several batches"]
)
def test_batches_are_drained_without_a_wait_between(world, due, passes):
    made = world(batch_size=10)
    made.steps.due = [START_MS] * due
    made.run()
    assert made.log == ["hand_over"] * passes + ENDS
    assert len(made.steps.moved) == due


@pytest.mark.parametrize("index", ["due", "relay", "leased", "back"])
def test_the_wait_ends_at_the_first_head_of_any_index(world, index):
    made = world()
    for each in ("due", "relay", "leased", "back"):
        vars(made.steps)[each] = [START_MS + (1234 if each == index else 3000)]
    made.run()
    assert made.waits == [pytest.approx(1.234)]


def test_with_nothing_near_the_wait_is_the_safety_interval_with_jitter(world):
    made = world(safety_interval=5.0)
    made.steps.due = [START_MS + HOUR_MS]
    made.run(waits=200)
    assert all(4.0 <= wait <= 5.0 for wait in made.waits)
    assert max(made.waits) - min(made.waits) > 0.5
    assert made.log.count("hand_over") <= 201
    assert not {"reclaim", "relay"} & set(made.log)


@pytest.mark.parametrize(
    ("scanners", "longest"), [(100, 5.0), (300, 15.0), (1000, LONGEST), (10_000, LONGEST)]
)
def test_many_idle_scanners_together_look_as_often_as_a_hundred(world, scanners, longest):
    made = world(safety_interval=5.0)
    made.steps.scanners = scanners
    made.run(waits=200)
    # The first look shows how many there are.
    asleep = [seconds for seconds, _ in made.steps.asked[1:]]
    assert all(0.8 * longest <= seconds <= longest for seconds in asleep)
    assert len(asleep) <= made.monotonic() / (0.8 * longest)


@pytest.mark.parametrize(("scanners", "together"), [(100, False), (101, True)])
def test_more_than_a_hundred_scanners_look_in_the_same_instant_of_a_second(
    world, scanners, together
):
    """Redis spends most of a look on waking up, unless others come with it."""
    made = world(safety_interval=5.0)
    made.steps.scanners = scanners
    looks = []
    made.steps.on_move = lambda: looks.append(made.us % 1_000_000)
    made.run(waits=50)
    assert all(us < 1000 or us > 999_000 for us in looks) is together


def test_a_safety_interval_that_is_longer_holds_among_many_scanners_too(world):
    made = world(safety_interval=60.0)
    made.steps.scanners = 1000
    made.run(waits=50)
    assert all(48 <= seconds <= 60 for seconds, _ in made.steps.asked)


def test_a_look_without_a_heartbeat_does_not_change_how_many_scanners_there_are(world):
    made = world(safety_interval=5.0)
    made.steps.scanners = 1000

    def on_move():
        if made.steps.asked[1:]:
            made.steps.scanners = 0

    made.steps.on_move = on_move
    made.run(waits=50)
    assert all(seconds > 20 for seconds, _ in made.steps.asked[1:])


def test_a_lease_that_ran_out_is_taken_back_and_relayed_in_the_same_drain(world):
    made = world()
    made.steps.leased = [START_MS - 1]
    made.run()
    assert made.log[:6] == ["hand_over", "reclaim", "hand_over", "relay", "hand_over", "wait"]
    assert made.relay.published == [START_MS - 1]


@pytest.mark.parametrize(("left_ms", "looks"), [(31_000, ["reclaim"]), (29_000, [])])
def test_a_lease_is_looked_at_only_if_it_ends_later_than_any_lease(world, left_ms, looks):
    """Redis's clock was set back; the script does not take such a lease for a longer one."""
    made = world(lease=30.0)
    made.steps.leased = [START_MS + left_ms]
    made.run()
    assert made.log[: 2 + len(looks)] == ["hand_over", *looks, "wait"]


def test_a_task_that_becomes_dead_is_logged_with_its_reason(world, caplog):
    made = world()
    made.steps.dead = [("id-7", "record is cut short")]
    made.run()
    assert "task id-7 is dead: record is cut short; runbook: DelayqDead" in caplog.messages


def test_relayed_entries_are_drained_without_a_wait_between(world):
    made = world()
    made.steps.relay = [START_MS - 1] * 25
    made.run()
    assert made.waits == made.waits[:1]
    assert len(made.relay.published) == 25
    assert made.log.index("wait") > made.log.index("relay")


def test_a_wait_counts_from_the_moment_redis_looked_at_its_clock(world):
    """The wait is shorter by the time that the rest of the pass takes."""
    made = world()
    made.steps.due = [START_MS + 1000]

    def reclaim():
        made.us += 300_000
        return []

    made.steps.reclaim = reclaim
    made.steps.leased = [START_MS + 31_000]
    made.run()
    assert made.waits == [pytest.approx(0.7)]


def test_a_scanner_that_does_not_watch_the_head_comes_a_little_later(world):
    made = world()
    made.steps.due = [START_MS + 1000]
    made.steps.has_timer = False
    made.run()
    assert GRACE <= made.waits[0] - 1 <= 2 * GRACE


@pytest.mark.parametrize(("scanners", "most"), [(20, 2), (100, 10), (1000, 100)])
def test_many_scanners_that_do_not_watch_come_one_after_the_other(world, scanners, most):
    """After one due time, a thousand would look in the same quarter of a second."""
    graces = []
    for _ in range(200):
        made = world(safety_interval=300.0)
        made.steps.scanners, made.steps.has_timer = scanners, False
        made.steps.due = [START_MS + 1000]
        made.run()
        graces.append(made.waits[0] - 1)
    assert all(GRACE <= grace <= most * GRACE + 0.001 for grace in graces)
    assert max(graces) > most * GRACE / 2


def test_a_scanner_that_does_not_watch_still_comes_at_the_safety_interval(world):
    made = world(safety_interval=5.0)
    made.steps.due = [START_MS + 4900]
    made.steps.has_timer = False
    made.run()
    assert made.waits[0] <= 5.0


@pytest.mark.parametrize("hears", [True, False])
def test_a_scanner_asks_for_delivered_ids_only_while_somebody_listens(world, hears):
    made = world()
    made.hears = hears
    made.steps.due = [START_MS, START_MS + 700]

    made.run(waits=2)

    assert set(made.steps.told) == {hears}
    ids = [[f"id-{START_MS}"], [f"id-{START_MS + 700}"]]
    assert made.handed_over == (ids if hears else [])


# The loop with a failing store or broker: its pauses, and its log lines. In virtual time.


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
def test_no_pause_is_longer_than_three_seconds():
    pauses = Backoff()
    assert max(pauses.next() for _ in range(20)) == BACK_WITHIN


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


@pytest.mark.parametrize(
    "error", [lost_store(), StoreError("hand_over", "WRONGTYPE"), RuntimeError("boom")]
)
def test_a_day_of_an_outage_or_a_refusal_is_not_a_line_for_each_try(named, said, error):
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
    assert len(made.downs) == made.log.count("relay") <= seconds / (LONGEST_BACKOFF / 2) + 8
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

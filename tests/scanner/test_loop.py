"""The scanner's steps between one wait and the next, in virtual time."""

import pytest

from celery_delayq.core.handover.scanner import GRACE, LONGEST
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


def test_an_idle_scanner_asks_less_than_once_in_two_seconds(world):
    made = world()
    made.run(waits=500)
    passes, seconds = made.log.count("hand_over"), sum(made.waits)
    assert passes / seconds <= 0.3
    assert "reclaim" not in made.log
    assert "relay" not in made.log


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

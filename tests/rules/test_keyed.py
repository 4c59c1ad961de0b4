"""A keyed rule that fires often, and runs that no scanner delivered in time."""

from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rule_store import Run, Stored
from celery_delayq.contrib.rules import writing
from celery_delayq.contrib.rules.plan import Plan, Timing, plan_of
from celery_delayq.core.clock import EPOCH, from_ms
from tests.rules.support import every, runs, set_back, wake, write

SECOND = timedelta(seconds=1)
NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def rest(delayq, redis):
    """Seconds until the writer looks again, after it has looked at all rules."""

    def rest():
        wake(redis)
        return write(delayq)

    return rest


@pytest.fixture
def keyed(report):
    return report.s().set(delayq_key="k", delayq_unique_until="finished")


def test_the_writer_looks_again_when_the_only_run_is_due(delayq, keyed, rest):
    every(delayq, "r", keyed, 2 * SECOND)
    assert rest() <= 2


def test_the_writer_looks_at_a_held_key_when_the_slot_comes(delayq, keyed, report, rest):
    report.s(1).set(delayq_key="k").delay_for(3600)
    every(delayq, "r", keyed, 3 * SECOND)
    assert rest() <= 3 < writing.AGAIN.total_seconds()


@pytest.mark.parametrize(
    ("missed", "key", "run"),
    [
        ("none", "k", [False, True, True]),
        ("none", "", [False, False, False]),
        ("one", "k", [False, False, True]),
        ("one", "", [False, False, True]),
    ],
)
def test_a_slot_whose_key_has_just_come_free_was_not_missed(missed, key, run):
    plan = Plan("{}", Timing("every 3 s"), missed, 0.0, (), key)
    rule = Stored("r", 0, {"home": "r"}, 1, NOON - 9 * SECOND, "-")
    slots, _ = writing._slots(rule, plan, NOON)
    assert [wanted for slot, wanted in slots if slot <= NOON] == run


# A run that was written ahead, and that no scanner delivered in time, counts as missed too.

LONG = timedelta(days=300)  # between two slots: so none of them comes during a test


@pytest.fixture
def written(delayq, report, redis):
    """Return a function that writes the run of a slot of the past, as if that had been to come."""

    def written(slot_of, schedule=LONG, signature=None, *, is_ahead=True, **options):
        every(delayq, "r", signature or report.s(), schedule, replace=True, **options)
        set_back(delayq, redis, "r", days=1000)
        rule = store.find(delayq.services.entries, "r")
        slot = slot_of(from_ms(delayq.counts().now_ms))
        entry = writing.entry_of(delayq.services, rule, plan_of(rule), slot, is_ahead=is_ahead)
        due = store.ms_of(slot)
        shard = delayq.services.entries.shards[rule.shard]
        assert store.fire(shard, rule, due, [Run(due, due, entry)]) == ["done"]

    return written


@pytest.fixture
def delivered(delayq, written):
    """Return a function that says whether a run is delivered that was due at a slot of the past."""

    def delivered(*what, **options):
        written(*what, **options)
        return delayq.hand_over() == 1

    return delivered


def latest(now):
    return EPOCH + (now - EPOCH) // LONG * LONG


def before_latest(now):
    return latest(now) - LONG


OFTEN = timedelta(seconds=2)


def before_latest_of_often(now):
    return EPOCH + ((now - EPOCH) // OFTEN - 1) * OFTEN


def ago(**span):
    return lambda now: now - timedelta(**span)


@pytest.mark.parametrize(
    ("missed", "slot", "is_delivered"),
    [
        ("one", latest, True),
        ("one", before_latest, False),
        ("none", ago(seconds=1), True),
        ("none", ago(minutes=2), False),
        ("all", before_latest, True),
    ],
)
def test_a_late_run_is_left_out_as_missed_says(delivered, missed, slot, is_delivered):
    assert delivered(slot, missed=missed) == is_delivered


@pytest.mark.parametrize("missed", ["one", "none"])
def test_a_run_is_missed_once_the_next_one_has_come_though_that_is_soon(delivered, missed):
    short = timedelta(seconds=20)
    assert short < writing.SPARED

    def before_latest(now):
        return EPOCH + ((now - EPOCH) // short - 1) * short

    assert not delivered(before_latest, short, missed=missed)


@pytest.mark.parametrize("missed", ["one", "none"])
def test_of_the_runs_of_each_second_at_most_one_goes_after_half_a_minute_without_a_scanner(
    delayq, report, redis, missed
):
    every(delayq, "r", report.s(7), SECOND, missed=missed)
    set_back(delayq, redis, "r", seconds=27)
    found = store.find(delayq.services.entries, "r")
    plan, shard = plan_of(found), delayq.services.entries.shards[found.shard]
    slots = [found.last + number * SECOND for number in range(1, 26)]
    entries = [writing.entry_of(delayq.services, found, plan, slot) for slot in slots]
    dues = [store.ms_of(slot) for slot in slots]
    runs = [Run(due, due, entry) for due, entry in zip(dues, entries, strict=True)]
    assert store.fire(shard, found, dues[-1], runs) == ["done"] * 25

    begun = delayq.counts().now_ms
    write(delayq)
    delayq.hand_over()
    come = delayq.counts().now_ms // 1000 - begun // 1000  # slots, meanwhile

    events = [event.what for event in delayq.history(200)]
    assert (missed == "one") <= events.count("handed_over") <= 1 + come
    assert events.count("skipped") >= 24


@pytest.mark.parametrize("missed", ["one", "none"])
def test_a_run_that_was_written_after_its_slot_is_spared_for_a_while(delivered, missed):
    assert delivered(before_latest_of_often, OFTEN, is_ahead=False, missed=missed)
    assert not delivered(ago(hours=1), OFTEN, is_ahead=False, missed=missed)


def test_of_missed_slots_with_a_key_the_latest_gets_the_run(delayq, redis, keyed):
    every(delayq, "r", keyed, SECOND)
    set_back(delayq, redis, "r", seconds=25)
    now = from_ms(delayq.counts().now_ms)
    write(delayq)
    [due] = runs(delayq)
    assert due > now - SECOND


def test_a_missed_run_that_still_has_the_key_does_not_cost_the_latest_slot_its_run(
    delayq, written, keyed, rest
):
    written(before_latest, signature=keyed)
    rest()
    [due] = runs(delayq)
    assert due == latest(from_ms(delayq.counts().now_ms))
    assert delayq.hand_over() == 1


def test_a_missed_run_that_is_paused_keeps_the_key(delayq, written, keyed, rest):
    written(before_latest, signature=keyed)
    delayq.pause(all=True)
    before = runs(delayq)
    rest()
    assert runs(delayq) == before


def test_a_missed_run_that_runs_however_late_keeps_the_key(delayq, written, keyed, rest):
    written(before_latest, signature=keyed.set(delayq_late="run"))
    before = runs(delayq)
    rest()
    assert runs(delayq) == before


def test_the_late_policy_of_the_signature_or_the_task_wins(app, delivered, report):
    assert delivered(before_latest, signature=report.s().set(delayq_late="run"))

    @app.task(name="forgiving", delayq_late="skip", delayq_grace=10**9)
    def forgiving(): ...

    assert delivered(before_latest, signature=forgiving.s())

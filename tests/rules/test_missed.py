"""A run that was written ahead, and that no scanner delivered in time, counts as missed too."""

from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rule_store import Run
from celery_delayq.contrib.rules import writing
from celery_delayq.contrib.rules.rule import plan_of
from celery_delayq.core.clock import EPOCH, from_ms
from tests.rules.test_rules import set_back

LONG = timedelta(days=300)  # between two slots: so none of them comes during a test


@pytest.fixture
def delivered(delayq, report, redis):
    """Return a function that says whether a run is delivered that was due at a slot of the past."""

    def delivered(slot_of, schedule=LONG, signature=None, **options):
        delayq.every("r", signature or report.s(), schedule, replace=True, **options)
        set_back(delayq, redis, "r", days=1000)
        rule = store.find(delayq.services.entries, "r")
        slot = slot_of(from_ms(delayq.counts().now_ms))
        entry = writing.entry_of(delayq.services, rule, plan_of(rule), slot)
        due = store.ms_of(slot)
        shard = delayq.services.entries.shards[rule.shard]
        assert store.fire(shard, rule, due, [Run(due, due, entry)]) == ["done"]
        return delayq.hand_over() == 1

    return delivered


def latest(now):
    return EPOCH + (now - EPOCH) // LONG * LONG


def before_latest(now):
    return latest(now) - LONG


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


@pytest.mark.parametrize(("slot", "is_delivered"), [(ago(seconds=1), True), (ago(hours=1), False)])
def test_runs_that_come_often_survive_a_restart_of_the_scanner(delivered, slot, is_delivered):
    assert delivered(slot, timedelta(seconds=2)) == is_delivered
    assert timedelta(seconds=5) < writing.SPARED < timedelta(hours=1)


def test_the_late_policy_of_the_signature_or_the_task_wins(app, delivered, report):
    assert delivered(before_latest, signature=report.s().set(delayq_late="run"))

    @app.task(name="forgiving", delayq_late="skip", delayq_grace=10**9)
    def forgiving(): ...

    assert delivered(before_latest, signature=forgiving.s())

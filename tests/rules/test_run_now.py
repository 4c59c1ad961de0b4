"""To run a rule's task now: also if it has a key, while nothing but its own next run has that."""

from datetime import timedelta

import pytest

from celery_delayq.errors import AlreadyScheduled, KeyHeld
from tests.rules.support import HOUR, every, now, runs, set_back, write


@pytest.fixture
def keyed(report):
    return report.s(7).set(delayq_key="k", delayq_unique_until="finished")


@pytest.fixture
def rule(delayq, keyed):
    return every(delayq, "r", keyed, HOUR)


def finish(delayq):
    """Let the run that holds the key end, as its worker says."""
    assert delayq.free(key="k")


def test_a_keyed_rule_runs_now_and_its_slot_gets_another_run(delayq, rule):
    [slot] = runs(delayq)
    made = rule.run()
    assert [task.id for task in delayq.tasks() if task.due <= now(delayq)] == [made.id]
    assert delayq.hand_over() == 1
    assert delayq.rule("r").next[0] == slot
    finish(delayq)
    write(delayq)
    [task] = delayq.tasks()
    assert (task.due, task.id != made.id) == (slot, True)


def test_while_that_run_goes_on_another_one_is_refused_and_the_error_names_it(delayq, rule):
    made = rule.run()
    delayq.hand_over()
    with pytest.raises(KeyHeld, match=made.id):
        rule.run()


def test_while_the_slot_s_own_run_goes_on_another_one_is_refused(delayq, rule, redis):
    set_back(delayq, redis, "r", hours=1)
    write(delayq)
    assert delayq.hand_over() == 1
    with pytest.raises(KeyHeld):
        rule.run()


def test_another_task_under_the_key_is_named(delayq, report, rule):
    delayq.select(tag="every:r").cancel()
    other = report.s(1).set(delayq_key="k").delay_for(3600)
    with pytest.raises(AlreadyScheduled, match=other.id):
        rule.run()


@pytest.mark.parametrize("change", ["moved", "edited"])
def test_a_next_run_that_somebody_changed_stays_as_it_is(delayq, rule, change):
    [task] = delayq.tasks()
    if change == "moved":
        delayq.reschedule(task.id, by=60)
    else:
        delayq.edit(task.id, args=(8,))
    before = [*delayq.tasks()]
    with pytest.raises(AlreadyScheduled, match=task.id):
        rule.run()
    assert [*delayq.tasks()] == before


def test_a_paused_rule_runs_now_and_stays_paused(delayq, rule):
    rule.pause()
    made = rule.run()
    assert [task.id for task in delayq.tasks()] == [made.id]
    delayq.hand_over()
    finish(delayq)
    write(delayq)
    assert runs(delayq) == []


def test_a_pause_of_the_queue_holds_that_run_back_as_any_other(delayq, rule):
    delayq.pause(task="report")
    rule.run()
    assert delayq.hand_over() == 0


def test_skips_stay(delayq, keyed, rule):
    rule.skip()
    skipped = delayq.rule("r").skipped
    rule.run()
    delayq.hand_over()
    finish(delayq)
    write(delayq)
    assert skipped[0] not in runs(delayq)
    assert delayq.rule("r").next[0] == skipped[0] + HOUR


def test_a_rule_without_a_key_runs_beside_its_next_run(delayq, report):
    rule = every(delayq, "n", report.s(7), HOUR, tags=["t"])
    before = runs(delayq, "n")
    made = rule.run()
    assert len(runs(delayq, "n")) == 2
    assert delayq.rule("n").next[0] == before[0]
    task = delayq.get(made.id)
    assert (task.args, {*task.tags}) == ((7,), {"t", "every:n"})
    assert timedelta(0) <= now(delayq) - task.due < timedelta(minutes=1)

"""A task with an `apply_async` of its own: that is called at each slot, and never ahead of it."""

from datetime import timedelta
from functools import partialmethod

import pytest
from celery.app.task import Task

from celery_delayq.core.hooks import Hooks
from tests.cli.conftest import no_workers, project, run
from tests.rules.support import HOUR, now, runs, set_back, write

__all__ = ["no_workers", "project", "run"]

pytestmark = pytest.mark.libraries


@pytest.fixture
def calls():
    """The calls of the task's own `apply_async`."""
    return []


@pytest.fixture
def own(app, calls):
    """A task that takes a lock when it is sent, and declines while that is taken."""

    class Locking(app.Task):
        answer = "send"

        def apply_async(self, args=None, kwargs=None, **options):
            calls.append(options["task_id"])
            if Locking.answer == "decline":
                return None
            if Locking.answer == "raise":
                raise KeyError("locked")
            return super().apply_async(args, kwargs, **options)

    @app.task(name="own", base=Locking)
    def own():
        pass

    own.says = Locking
    return own


@pytest.fixture
def omitted(delayq):
    heard = []
    delayq.services.hooks.add(Hooks(slots_omitted=lambda *facts: heard.append(facts)))
    return heard


def test_an_own_apply_async_is_called_at_its_slot_and_not_ahead(delayq, own, calls, redis):
    rule = delayq.every("r", own.s(), HOUR)
    write(delayq)
    assert (calls, runs(delayq), rule.is_made_when_due) == ([], [], True)

    last = set_back(delayq, redis, "r", minutes=70)
    write(delayq)

    [task] = delayq.tasks()
    assert calls == [task.id]
    assert last < task.due <= now(delayq) < task.due + HOUR
    write(delayq)
    assert calls == [task.id]
    assert delayq.hand_over() == 1


@pytest.mark.parametrize(
    ("missed", "ago", "count"),
    [
        ("one", timedelta(hours=5), 1),
        ("all", timedelta(hours=5), 5),
        ("none", timedelta(days=1), 0),
    ],
)
def test_missed_says_for_which_slots_it_is_called(delayq, own, calls, redis, missed, ago, count):  # noqa: PLR0917
    schedule = HOUR if missed != "none" else timedelta(days=300)
    delayq.every("r", own.s(), schedule, missed=missed)
    set_back(delayq, redis, "r", seconds=(ago if missed != "none" else 700 * ago).total_seconds())
    write(delayq)
    assert len(calls) == len(runs(delayq)) == count


def test_a_slot_for_which_it_sends_nothing_is_left_out(delayq, own, calls, redis, omitted):
    own.says.answer = "decline"
    delayq.every("r", own.s(), HOUR)
    for _ in range(2):
        set_back(delayq, redis, "r", minutes=70)
        write(delayq)
    assert (len(calls), runs(delayq), delayq.rule("r").trouble) == (2, [], "")
    assert [facts for facts in omitted if facts[1] == "declined"] == [(1, "declined")] * 2
    own.says.answer = "send"
    set_back(delayq, redis, "r", minutes=70)
    write(delayq)
    assert len(runs(delayq)) == 1


def test_an_error_of_an_own_apply_async_is_the_rule_s_trouble_and_its_slot_is_left_out(
    delayq, own, calls, redis
):
    own.says.answer = "raise"
    delayq.every("r", own.s(), HOUR)
    set_back(delayq, redis, "r", minutes=70)
    write(delayq)
    write(delayq)
    assert (len(calls), runs(delayq), delayq.rule("r").trouble) == (1, [], "'locked'")
    assert any("the next run of 1 rule cannot be made" in line for line in delayq.health())

    own.says.answer = "send"
    set_back(delayq, redis, "r", minutes=70)
    write(delayq)
    assert (len(runs(delayq)), delayq.rule("r").trouble) == (1, "")


def test_an_apply_async_that_is_an_attribute_of_the_task_counts_as_its_own(delayq, report, redis):
    report.apply_async = lambda *_, **__: None
    assert delayq.every("r", report.s(), HOUR).is_made_when_due


def test_a_tracer_that_wraps_celery_s_own_changes_nothing(delayq, report, monkeypatch):
    monkeypatch.setattr(Task, "apply_async", partialmethod(Task.apply_async))
    assert not delayq.every("r", report.s(), HOUR).is_made_when_due


def test_the_command_says_so(delayq, own, run, app):
    delayq.every("r", own.s(), HOUR)
    assert ", made when due" in run("rules").output
    assert "runs" in run("rules", "show", "r").output
    assert '"made_when_due": true' in run("rules", "--json").output

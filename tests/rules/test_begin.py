"""What beat's entries have, where their rules' runs begin, and an `apply_async` of a task's own."""

import inspect
import json
from datetime import timedelta
from functools import partialmethod

import pytest
from celery import beat, schedules
from celery.app.defaults import NAMESPACES
from celery.app.task import Task
from celery.beat import ScheduleEntry
from celery.schedules import BaseSchedule, crontab, schedule, solar

from celery_delayq.contrib.rules.declared import Declared
from celery_delayq.contrib.rules.every import set_rule
from celery_delayq.contrib.rules.plan import SOON, Taken
from celery_delayq.contrib.rules.step import Guard
from celery_delayq.core import clock
from tests.rules.fields import fields_of, listed
from tests.rules.support import HOUR, now, runs, set_back, set_fields, wake, write
from tests.rules.test_beat import Noting

# A Celery of before some of them came is compared as well.
pytestmark = pytest.mark.libraries


# All that an entry of beat has is kept, or refused by its name: no field goes unseen.


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (beat.ScheduleEntry, ()),
        (beat.Service, ()),
        (beat.Scheduler, ()),
        (schedule, ()),
        (crontab, (BaseSchedule,)),
        (solar, (BaseSchedule,)),
    ],
)
def test_each_field_is_in_the_table(kind, more):
    assert fields_of(kind, *more) <= listed(f"{kind.__module__}.{kind.__name__}")


def test_each_setting_of_beat_is_in_the_table():
    assert {f"beat_{name}" for name in NAMESPACES["beat"]} <= listed("settings")


def test_no_class_of_schedules_is_unknown():
    found = {one for one in vars(schedules).values() if inspect.isclass(one)}
    kinds = {one for one in found if issubclass(one, BaseSchedule)}
    assert kinds == {BaseSchedule, schedule, crontab, solar}


def test_a_run_has_each_header_that_beat_sends(delayq, report, redis):
    app = delayq.app
    said = {"task": "report", "args": (7,), "schedule": timedelta(hours=1)}
    app.conf.beat_schedule = {"a": {**said, "options": {"headers": {"team": "a"}}}}
    object.__setattr__(delayq.services.settings, "beat", True)
    Declared(delayq.services, runs_tasks=True).name()
    write(delayq)
    [task] = delayq.select(tag="every:a")
    of_rule = json.loads(delayq.services.entries.find(task.id).message)["headers"]
    scheduler = beat.Scheduler(app)  # it writes its header into the options of the setting
    scheduler.apply_async(scheduler.schedule["a"])
    of_beat = json.loads(redis.lpop("celery"))["headers"]
    own = {"id", "root_id", "eta", "origin", "expires"}
    assert {name: of_rule.get(name) for name in of_beat.keys() - own} == {
        name: value for name, value in of_beat.items() if name not in own
    }


# Where the runs of a rule begin, and by how much they are later than their slots.


PHASE = timedelta(minutes=25)
DAY = timedelta(days=1)
MS = timedelta(milliseconds=1)
SOME = timedelta(hours=7)  # some interval of which no other one is a part


@pytest.fixture
def take(delayq, report):
    """Let a rule take over an entry of beat that has this schedule, and was last sent so long ago.

    Returns its waiting runs, and the time before and after it was set.
    """

    def take(schedule, ago=None, **known):
        before = now(delayq)
        taken = Taken(before - ago if ago is not None else None, **known)
        set_rule(delayq.services, "r", report.s(7), schedule, source="redbeat", taken=taken)
        after = now(delayq)
        write(delayq)
        return runs(delayq), before, after

    return take


def minutes(moments):
    return {moment.minute for moment in moments}


def test_the_offset_in_its_row_is_the_one_that_counts(delayq, report, redis):
    delayq.every("r", report.s(7), HOUR)
    set_fields(redis, "r", offset=lambda _: str(PHASE // timedelta(milliseconds=1)))
    write(delayq)
    assert minutes(runs(delayq)) == minutes(delayq.rule("r").next) == {25}
    # To say the same again, or to go through a dump, keeps it.
    delayq.every("r", report.s(7), HOUR)
    lines = [*delayq.dump()]
    redis.flushdb()
    delayq.load(lines)
    wake(redis)
    write(delayq)
    assert minutes(runs(delayq)) == minutes(delayq.rule("r").next) == {25}


def test_a_new_rule_with_jitter_runs_at_a_slot_whose_run_is_still_to_come(delayq, report):
    for name in "abcdefghijklmnopqrst":  # each has another delay
        before = delayq.every(name, report.s(7), HOUR, jitter=3600)
        write(delayq)
        rule = delayq.rule(name)
        assert runs(delayq, name) == [rule.next[0]]
        # It was not taken for one that was written while Redis's clock was ahead.
        assert rule.revision == before.revision


# A rule that takes over from beat.


def test_an_interval_begins_one_interval_after_it_is_taken_from_beat_schedule(delayq, report):
    delayq.app.conf.beat_schedule = {"r": {"task": "report", "schedule": SOME}}
    object.__setattr__(delayq.services.settings, "beat", True)
    before = now(delayq)
    Declared(delayq.services, runs_tasks=True).name()
    after = now(delayq)
    write(delayq)
    [due] = runs(delayq)
    assert before + SOME <= due <= after + SOME + MS
    assert delayq.rule("r").next[:2] == (due, due + SOME)


@pytest.mark.parametrize("interval", [SOME, timedelta(hours=5, seconds=1.5), DAY])
def test_a_known_last_run_says_when_the_next_one_is(take, interval):
    [due], before, _ = take(interval, HOUR)
    assert due == before - HOUR + interval


@pytest.mark.parametrize("ago", [8 * HOUR, 700 * DAY])
def test_an_overdue_interval_runs_once_at_once_and_counts_from_then(delayq, take, ago):
    dues, before, after = take(SOME, ago)
    first = dues[0]
    assert before <= first <= after + MS
    assert dues[1:] in ([], [first + SOME])
    assert delayq.rule("r").next[0] == first + SOME


@pytest.mark.parametrize("ago", [8 * HOUR, 700 * DAY])
def test_an_overdue_crontab_runs_its_latest_slot_once(delayq, take, ago):
    slots = crontab(hour="*/2", minute="0")
    dues, before, _ = take(slots, ago)
    assert before - 2 * HOUR < dues[0] <= before
    assert dues[1:] in ([], [dues[0] + 2 * HOUR])
    assert delayq.rule("r").next[0] == dues[0] + 2 * HOUR


def test_a_slot_that_is_later_than_the_deadline_of_crontabs_does_not_run(delayq, take):
    an_hour_ago = f"{(now(delayq) - HOUR).hour}"
    dues, before, _ = take(crontab(hour=an_hour_ago, minute="0"), DAY, deadline=timedelta(0))
    assert dues[0] > before + 20 * HOUR


def test_beat_may_have_sent_what_it_has_not_stored_yet(take):
    [due], before, _ = take(HOUR, HOUR + timedelta(seconds=100), behind=timedelta(seconds=200))
    assert due == before - timedelta(seconds=100) + HOUR


def test_what_is_due_in_this_moment_is_still_sent_by_beat(take):
    [due], before, _ = take(HOUR, HOUR - SOON / 2)
    assert due == before + SOON / 2 + HOUR


def test_a_changed_entry_keeps_its_phase_and_another_interval_begins_anew(delayq, report, take):
    [due], before, _ = take(SOME, HOUR)
    set_rule(delayq.services, "r", report.s(8), SOME, source="redbeat", taken=Taken())
    write(delayq)
    assert runs(delayq) == [due]
    before = now(delayq)
    set_rule(
        delayq.services, "r", report.s(8), 2 * SOME, source="redbeat", taken=Taken(before - DAY)
    )
    after = now(delayq)
    write(delayq)
    [due] = runs(delayq)
    assert before + 2 * SOME <= due <= after + 2 * SOME + MS


@pytest.mark.parametrize("schedule", [timedelta(minutes=1), crontab(hour="*/2", minute="0")])
def test_another_schedule_runs_no_slot_of_before(delayq, redis, take, sent, schedule):
    take(SOME, HOUR)
    report = delayq.app.tasks["report"]
    set_fields(redis, "r", offset=lambda _: str(3 * 3_600_000), since=lambda _: "1")
    before = now(delayq)
    made = set_rule(delayq.services, "r", report.s(7), schedule, source="redbeat", taken=Taken())
    write(delayq)
    coming = runs(delayq)
    assert coming[0] > before
    assert coming[0] == delayq.rule("r").next[0]
    assert made.last <= before + 2 * SOON
    assert not sent(before)  # it was taken over before


def test_a_removed_rule_that_is_taken_over_again_begins_anew(delayq, take):
    take(SOME, HOUR)
    delayq.rule("r").remove()
    [due], before, _ = take(SOME, 2 * HOUR)
    assert due == before - 2 * HOUR + SOME


@pytest.fixture
def sent(delayq, monkeypatch):
    """Whether a beat process sends the entry at a moment."""
    scheduler = Noting(delayq.app, lazy=True)
    scheduler.schedule = {}
    Guard(delayq.services).watch(scheduler)

    def is_sent(moment, schedule=SOME):
        monkeypatch.setattr(clock, "utc_now", lambda: moment)
        scheduler.sent.clear()
        entry = ScheduleEntry(name="r", task="report", schedule=schedule, app=delayq.app)
        scheduler.apply_async(entry)
        return bool(scheduler.sent)

    return is_sent


def test_beat_sends_an_interval_until_the_first_run_of_its_rule(take, sent):
    [due], before, _ = take(SOME, HOUR)
    assert sent(before)
    assert sent(due - MS)
    assert not sent(due)


def test_beat_sends_a_crontab_until_the_first_slot_of_its_rule_however_late(take, sent):
    slots = crontab(hour="*/2", minute="0")
    [due], before, _ = take(slots)
    assert sent(before, slots)
    assert sent(due - MS, slots)
    assert not sent(due, slots)


def test_beat_leaves_an_overdue_run_to_the_rule(take, sent):
    _, before, _ = take(SOME, 8 * HOUR)
    assert not sent(before)


# A task with an `apply_async` of its own: that is called at each slot, and never ahead of it.


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

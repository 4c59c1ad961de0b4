"""A person gives a rule another schedule: it lies over the one that code says, until that ends."""

import json
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from celery_delayq.errors import InvalidOption
from tests.cli.conftest import no_workers, project, run
from tests.rules.support import DAILY, HOUR, every, now, runs, write

__all__ = ["no_workers", "project", "run"]

BERLIN = "Europe/Berlin"
SIX = "0 6 * * *"


@pytest.fixture
def edited(delayq, rule):
    """The rule r, of which ann has changed the schedule; a writer has looked at it."""
    with delayq.acting("ann"):
        assert rule.edit(SIX, tz=BERLIN)
    write(delayq)
    return delayq.rule("r")


def in_berlin(moment):
    return moment.astimezone(ZoneInfo(BERLIN)).hour


def test_an_edit_clears_up_the_runs_and_writes_those_of_the_new_schedule(delayq, rule, edited):
    assert (edited.schedule, edited.tz) == (SIX, BERLIN)
    assert runs(delayq) == [edited.next[0]]
    assert in_berlin(edited.next[0]) == 6
    assert edited.revision > rule.revision


def test_an_edit_says_who_made_it_and_when_and_what_code_says(delayq, edited):
    assert (edited.edited.by, edited.edited.schedule, edited.edited.tz) == ("ann", DAILY, "UTC")
    assert timedelta(0) <= now(delayq) - edited.edited.at < timedelta(minutes=1)


def test_code_that_says_its_rule_again_changes_nothing(delayq, report, edited):
    again = every(delayq, "r", report.s(7), DAILY)
    assert (again.revision, again.schedule) == (edited.revision, SIX)
    assert runs(delayq) == [edited.next[0]]


def test_code_that_says_another_rule_leaves_the_schedule_of_the_person(delayq, report, edited):
    rule = every(delayq, "r", report.s(8), HOUR, replace=True)
    assert (rule.schedule, rule.edited.by, rule.edited.schedule) == (SIX, "ann", "every 3600 s")
    [task] = delayq.tasks()
    assert (task.args, task.due) == ((8,), edited.next[0])


def test_back_to_code_ends_an_edit(delayq, rule, edited):
    assert edited.back_to_code()
    write(delayq)
    found = delayq.rule("r")
    assert (found.schedule, found.edited, runs(delayq)) == (DAILY, None, [rule.next[0]])
    assert not found.back_to_code()


def test_the_schedule_that_it_has_is_no_edit(delayq, rule):
    assert not rule.edit(DAILY)
    assert delayq.rule("r") == rule


def test_an_interval_counts_since_1970_as_in_every(delayq, rule):
    assert rule.edit("every 10 s")
    write(delayq)
    assert delayq.rule("r").schedule == "every 10 s"
    assert all(due.second % 10 == 0 and due.microsecond == 0 for due in runs(delayq))


@pytest.mark.parametrize(
    ("schedule", "options"),
    [("0 25 * * *", {}), ("every 0 s", {}), (SIX, {"tz": "Mars/New"}), ("0 6 1 * 1", {})],
)
def test_a_bad_schedule_is_refused_before_anything_is_changed(delayq, rule, schedule, options):
    before = runs(delayq)
    with pytest.raises(InvalidOption):
        rule.edit(schedule, **options)
    assert (delayq.rule("r"), runs(delayq)) == (rule, before)


def test_a_paused_rule_stays_paused(delayq, rule):
    rule.pause()
    assert rule.edit(SIX)
    write(delayq)
    assert (delayq.rule("r").is_paused, runs(delayq)) == (True, [])
    rule.resume()
    write(delayq)
    assert [due.hour for due in runs(delayq)] == [6]


def test_a_rule_that_was_removed_is_set_anew_as_code_says(delayq, report, edited):
    edited.remove()
    assert every(delayq, "r", report.s(7), DAILY).edited is None


def test_a_rule_that_gets_another_key_keeps_its_edit(delayq, report, edited):
    rule = every(delayq, "r", report.s(7).set(delayq_key="other"), DAILY, replace=True)
    assert (rule.schedule, rule.edited.by) == (SIX, "ann")


def test_a_dump_takes_an_edit_along(delayq, redis, edited):
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    delayq.load(lines)
    assert delayq.rule("r") == edited
    assert delayq.rule("r").edited == edited.edited


# The command.


def test_the_command_edits_and_goes_back_to_code(delayq, rule, run, app):
    found = run("rules", "edit", "r", "--schedule", SIX, "--tz", BERLIN, app=app)
    assert found.output == "rule r has the schedule 0 6 * * * (Europe/Berlin)\n"
    again = run("rules", "edit", "r", "--schedule", SIX, "--tz", BERLIN, app=app)
    assert again.exit_code == 1
    assert again.output == "rule r has the schedule 0 6 * * * (Europe/Berlin) already\n"
    shown = run("rules", "show", "r", app=app).output
    assert "code says 0 9 * * * (UTC)" in shown
    assert "code says" not in run("rules", "list", app=app).output
    assert "changed by" in run("rules", "list", app=app).output
    [line] = run("rules", "list", "--json", app=app).output.splitlines()
    facts = json.loads(line)
    assert (facts["schedule"], facts["edited"]["code_schedule"]) == (SIX, DAILY)
    back = run("rules", "edit", "r", "--back-to-code", app=app)
    assert back.output == "rule r has the schedule 0 9 * * * (UTC)\n"
    assert json.loads(run("rules", "list", "--json", app=app).output)["edited"] is None


def test_the_command_takes_a_schedule_as_the_list_prints_it(delayq, rule, run, app):
    for text in ("every 10 s", "20"):
        assert run("rules", "edit", "r", "--schedule", text, app=app).exit_code == 0
    assert delayq.rule("r").schedule == "every 20 s"


def test_fields_that_restrict_both_days_need_a_dialect(delayq, rule, run, app):
    both = ("rules", "edit", "r", "--schedule", "0 6 1 * 1")
    refused = run(*both, app=app)
    assert refused.exit_code == 1
    assert "dialect" in refused.output
    assert run(*both, "--dialect", "celery", app=app).exit_code == 0
    assert delayq.rule("r").schedule == "0 6 1 * 1"


@pytest.mark.parametrize(
    "words",
    [
        ("edit", "r"),
        ("edit", "r", "--schedule", SIX, "--back-to-code"),
        ("edit", "r", "--back-to-code", "--tz", BERLIN),
        ("pause", "r", "--schedule", SIX),
        ("edit", "--schedule", SIX),
    ],
)
def test_options_that_do_not_fit_are_refused(delayq, rule, run, app, words):
    assert run("rules", *words, app=app).exit_code == 2
    assert delayq.rule("r") == rule


def test_a_rule_that_is_not_there_is_not_edited(delayq, run, app):
    assert run("rules", "edit", "nobody", "--schedule", SIX, app=app).exit_code == 1

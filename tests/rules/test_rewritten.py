"""A rule is fitted to other code: its task gets another name, its arguments a function."""

import json
from datetime import timedelta

import pytest

from celery_delayq.errors import InvalidOption
from tests.app.support import envelope
from tests.app.test_moving_along import names
from tests.cli.conftest import ended
from tests.rules.support import DAILY, HOUR, every, runs, set_fields, write
from tests.support.shards import each

NAMES = {"report": "digest"}


@pytest.fixture(autouse=True)
def digest(app):
    @app.task(name="digest")
    def digest(tenant=0, currency=""):
        pass

    return digest


def priced(args, kwargs):
    return None if "currency" in kwargs else (args, {**kwargs, "currency": "EUR"})


@pytest.mark.parametrize("task", ["digest", NAMES], ids=["a name", "names"])
def test_a_rewritten_rule_has_the_new_task_and_writes_its_runs_anew(delayq, rule, task):
    assert rule.rewrite(task=task)
    write(delayq)

    again = delayq.rule("r")
    assert (again.task, again.schedule, again.tz) == ("digest", rule.schedule, rule.tz)
    [run] = delayq.tasks()
    assert (run.task, run.args, run.due) == ("digest", (7,), rule.next[0])
    assert not again.rewrite(task=task)
    assert delayq.rule("r").revision == again.revision


def test_the_schedule_that_a_person_gave_and_a_pause_stay(delayq, rule):
    rule.edit("0 6 * * *", tz="Europe/Berlin")
    delayq.rule("r").pause()
    assert delayq.rule("r").rewrite(task="digest")
    again = delayq.rule("r")
    assert (again.task, again.schedule, again.is_paused) == ("digest", "0 6 * * *", True)
    assert again.edited.schedule == DAILY
    assert again.back_to_code()
    assert (delayq.rule("r").task, delayq.rule("r").schedule) == ("digest", DAILY)


def test_a_declared_rule_that_is_rewritten_is_declared_still(delayq, report, redis):
    rule = every(delayq, "r", report.s(7), DAILY, version=3)
    for rules in each("rules"):
        if row := redis.hget(rules, "r"):
            redis.hset(rules, "r", json.dumps({**json.loads(row), "declared": "1"}))

    assert delayq.rule("r").rewrite(task="digest")

    again = delayq.rule("r")
    assert (again.is_declared, again.version, again.source) == (True, 3, rule.source)


def test_what_was_set_since_the_rule_was_read_stays(delayq, report, rule):
    every(delayq, "r", report.s(8), HOUR, replace=True)
    assert rule.rewrite(task="digest")
    again = delayq.rule("r")
    assert (again.task, again.schedule) == ("digest", "every 3600 s")
    write(delayq)
    assert {task.args for task in delayq.tasks()} == {(8,)}
    again.remove()
    assert not again.rewrite(task="report")


def test_the_links_of_a_rewritten_rule_get_new_names_by_a_mapping(delayq, report):
    rule = every(delayq, "r", report.s(7).on_error(report.s()), DAILY)
    assert rule.rewrite(task=NAMES)
    write(delayq)
    [run] = delayq.tasks()
    assert set(names(envelope(delayq, run.id).raw)) == {"digest"}


def test_a_function_makes_its_arguments_anew(delayq, rule):
    assert not rule.rewrite(change=lambda *_: None)
    assert rule.rewrite(task="digest", change=priced)
    write(delayq)
    [run] = delayq.tasks()
    assert (run.task, run.args, run.kwargs) == ("digest", (7,), {"currency": "EUR"})
    assert not delayq.rule("r").rewrite(change=priced)


def test_what_does_not_fit_changes_nothing(delayq, rule):
    with pytest.raises(TypeError):
        rule.rewrite(change=priced)  # its task takes no currency
    with pytest.raises(TypeError, match="has to return"):
        rule.rewrite(change=lambda *_: 5)
    with pytest.raises(InvalidOption):
        rule.rewrite(task="nowhere")
    with pytest.raises(InvalidOption):
        rule.rewrite()
    assert delayq.rule("r").revision == rule.revision


def test_an_edit_of_all_tasks_leaves_runs_to_their_rule_and_takes_those_that_were_moved(
    delayq, report
):
    every(delayq, "r", report.s(7), HOUR)
    [first, *_] = runs(delayq)
    every(delayq, "s", report.s(8), DAILY)
    [moved] = delayq.select(tag="every:s")
    delayq.reschedule(moved, by=timedelta(minutes=5))

    count = delayq.select(all=True).edit(task=NAMES)

    assert (count, count.of_rules, count.is_complete) == (1, 1, True)
    assert delayq.get(moved).task == "digest"
    assert runs(delayq) == [first]
    # The same by rules, and no run comes twice.
    for rule in delayq.rules():
        rule.rewrite(task=NAMES)
    write(delayq)
    assert runs(delayq) == [first]
    assert {task.task for task in delayq.tasks()} == {"digest"}


def test_the_command_fits_one_or_all(delayq, report, run):
    every(delayq, "r", report.s(7), DAILY)
    every(delayq, "s", report.s(8), DAILY)

    def said(*words, status=0):
        return ended(run("rules", "edit", *words), status).output.splitlines()

    assert said("r", "--to-task", "digest") == ["rule r has the task digest"]
    assert said("--all", "--to-task", "report=digest", "--yes") == [
        "rule s has the task digest",
        "looked at 2 rules",
    ]
    assert said("--all", "--to-task", "report=digest", "--yes") == ["looked at 2 rules"]
    assert said("r", "--to-task", "digest", "--tz", "UTC", status=2)[-1].endswith(
        "--to-task and --with take no schedule."
    )
    assert "without names" in said("r", "--all", "--to-task", "digest", status=2)[-1]


def test_a_rule_of_a_later_release_is_named_and_the_others_are_fitted(delayq, report, redis, run):
    every(delayq, "r", report.s(7), DAILY)
    every(delayq, "s", report.s(8), DAILY)
    set_fields(redis, "r", plan=lambda plan: plan.replace("[1,", "[9,", 1))
    result = ended(run("rules", "edit", "--all", "--to-task", "report=digest", "--yes"), 1)
    first, *rest = result.output.splitlines()
    assert first == "rule s has the task digest"
    assert rest[0] == "looked at 1 rule"
    assert rest[1].startswith("rule r cannot be read: ")


def test_the_command_says_which_rule_does_not_fit(delayq, report, run):
    every(delayq, "r", report.s(7), DAILY)
    result = ended(run("rules", "edit", "r", "--with", "tests.rules.test_rewritten:priced"), 1)
    assert result.output.startswith("rule r stays: TypeError: ")

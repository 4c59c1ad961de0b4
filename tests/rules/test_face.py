"""One rule, as users see it: its past, its next runs, and the reason if it has none."""

import json
import time
from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store
from celery_delayq.contrib.care.doctor import health as doctor_lines
from celery_delayq.errors import InvalidOption
from tests.cli.conftest import no_workers, project, run
from tests.rules.support import (
    DAILY,
    HOUR,
    NEW_YEAR,
    about_an_hour,
    every,
    now,
    runs,
    set_back,
    set_fields,
    wake,
    write,
)
from tests.support.shards import each
from tests.support.waiting import PATIENCE

__all__ = ["no_workers", "project", "run"]


# Two of one name.


def test_a_second_rule_of_one_name_in_a_process_is_refused(delayq, report):
    every(delayq, "r", report.s(7), DAILY)
    sentence = "has given to no other rule; pass replace=True to change"
    with pytest.raises(InvalidOption, match=sentence):
        every(delayq, "r", report.s(8), DAILY)
    assert [task.args for task in delayq.tasks()] == [(7,)]
    every(delayq, "r", report.s(8), DAILY, replace=True)
    assert [task.args for task in delayq.tasks()] == [(8,)]


def test_a_rule_that_another_process_set_may_be_changed(delayq, report, delayq_app, url):
    every(delayq, "r", report.s(7), DAILY)
    other = delayq_app(url)
    assert every(other.delayq, "r", other.tasks["report"].s(8), DAILY).revision


def test_a_rule_that_is_no_longer_there_may_be_set_anew(delayq, report, redis):
    every(delayq, "r", report.s(7), DAILY).remove()
    every(delayq, "r", report.s(8), DAILY)
    redis.flushdb()
    every(delayq, "r", report.s(9), DAILY)
    assert [task.args for task in delayq.tasks()] == [(9,)]


def test_a_store_has_at_most_so_many_rules(delayq, report, limits):
    shards = len(each("rules"))
    limits(rules_most=shards)
    names = [str(number) for number in range(40 * shards)]
    with pytest.raises(InvalidOption, match="one of at most 100,000 rules; remove some first"):  # noqa: PT012
        for name in names:
            every(delayq, name, report.s(), DAILY)
    assert len(delayq.rules()) <= shards
    every(delayq, delayq.rules()[0].name, report.s(), NEW_YEAR, replace=True)


# The last run.


def test_the_last_run_and_what_became_of_it(delayq, report, redis):
    rule = every(delayq, "r", report.s(7), about_an_hour(redis), jitter=60)
    assert rule.last_run() is None
    set_back(delayq, redis, "r", hours=1)
    set_fields(redis, "r", **{"from": lambda ms: str(int(ms) - 2 * 3_600_000)})
    assert delayq.rule("r").last_run().what == "unknown"
    write(delayq)

    [over] = [task for task in delayq.tasks() if task.due <= now(delayq)]
    assert delayq.rule("r").last_run() == (over.id, over.due, "scheduled")
    delayq.hand_over()
    assert delayq.rule("r").last_run() == (over.id, over.due, "handed_over")


def test_a_rule_of_the_first_of_january_has_a_last_run(delayq, report, redis):
    rule = every(delayq, "r", report.s(7), NEW_YEAR)
    set_fields(redis, "r", **{"from": lambda _: "0"})
    last = delayq.rule("r").last_run()
    assert (last.due.month, last.due.day, last.what) == (1, 1, "unknown")
    assert last.due.year == rule.next[0].year - 1


# Trouble.


def test_a_rule_in_trouble_is_told_of_until_it_is_mended(delayq, redis, troubled, caplog):
    for _ in range(2):
        wake(redis, "bad")
        write(delayq)

    assert "expected" in delayq.rule("bad").trouble
    logged = [*caplog.get_records("setup"), *caplog.records]
    assert len([one for one in logged if "rule bad: its next run" in one.message]) == 1
    assert delayq.counts().troubled_rules == 1
    assert any("the next run of 1 rule cannot be made" in each for each in delayq.health())
    [line] = [line for line in doctor_lines(delayq.services) if line.name == "rules"]
    assert "bad: " in line.found + line.advice

    set_fields(redis, "bad", plan=lambda plan: plan.replace(r"\"delayq_late\": 5", ""))
    wake(redis, "bad")
    write(delayq)
    assert (delayq.rule("bad").trouble, delayq.counts().troubled_rules) == ("", 0)
    assert len(runs(delayq, "bad")) == 2


def test_trouble_of_one_process_ends_when_another_one_has_written_the_run(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR)
    found = rule_store.find(delayq.services.entries, "r")
    shard = delayq.services.entries.shards[found.shard]
    rule_store.fire(shard, found, 0, [], "of a process that does not know its queue")
    assert delayq.counts().troubled_rules == 1
    write(delayq)
    assert delayq.counts().troubled_rules == 0


@pytest.mark.parametrize("action", ["pause", "remove"])
def test_a_rule_that_is_paused_or_removed_is_in_trouble_no_longer(delayq, troubled, action):
    getattr(troubled, action)()
    assert delayq.counts().troubled_rules == 0


def test_a_rule_whose_next_run_nobody_writes_is_told_of(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR)
    assert not any("recurring" in each for each in delayq.health())
    for ahead in each("rules_next"):
        for name in redis.zrange(ahead, 0, -1):
            redis.zadd(ahead, {name: delayq.counts().now_ms - 91_000})
    assert any("should have written its next run " in each for each in delayq.health())
    write(delayq)
    assert not any("recurring" in each for each in delayq.health())


# The command.


def test_the_command_shows_one_rule(delayq, report, redis, run, app):
    every(delayq, "r", report.s(7), DAILY, tags=["a", "b"], jitter=5, version=3)
    found = run("rules", "show", "r", app=app).output
    lines = dict(line.split("  ", 1) for line in found.splitlines())
    facts = {name.strip(): text.strip() for name, text in lines.items()}
    facts.pop("next (UTC)")
    assert facts == {
        "name": "r", "task": "report", "schedule": "0 9 * * * (UTC)", "state": "at work",
        "last run": "none yet", "missed": "one", "jitter": "5 s", "tags": "a, b", "version": "3",
    }  # fmt: skip
    assert run("rules", "show", "nobody", app=app).exit_code == 1


def test_the_command_skips_and_runs(delayq, report, run, app):
    every(delayq, "r", report.s(7), DAILY)
    [task] = delayq.tasks()
    told = run("rules", "skip", "r", app=app).output
    when = f"{task.due:%Y-%m-%d %H:%M:%S} UTC"
    assert told == f"rule r: the run of {when} is skipped: task {task.id} is cancelled\n"
    when = f"{task.due + timedelta(1):%Y-%m-%d %H:%M:%S} UTC"
    assert run("rules", "skip", "r", app=app).output == f"rule r: the run of {when} is skipped\n"
    assert run("rules", "unskip", "r", app=app).output == "rule r: the skipped runs come again\n"
    again = run("rules", "unskip", "r", app=app)
    assert (again.exit_code, again.output) == (1, "rule r: no run was skipped\n")
    write(delayq)
    delayq.rule("r").skip()
    said = run("rules", "run", "r", app=app).output
    [task] = delayq.tasks()
    assert said == f"rule r: task {task.id} runs now\n"


def test_the_command_lists_trouble(troubled, run, app):
    assert "trouble: " in run("rules", app=app).output
    assert "trouble" in json.loads(run("rules", "list", "--json", app=app).output)


# Rules that this version, or this host, cannot compute.

UNREADABLE = {
    "zone": ('"UTC"', '"Mars/New"'),
    "fields": ("0 9 * * *", "0 99 * * *"),
    "interval": ("0 9 * * *", "every 0 s"),
    "nested": ('"0 9 * * *"', "[" * 100_000 + "]" * 100_000),
    "of a later version": ("[1,", "[2,"),
}


@pytest.mark.parametrize(("old", "new"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_rule_that_cannot_be_computed_hides_no_other_and_can_be_replaced_or_removed(  # noqa: PLR0917
    delayq, report, redis, run, app, old, new
):
    every(delayq, "bad", report.s(), DAILY)
    every(delayq, "good", report.s(), DAILY)
    set_fields(redis, "bad", plan=lambda plan: plan.replace(old, new))
    assert [rule.name for rule in delayq.rules()] == ["good"]
    with pytest.raises(InvalidOption, match="that this version can read"):
        delayq.rule("bad")
    assert "good" in run("rules", app=app).output
    assert run("rules", "pause", "bad", app=app).output == "rule bad is paused\n"
    assert run("rules", "remove", "bad", app=app).output == "rule bad is removed\n"
    every(delayq, "bad", report.s(), NEW_YEAR, replace=True)
    assert len(delayq.rules()) == 2


def test_a_task_of_a_user_that_has_a_rules_tag_stays(delayq, report):
    rule = every(delayq, "r", report.s(7), DAILY)
    report.s(1).set(delayq_tags=["every:r"]).delay_for(60)
    rule.skip()
    assert [task.args for task in delayq.tasks()] == [(1,)]
    rule.pause()
    assert [task.args for task in delayq.tasks()] == [(1,)]


@pytest.mark.parametrize("schedule", [timedelta(seconds=1), "* * * * *", DAILY])
def test_an_absence_of_many_years_is_caught_up_with_at_once(delayq, report, redis, schedule):
    every(delayq, "r", report.s(7), schedule, missed="all")
    set_back(delayq, redis, "r", days=15000)
    begun, before = time.perf_counter(), now(delayq)
    write(delayq)
    assert time.perf_counter() - begun < PATIENCE
    # A hundred slots were over when the writer looked, which was between these two times.
    fewest, most = (sum(due <= then for due in runs(delayq)) for then in (before, now(delayq)))
    assert fewest <= 100 <= most

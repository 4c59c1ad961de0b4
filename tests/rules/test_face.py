"""One rule, as users see it: its past, its next runs, what is late, and why it has none."""

import json
import time
from datetime import timedelta

import pytest

from celery_delayq.contrib.care.doctor import health as doctor_lines
from celery_delayq.errors import InvalidOption
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


# What is shown of a rule comes from what is stored: its next runs, its last one, what is late.


SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def late(delayq, report, redis):
    """Set the rule r, which began two hours ago and has not written its last slot."""

    def late(signature=None, **options):
        every(delayq, "r", signature or report.s(7), HOUR, **options)
        set_back(delayq, redis, "r", hours=1)
        set_fields(redis, "r", **{"from": lambda ms: str(int(ms) - 2 * 3_600_000)})

    return late


# The next runs.


def test_a_run_that_was_moved_is_shown_at_its_new_time_and_alone_if_the_rule_is_paused(
    delayq, rule
):
    [task] = delayq.tasks()
    delayq.reschedule(task.id, by=60)
    assert delayq.rule("r").next == (task.due + MINUTE, *rule.next[1:])
    rule.pause()
    assert delayq.rule("r").next == (task.due + MINUTE,)


def test_what_is_shown_as_next_is_what_comes_whatever_the_jitter(delayq, report):
    for number in range(20):
        name = f"r{number}"
        every(delayq, name, report.s(7), 20 * SECOND, jitter=3600)
        shown, written = delayq.rule(name).next, runs(delayq, name)
        overdue = [due for due in written if due < shown[0]]  # since it was written
        assert all(due <= now(delayq) for due in overdue)
        to_come = written[len(overdue) :][:3]
        assert to_come == [*shown[: len(to_come)]]


def test_a_cancelled_run_is_not_shown_as_next(delayq, rule):
    [task] = delayq.tasks()
    delayq.cancel(task.id)
    assert delayq.rule("r").next[:2] == rule.next[1:]


def test_a_task_of_a_user_with_the_tag_of_a_rule_is_no_run_of_it_and_stays(delayq, report, rule):
    report.s(1).set(delayq_tags=["every:r"]).delay_for(60)
    assert delayq.rule("r").next == rule.next
    rule.skip()
    assert [task.args for task in delayq.tasks()] == [(1,)]
    rule.pause()
    assert [task.args for task in delayq.tasks()] == [(1,)]


# The last one.


def test_after_a_pause_and_a_resume_the_last_run_is_the_one_that_was(delayq, late):
    late()
    write(delayq)
    delayq.hand_over()
    before = delayq.rule("r").last_run()
    assert before.what == "handed_over"

    delayq.rule("r").pause()
    assert delayq.rule("r").last_run() == before
    delayq.rule("r").resume()
    write(delayq)
    assert delayq.rule("r").last_run() == before
    delayq.rule("r").edit("0 6 1 1 *")
    write(delayq)
    assert delayq.rule("r").last_run() == before


def test_a_rule_of_which_no_run_was_due_since_it_was_set_has_none(delayq, rule):
    rule.pause()
    rule.resume()
    assert delayq.rule("r").last_run() is None


def test_a_run_that_was_too_late_is_shown_as_missed(delayq, late):
    late(missed="none")
    write(delayq)
    assert delayq.rule("r").last_run().what == "missed"


def test_a_slot_that_met_the_holder_of_its_key_is_counted_and_shown_as_held(
    delayq, report, late, omitted
):
    late(report.s(7).set(delayq_key="k"))
    report.s().set(delayq_key="k").delay_for(3600)
    write(delayq)
    assert (delayq.rule("r").last_run().what, omitted) == ("held", [(1, "held")])


def test_a_run_that_a_person_skipped_is_shown_as_skipped(delayq, late):
    late()
    write(delayq)
    [task] = [task for task in delayq.tasks() if task.due <= now(delayq)]
    assert delayq.rule("r").skip() == (task.id, task.due)
    assert delayq.rule("r").last_run() == (task.id, task.due, "skipped")


# Overdue.


def test_a_slot_that_no_worker_has_written_is_overdue_unless_the_rule_is_paused(
    delayq, report, redis
):
    every(delayq, "r", report.s(7), MINUTE)
    assert delayq.rule("r").overdue is None
    last = set_back(delayq, redis, "r", minutes=3)
    found = delayq.rule("r").overdue
    assert last < found <= last + MINUTE
    write(delayq)
    delayq.hand_over()
    assert delayq.rule("r").overdue is None
    delayq.rule("r").pause()
    set_back(delayq, redis, "r", minutes=3)
    assert delayq.rule("r").overdue is None


def test_a_run_that_no_worker_has_delivered_is_overdue_unless_it_is_paused(delayq, report, redis):
    every(delayq, "r", report.s(7), timedelta(days=300))
    set_back(delayq, redis, "r", days=400)
    write(delayq)
    over, _ = runs(delayq)
    assert delayq.rule("r").overdue == over
    delayq.pause(task="report")
    delayq.hand_over()
    assert delayq.rule("r").overdue is None


# Many.


@pytest.fixture
def asked(between):
    """The numbers of rules of each question about runs."""
    numbers = []

    def count():
        words = between.last["runs"].split(b"\r\n")[2::2]  # EVALSHA, the script, how many keys
        numbers.append((len(words) - 3 - int(words[2])) // 2)

    between.before("runs", count)
    return numbers


def test_of_many_rules_a_hundred_are_asked_about_at_once(delayq, report, asked):
    for number in range(230):
        delayq.every(f"r{number:03}", report.s(), HOUR)
    asked.clear()
    assert len(delayq.rules()) == 230
    assert max(asked) <= 100
    assert len(asked) <= 230 // 100 + len(each("rules")) * 1

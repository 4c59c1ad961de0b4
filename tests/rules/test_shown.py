"""What is shown of a rule comes from what is stored: its next runs, its last one, what is late."""

from datetime import timedelta

import pytest

from tests.rules.support import HOUR, every, now, runs, set_back, set_fields, write
from tests.support.shards import each

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def in_the_past(redis, name, **span):
    """Let a rule be set earlier than it was."""
    ms = round(timedelta(**span).total_seconds() * 1000)
    set_fields(redis, name, **{"from": lambda text: str(int(text) - ms)})


# The next runs.


def test_a_run_that_was_moved_is_shown_at_its_new_time(delayq, rule):
    [task] = delayq.tasks()
    delayq.reschedule(task.id, by=60)
    assert delayq.rule("r").next == (task.due + MINUTE, *rule.next[1:])


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


def test_a_paused_rule_shows_only_a_run_that_somebody_moved(delayq, rule):
    [task] = delayq.tasks()
    delayq.reschedule(task.id, by=60)
    rule.pause()
    assert delayq.rule("r").next == (task.due + MINUTE,)


def test_a_task_of_a_user_with_its_tag_is_no_run_of_it(delayq, report, rule):
    report.s().set(delayq_tags=["every:r"]).delay_for(60)
    assert delayq.rule("r").next == rule.next


# The last one.


def test_after_a_pause_and_a_resume_the_last_run_is_the_one_that_was(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR)
    set_back(delayq, redis, "r", hours=1)
    in_the_past(redis, "r", hours=2)
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


def test_a_run_that_was_too_late_is_shown_as_missed(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR, missed="none")
    set_back(delayq, redis, "r", hours=1)
    in_the_past(redis, "r", hours=2)
    write(delayq)
    assert delayq.rule("r").last_run().what == "missed"


def test_a_slot_that_met_the_holder_of_its_key_is_shown_as_held(delayq, report, redis):
    every(delayq, "r", report.s(7).set(delayq_key="k"), HOUR)
    set_back(delayq, redis, "r", hours=1)
    in_the_past(redis, "r", hours=2)
    report.s().set(delayq_key="k").delay_for(3600)
    write(delayq)
    assert delayq.rule("r").last_run().what == "held"


def test_a_run_that_a_person_skipped_is_shown_as_skipped(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR)
    set_back(delayq, redis, "r", hours=1)
    in_the_past(redis, "r", hours=2)
    write(delayq)
    [task] = [task for task in delayq.tasks() if task.due <= now(delayq)]
    assert delayq.rule("r").skip() == (task.id, task.due)
    assert delayq.rule("r").last_run() == (task.id, task.due, "skipped")


# Overdue.


def test_a_slot_that_no_worker_has_written_is_overdue(delayq, report, redis):
    every(delayq, "r", report.s(7), MINUTE)
    assert delayq.rule("r").overdue is None
    last = set_back(delayq, redis, "r", minutes=3)
    found = delayq.rule("r").overdue
    assert last < found <= last + MINUTE
    write(delayq)
    delayq.hand_over()
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


def test_a_paused_rule_is_not_overdue(delayq, report, redis):
    rule = every(delayq, "r", report.s(7), MINUTE)
    rule.pause()
    set_back(delayq, redis, "r", minutes=3)
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

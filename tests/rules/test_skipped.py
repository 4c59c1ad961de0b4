"""To skip a run, which stays left out until that is undone; and to run a rule's task now."""

import json
from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rules import writing
from celery_delayq.errors import AlreadyScheduled, InvalidOption, KeyHeld
from tests.rules.support import DAILY, HOUR, every, now, runs, set_back, set_fields, wake, write

# A run that a person skips stays left out, whatever becomes of the rule, until that is undone.


MINUTE = timedelta(minutes=1)


def coming(delayq):
    return delayq.rule("r").next


def test_the_run_after_the_skipped_one_is_shown_as_next(delayq, rule):
    first, second, third = rule.next
    assert rule.skip().due == first
    shown = delayq.rule("r")
    assert (shown.next[:2], shown.skipped) == ((second, third), (first,))


def test_a_second_skip_leaves_out_the_run_after_that_though_it_is_not_written(delayq, rule, redis):
    _, second, third = rule.next
    rule.skip()
    assert rule.skip() == ("", second)
    assert coming(delayq)[0] == third
    wake(redis)
    write(delayq)
    assert coming(delayq)[0] == third


def test_a_run_that_is_skipped_before_it_is_written_never_is(delayq, report, redis):
    delayq.every("r", report.s(7), HOUR)
    rule = delayq.rule("r")
    skipped = rule.skip()
    assert skipped == ("", rule.next[0])
    write(delayq)
    assert runs(delayq) == []
    assert coming(delayq)[0] == rule.next[1]


def to_and_fro(delayq, _redis):
    delayq.rule("r").pause()
    assert delayq.rule("r").next == ()
    delayq.rule("r").resume()


def edited_and_back(delayq, _redis):
    for schedule in ("0 10 * * *", DAILY):
        delayq.rule("r").edit(schedule)
        write(delayq)
    assert delayq.rule("r").back_to_code() is not None


def dumped_and_loaded(delayq, redis):
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    delayq.load(lines)
    to_and_fro(delayq, redis)


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("jitter", [0, 600], ids=["no jitter", "jitter"])
@pytest.mark.parametrize("way", [to_and_fro, edited_and_back, dumped_and_loaded])
def test_a_skipped_run_does_not_come_back_whatever_becomes_of_the_rule(  # noqa: PLR0917
    delayq, report, redis, way, jitter, is_written
):
    delayq.every("r", report.s(7), DAILY, jitter=jitter)
    if is_written:
        write(delayq)
    rule = delayq.rule("r")
    skipped = rule.skip()
    assert skipped.due == rule.next[0]
    way(delayq, redis)
    write(delayq)
    assert skipped.due not in [*runs(delayq), *coming(delayq)]
    assert coming(delayq)[0] == rule.next[1]


def test_of_a_rule_that_fires_often_each_skip_leaves_out_one(delayq, report):
    rule = every(delayq, "r", report.s(7), timedelta(seconds=10))
    before = runs(delayq)
    skipped = [rule.skip().due for _ in range(3)]
    assert [due for due in before if due not in runs(delayq)] == skipped
    assert delayq.rule("r").skipped == tuple(skipped)


def test_a_run_that_was_moved_is_skipped_at_its_new_time_and_its_slot_stays_left_out(delayq, rule):
    [task] = delayq.tasks()
    delayq.reschedule(task.id, by=60)
    assert rule.skip() == (task.id, task.due + MINUTE)
    rule.pause()
    rule.resume()
    write(delayq)
    assert coming(delayq)[0] == rule.next[1]


def test_a_writer_that_computed_the_run_before_the_skip_does_not_write_it(delayq, report):
    delayq.every("r", report.s(7), HOUR)
    found = store.find(delayq.services.entries, "r")
    delayq.rule("r").skip()
    shard = delayq.services.entries.shards[found.shard]
    writing.look_at(delayq.services, shard, found, now(delayq))
    assert runs(delayq) == []


def test_no_run_of_a_paused_rule_is_skipped(delayq, rule):
    rule.pause()
    assert rule.skip() is None


def test_a_rule_has_at_most_a_hundred_skips(delayq, report):
    delayq.every("r", report.s(7), DAILY)
    rule = delayq.rule("r")
    for _ in range(100):
        rule.skip()
    with pytest.raises(InvalidOption, match="fewer than 100 skips"):
        rule.skip()


@pytest.mark.parametrize("step", ["skip", "write"])
def test_skips_of_slots_that_are_over_are_forgotten_but_for_the_latest(delayq, rule, redis, step):
    first = rule.skip().due
    over = [first - timedelta(days) for days in (3, 2, 1)]
    skips = "".join(f"{int(slot.timestamp() * 1000)}: " for slot in over)
    set_fields(redis, "r", skipped=lambda skipped: skips + skipped)
    later = []
    if step == "skip":
        later.append(rule.skip().due)
    else:
        wake(redis)
        write(delayq)
    skipped = store.find(delayq.services.entries, "r").skips
    assert [*skipped] == [over[-1], first, *later]
    assert delayq.rule("r").skipped == (first, *later)


# To undo it.


def test_unskip_brings_all_of_them_back(delayq, rule):
    rule.skip()
    rule.skip()
    assert rule.unskip()
    write(delayq)
    assert delayq.rule("r").next == rule.next
    assert runs(delayq) == [rule.next[0]]
    assert not rule.unskip()


def test_an_undo_brings_exactly_that_run_back_once(delayq, rule):
    skipped = rule.skip()
    assert delayq.undo(skipped.id) == skipped.due
    shown = delayq.rule("r")
    assert (shown.next[0], shown.skipped) == (skipped.due, ())
    write(delayq)
    assert runs(delayq) == [skipped.due]


@pytest.mark.parametrize("is_paused_first", [True, False])
def test_an_undone_skip_runs_once_through_a_pause_and_a_resume(delayq, rule, is_paused_first):
    skipped = rule.skip()
    if is_paused_first:
        rule.pause()
        delayq.undo(skipped.id)
    else:
        delayq.undo(skipped.id)
        rule.pause()
        assert runs(delayq) == []
    rule.resume()
    write(delayq)
    assert runs(delayq) == [skipped.due]


def test_an_undone_skip_does_not_stay_after_a_remove(delayq, rule):
    skipped = rule.skip()
    delayq.undo(skipped.id)
    rule.remove()
    assert runs(delayq) == []


def test_an_undone_skip_and_an_unskip_run_once(delayq, rule):
    skipped = rule.skip()
    delayq.undo(skipped.id)
    rule.unskip()
    write(delayq)
    assert runs(delayq) == [skipped.due]


@pytest.mark.parametrize("change", ["pause", "remove"])
def test_runs_that_a_rule_cancels_itself_have_no_undo(delayq, rule, change):
    getattr(rule, change)()
    assert [*delayq.undoable()] == []


# To run a rule's task now: also if it has a key, while nothing but its own next run has that.


@pytest.fixture
def keyed(report):
    return report.s(7).set(delayq_key="k", delayq_unique_until="finished")


@pytest.fixture
def keyed_rule(delayq, keyed):
    return every(delayq, "r", keyed, HOUR)


def finish(delayq):
    """Let the run that holds the key end, as its worker says."""
    assert delayq.free(key="k")


def test_a_keyed_rule_runs_now_and_its_slot_gets_another_run(delayq, keyed_rule):
    [slot] = runs(delayq)
    made = keyed_rule.run()
    assert [task.id for task in delayq.tasks() if task.due <= now(delayq)] == [made.id]
    assert delayq.hand_over() == 1
    assert delayq.rule("r").next[0] == slot
    finish(delayq)
    write(delayq)
    [task] = delayq.tasks()
    assert (task.due, task.id != made.id) == (slot, True)


def test_while_that_run_goes_on_another_one_is_refused_and_the_error_names_it(delayq, keyed_rule):
    made = keyed_rule.run()
    delayq.hand_over()
    with pytest.raises(KeyHeld, match=made.id):
        keyed_rule.run()


def test_while_the_slot_s_own_run_goes_on_another_one_is_refused(delayq, keyed_rule, redis):
    set_back(delayq, redis, "r", hours=1)
    write(delayq)
    assert delayq.hand_over() == 1
    with pytest.raises(KeyHeld):
        keyed_rule.run()


def test_another_task_under_the_key_is_named(delayq, report, keyed_rule):
    delayq.select(tag="every:r").cancel()
    other = report.s(1).set(delayq_key="k").delay_for(3600)
    with pytest.raises(AlreadyScheduled, match=other.id):
        keyed_rule.run()


@pytest.mark.parametrize("change", ["moved", "edited"])
def test_a_next_run_that_somebody_changed_stays_as_it_is(delayq, keyed_rule, change):
    [task] = delayq.tasks()
    if change == "moved":
        delayq.reschedule(task.id, by=60)
    else:
        delayq.edit(task.id, args=(8,))
    before = [*delayq.tasks()]
    with pytest.raises(AlreadyScheduled, match=task.id):
        keyed_rule.run()
    assert [*delayq.tasks()] == before


def test_a_paused_rule_runs_now_and_stays_paused(delayq, keyed_rule):
    keyed_rule.pause()
    made = keyed_rule.run()
    assert [task.id for task in delayq.tasks()] == [made.id]
    delayq.hand_over()
    finish(delayq)
    write(delayq)
    assert runs(delayq) == []


def test_a_pause_of_the_queue_holds_that_run_back_as_any_other(delayq, keyed_rule):
    delayq.pause(task="report")
    keyed_rule.run()
    assert delayq.hand_over() == 0


def test_skips_stay(delayq, keyed, keyed_rule):
    keyed_rule.skip()
    skipped = delayq.rule("r").skipped
    keyed_rule.run()
    delayq.hand_over()
    finish(delayq)
    write(delayq)
    assert skipped[0] not in runs(delayq)
    assert delayq.rule("r").next[0] == skipped[0] + HOUR


def test_a_rule_without_a_key_runs_beside_its_next_run(delayq, report):
    keyed_rule = every(delayq, "n", report.s(7), HOUR, tags=["t"])
    before = runs(delayq, "n")
    made = keyed_rule.run()
    assert len(runs(delayq, "n")) == 2
    assert delayq.rule("n").next[0] == before[0]
    task = delayq.get(made.id)
    assert (task.args, {*task.tags}) == ((7,), {"t", "every:n"})
    assert timedelta(0) <= now(delayq) - task.due < timedelta(minutes=1)

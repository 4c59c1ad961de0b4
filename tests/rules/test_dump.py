"""A dump takes rules along with their last slots: after a load, each slot is written once."""

import json
from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.errors import InvalidDump
from tests.rules.support import DAILY, HOUR, NEW_YEAR, every, runs, set_back, write
from tests.support.shards import each


@pytest.fixture
def moved(delayq, redis):
    """Empty the store, and load a dump of it."""

    def moved(**options):
        lines = [json.dumps(line) for line in delayq.dump()]
        redis.flushdb()
        return delayq.load(lines, **options), lines

    return moved


def test_a_rule_goes_along_with_its_runs_and_writes_none_of_them_again(delayq, report, moved):
    rule = every(delayq, "r", report.s(7), HOUR, tags=["t"], missed="all", jitter=60, version=3)
    every(delayq, "often", report.s(7), timedelta(seconds=2))
    before = runs(delayq), [(task.id, task.due) for task in delayq.tasks()]

    loaded, _ = moved()

    assert loaded
    assert (runs(delayq), [(task.id, task.due) for task in delayq.tasks()]) == before
    assert delayq.rule("r") == rule
    write(delayq)
    assert runs(delayq) == before[0]
    assert len({*runs(delayq, "often")}) == len(runs(delayq, "often"))
    assert [*delayq.check()] == []


def test_the_same_dump_again_changes_nothing(delayq, report, moved):
    every(delayq, "r", report.s(7), HOUR)
    _, lines = moved()
    delayq.rule("r").pause()
    delayq.rule("r").resume()
    found = runs(delayq), delayq.rule("r")
    assert delayq.load(lines).loaded == 0
    assert (runs(delayq), delayq.rule("r")) == found


def test_a_run_that_was_delivered_since_the_dump_is_not_written_again(delayq, report, redis):
    every(delayq, "r", report.s(7), HOUR, missed="all")
    set_back(delayq, redis, "r", hours=3)
    lines = [json.dumps(line) for line in delayq.dump()]
    write(delayq)
    assert delayq.hand_over() == 3
    waiting = runs(delayq)
    delayq.rule("r").remove()

    delayq.load(lines)
    write(delayq)

    assert runs(delayq) == waiting


def test_a_paused_rule_comes_back_paused(delayq, report, moved):
    every(delayq, "r", report.s(7), HOUR).pause()
    moved()
    assert delayq.rule("r").is_paused
    write(delayq)
    assert runs(delayq) == []
    assert delayq.rule("r").resume()
    write(delayq)
    assert len(runs(delayq)) == 1


def test_a_rule_that_was_set_here_before_the_load_has_each_slot_once(delayq, report, rule, redis):
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    every(delayq, "r", report.s(7), DAILY)
    for _ in range(2):
        delayq.load(lines)
        assert runs(delayq) == [rule.next[0]]
        write(delayq)
        assert runs(delayq) == [rule.next[0]]


def test_of_two_that_differ_the_one_that_is_here_stays(delayq, report, redis):
    before = every(delayq, "r", report.s(7), DAILY)
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    here = every(delayq, "r", report.s(8), NEW_YEAR)

    delayq.load(lines)
    write(delayq)

    # The run that the dump has comes along, as each task of it does; the next one is written then.
    assert runs(delayq) == [before.next[0]] == [delayq.rule("r").last]
    assert delayq.rule("r").next == (before.next[0], *here.next[:2])


def test_runs_left_by_a_paused_rule_are_cleared_up_after_the_load(delayq, rule, moved):
    shard = store.shard_for(delayq.services.entries, "r")
    store.change(shard, "r", "pause")  # and the process died
    moved()
    assert len(runs(delayq)) == 1
    write(delayq)
    assert (runs(delayq), delayq.rule("r").is_paused) == ([], True)


def test_a_run_that_comes_after_its_rule_was_changed_goes_with_the_next_change(delayq, rule, redis):
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    rules = [line for line in map(json.loads, lines) if line["kind"] != "task"]
    delayq.load(json.dumps(line | ({"tasks": 0} if "tasks" in line else {})) for line in rules)
    delayq.rule("r").pause()
    write(delayq)
    delayq.load(lines)
    assert len(runs(delayq)) == 1

    delayq.rule("r").resume()
    delayq.rule("r").pause()
    write(delayq)

    assert runs(delayq) == []


def test_a_dry_run_loads_no_rule(rule, moved, redis):
    moved(dry_run=True)
    assert not any(redis.exists(key) for key in each("rules"))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "", "name is ''; expected text of 1 to 255 bytes"),
        ("digest", "xyz", "digest is 'xyz'; expected hexadecimal digits"),
        ("last_ms", -1, "last_ms is -1"),
        ("paused", 1, "paused is 1; expected true or false"),
        ("more", 1, "it has an unknown field 'more'"),
    ],
)
def test_a_damaged_line_of_a_rule_is_refused(delayq, rule, field, value, said):
    lines = [line | {field: value} if line["kind"] == "rule" else line for line in delayq.dump()]
    with pytest.raises(InvalidDump) as caught:
        delayq.load(map(json.dumps, lines))
    assert said in str(caught.value)

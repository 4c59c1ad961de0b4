"""A rule that is changed: to another key, perhaps on another shard; and within its jitter."""

import json
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rules.plan import Plan, Timing
from tests.rules import support
from tests.rules.support import HOUR, now, runs, write
from tests.support.shards import each


class KilledError(Exception):
    """In place of a process's end."""


@pytest.fixture
def every(delayq, report):
    """Set the rule with a key."""

    def every(key):
        return support.every(delayq, "r", report.s().set(delayq_key=key), HOUR, replace=True)

    return every


@pytest.fixture
def rows(redis):
    def rows():
        return [row for rules in each("rules") if (row := redis.hget(rules, "r"))]

    return rows


def given(row, **other):
    """The arguments that set a rule with this row, or another one."""
    own = {"revision", "last", "since"}
    known = {name: value for name, value in json.loads(row).items() if name not in own}
    return known | {"flags": "-n"} | other


@pytest.fixture
def killed_after(delayq):
    """Let a process end after so many of its steps on rules: ``with killed_after(2)``."""

    @contextmanager
    def killed_after(number):
        hooks, left = delayq.services.hooks, [KilledError] * number
        before = hooks.called, hooks.hears_calls

        def called(script, _):
            if script == "rule" and left and (error := left.pop()) and not left:
                raise error

        hooks.called, hooks.hears_calls = called, True
        with suppress(KilledError):
            yield
        hooks.called, hooks.hears_calls = before

    return killed_after


def set_also(delayq, row, keys):
    """Set the rule with other keys, too, as processes leave it that change its key at once."""
    for key in keys:
        other = given(row, home=key, digest=key.encode().hex())
        for end in ('"]', '\\"}'):  # the plan's key, and that of the signature in it
            begin = end[:-1]
            other["plan"] = other["plan"].replace(f"{begin}a{end}", f"{begin}{key}{end}")
        store.put(delayq.services.entries, "put", "r", other)


def test_a_rule_with_another_key_has_one_row_and_the_run_of_that(delayq, every, rows):
    for key in "abcdefgh":
        every(key)
        assert len(rows()) == 1
        assert [task.key for task in delayq.tasks()] == [key]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_process_that_is_killed_on_the_way_to_another_key_loses_no_rule(
    delayq, every, rows, killed_after, number
):
    for key, other in zip("abcdefgh", "ijklmnop", strict=True):
        every(key)
        with killed_after(number):
            every(other)
        for _ in range(3):
            write(delayq)
        assert len(rows()) == 1
        assert len(runs(delayq)) == 1


def test_a_process_that_finishes_a_move_late_changes_no_rule_that_was_set_since(
    delayq, every, rows
):
    every("a")
    shard = store.shard_for(delayq.services.entries, "b")
    row = given(rows()[0], home="b")
    every("b")
    now_set = rows()
    for _ in range(2):
        assert store.change(shard, "r", "place", json.dumps(row | {"digest": "abc"}), 9) == "same"
    assert rows() == now_set


def test_a_process_that_finishes_a_move_late_brings_no_removed_rule_back(
    delayq, every, rows, killed_after, between
):
    every("a")
    write(delayq)
    here = store.find(delayq.services.entries, "r").shard
    shards = {key: store.shard_for(delayq.services.entries, key).number for key in "bcdefgh"}
    key = next((key for key, number in shards.items() if number != here), None)
    if key is None:
        return  # there is one shard
    with killed_after(1):
        every(key)
    shard = delayq.services.entries.shards[here]
    [row] = store.named(shard, [b"r"])

    def overtake():
        between.before("cancel", lambda: None)
        write(delayq)  # another process finishes it
        delayq.rule("r").remove()

    between.before("cancel", overtake)
    store.clear(delayq.services, shard, row)
    assert between.asked["cancel"] > 1
    assert rows() == []


def test_a_move_takes_place_however_many_rules_there_are(delayq, every, rows, limits):
    every("a")
    limits(rules_most=0)
    for key in "bcdefgh":
        here = store.find(delayq.services.entries, "r").shard
        if store.shard_for(delayq.services.entries, key).number != here:
            every(key)
            assert len(rows()) == 1


def test_two_rows_of_a_name_become_one_when_it_is_said_again(delayq, every, rows):
    every("a")
    set_also(delayq, rows()[0], "bcdefgh")
    every("z")
    assert len(rows()) == 1
    assert [task.key for task in delayq.tasks()] == ["z"]


def test_runs_that_another_row_has_written_stay_when_one_is_cleared_up(delayq, every, rows):
    every("a")
    here = store.find(delayq.services.entries, "r")
    set_also(delayq, rows()[0], "bcdefgh")
    for _ in range(3):
        write(delayq)
    written = {task.key for task in delayq.tasks()}
    elsewhere = {
        key for key in written if store.shard_for(delayq.services.entries, key).number != here.shard
    }

    shard = delayq.services.entries.shards[here.shard]
    [now_here] = store.named(shard, [b"r"])
    store.clear(delayq.services, shard, now_here)

    assert {task.key for task in delayq.tasks()} >= elsewhere


def test_a_remove_takes_all_rows(delayq, every, rows):
    every("a")
    set_also(delayq, rows()[0], "bcdefgh")
    assert delayq.rule("r").remove()
    assert rows() == []


@pytest.mark.parametrize("what", ["changed", "resumed", "loaded"])
def test_a_rule_goes_on_behind_the_slots_whose_runs_were_due(delayq, report, rows, what):
    rule = support.every(delayq, "r", report.s(1), HOUR, jitter=3600)
    offset = Plan("{}", Timing("every 3 s"), "one", 3600.0).offset("r")
    assert offset > timedelta(minutes=1)
    if what == "resumed":
        rule.pause()
    changed = given(rows()[0], digest="abc")
    change = {
        "changed": ("put", json.dumps(changed), 10),
        "resumed": ("resume",),
        "loaded": ("load", json.dumps(changed | {"since": "1", "last": "1"}), 10),
    }[what]
    before = delayq.counts().now_ms

    store.change(store.shard_for(delayq.services.entries, "r"), "r", *change)

    last = store.find(delayq.services.entries, "r").last
    assert before <= store.ms_of(last + offset) <= delayq.counts().now_ms
    write(delayq)
    write(delayq)
    assert runs(delayq)[0] - now(delayq) <= HOUR

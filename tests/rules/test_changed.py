"""A rule that is changed: to another key, perhaps on another shard; and within its jitter."""

import json
from contextlib import suppress
from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.rules.rule import Plan
from celery_delayq.contrib.rules.timing import Timing
from tests.rules.test_rules import now, runs, write
from tests.support.shards import each

HOUR = timedelta(hours=1)


class KilledError(Exception):
    """In place of a process's end."""


@pytest.fixture
def every(delayq, report):
    """Set the rule with a key."""

    def every(key):
        return delayq.every("r", report.s().set(delayq_key=key), HOUR, replace=True)

    return every


@pytest.fixture
def rows(redis):
    def rows():
        return [row for rules in each("rules") if (row := redis.hget(rules, "r"))]

    return rows


def given(row, **other):
    """What a caller gives to set a rule with this row, or another one."""
    own = {"revision", "last", "since"}
    known = {name: value for name, value in json.loads(row).items() if name not in own}
    return known | {"flags": "-n"} | other


@pytest.fixture
def killed_after(monkeypatch):
    """Let a process end after so many of its steps on rules."""

    def killed_after(number):
        steps = []

        def wrap(step):
            def wrapped(*arguments):
                answer = step(*arguments)
                steps.append(step)
                if len(steps) == number:
                    raise KilledError
                return answer

            return wrapped

        monkeypatch.setattr(store, "change", wrap(store.change))

    return killed_after


def test_with_another_key_it_has_one_row_and_the_run_of_that(delayq, every, rows):
    for key in "abcdefgh":
        every(key)
        assert len(rows()) == 1
        assert [task.key for task in delayq.tasks()] == [key]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_process_that_is_killed_on_the_way_to_another_key_loses_no_rule(  # noqa: PLR0917
    delayq, every, rows, killed_after, monkeypatch, number
):
    for key, other in zip("abcdefgh", "ijklmnop", strict=True):
        every(key)
        killed_after(number)
        with suppress(KilledError):
            every(other)
        monkeypatch.undo()
        for _ in range(3):
            write(delayq)
        assert len(rows()) == 1
        assert len(runs(delayq)) == 1


def test_two_rows_of_a_name_become_one_when_it_is_said_again(delayq, every, rows):
    every("a")
    for key in "bcdefgh":  # as processes leave it that do so at once
        row = given(rows()[0], home=key, digest=key.encode().hex())
        row["plan"] = row["plan"].replace('"a"]', f'"{key}"]')
        store.put(delayq.services.entries, "put", "r", row)

    every("z")

    assert len(rows()) == 1
    assert [task.key for task in delayq.tasks()] == ["z"]


def test_a_remove_takes_all_rows(delayq, every, rows):
    every("a")
    for key in "bcdefgh":
        row = given(rows()[0], home=key, digest=key.encode().hex())
        store.put(delayq.services.entries, "put", "r", row)
    assert delayq.rule("r").remove()
    assert rows() == []


def check_last(delayq, *change):
    offset = Plan("{}", Timing("every 3 s"), "one", 3600.0).offset("r")
    assert offset > timedelta(minutes=1)
    before = delayq.counts().now_ms
    store.change(store.shard_for(delayq.services.entries, "r"), "r", *change)
    last = store.find(delayq.services.entries, "r").last
    assert before <= store.ms_of(last + offset) <= delayq.counts().now_ms
    write(delayq)
    write(delayq)
    assert runs(delayq)[0] - now(delayq) <= HOUR


def test_a_changed_rule_goes_on_behind_the_slots_whose_runs_were_due(delayq, report, rows):
    delayq.every("r", report.s(1), HOUR, jitter=3600)
    row = given(rows()[0], digest="abc")
    check_last(delayq, "put", json.dumps(row), 10)


def test_so_does_a_resumed_one(delayq, report):
    delayq.every("r", report.s(1), HOUR, jitter=3600).pause()
    check_last(delayq, "resume")

"""Redis's clock, and a process's own, that are wrong for a while: no rule is silent for longer."""

import json
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
import time_machine

from celery_delayq.contrib import rule_store
from celery_delayq.contrib.rules.writing import look_at
from celery_delayq.contrib.testing import isolated
from celery_delayq.contrib.testing.clock import clock_key
from celery_delayq.errors import StoreUnavailable
from tests.rules.support import DAILY, HOUR, now, runs, write
from tests.sentinel.conftest import start_group
from tests.sentinel.faults import kill
from tests.support.waiting import eventually

__all__ = ["start_group"]

SECOND = timedelta(seconds=1)
NEAR = 30 * SECOND  # a slot so near, which ran while the clock was ahead, does not run again
SCHEDULES = {"second": SECOND, "minutes": 10 * 60 * SECOND, "hour": HOUR, "day": DAILY}
AHEAD = {"an hour": HOUR, "two days": timedelta(days=2)}


@pytest.fixture
def delayq(app, url):
    with isolated(app, redis=url) as delayq:
        yield delayq


@pytest.fixture
def set_clock(delayq, redis):
    """Let Redis's clock be ahead by so much, or behind."""

    def set_clock(ahead):
        for shard in delayq.services.scripts:
            redis.set(clock_key(shard), ahead // timedelta(microseconds=1))

    return set_clock


@pytest.fixture
def rules(delayq, report):
    """Rules of each kind, with their next runs."""
    for name, schedule in SCHEDULES.items():
        delayq.every(name, report.s(), schedule)
    delayq.every("key", report.s().set(delayq_key="k"), HOUR / 3)
    write(delayq)
    return [*SCHEDULES, "key"]


def test_advance_writes_the_runs_of_rules(delayq, report):
    delayq.every("r", report.s(7), HOUR)
    assert runs(delayq) == []
    delayq.advance()
    assert runs(delayq) == [*delayq.rule("r").next[:1]]
    for _ in range(2):
        delayq.advance(hours=1)
        assert len(runs(delayq)) == 2
        assert [ran.args for ran in delayq.run_due()] == [(7,)]


def test_a_process_that_was_stopped_after_its_claim_does_not_take_the_clock_for_set_back(
    delayq, report
):
    delayq.every("r", report.s(), 60 * SECOND)
    write(delayq)
    before, services = delayq.rule("r"), delayq.services
    [stored] = rule_store.find_all(services.entries, "r")
    claimed = now(delayq) - 120 * SECOND

    look_at(services, services.entries.unasked_shards[stored.shard], stored, claimed)

    assert delayq.rule("r").revision == before.revision


def is_going_on(delayq, name):
    """Whether the next run of a rule waits, and none is left out before the last."""
    found, rule = runs(delayq, name), delayq.rule(name)
    coming = [due for due in found if due > now(delayq)]
    gaps = {after - before for before, after in pairwise(coming)}
    most = rule.next[1] - rule.next[0] + NEAR
    return coming[0] - now(delayq) <= most and gaps <= {SECOND}


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
def test_after_a_clock_that_was_ahead_each_rule_goes_on_at_the_next_look(
    delayq, rules, set_clock, caplog, ahead
):
    set_clock(ahead)
    write(delayq)
    delayq.hand_over()
    write(delayq)
    set_clock(timedelta(0))

    write(delayq)

    assert [name for name in rules if not is_going_on(delayq, name)] == []
    assert "rule second: Redis's clock was ahead when the rule wrote its run of " in caplog.text
    revisions = {rule.name: rule.revision for rule in delayq.rules()}
    write(delayq)
    assert {rule.name: rule.revision for rule in delayq.rules()} == revisions


def test_a_clock_that_is_set_back_for_good_silences_no_rule(delayq, report, set_clock):
    set_clock(timedelta(0))
    delayq.every("r", report.s(), SECOND)
    write(delayq)
    set_clock(-HOUR)
    write(delayq)
    assert is_going_on(delayq, "r")


def test_a_rule_that_was_set_while_the_clock_was_ahead_goes_on(delayq, report, set_clock):
    set_clock(HOUR)
    delayq.every("r", report.s(), SECOND)
    set_clock(timedelta(0))
    write(delayq)
    assert is_going_on(delayq, "r")


def test_a_rule_of_a_dump_whose_clock_was_ahead_goes_on(delayq, rules, set_clock, redis):
    set_clock(HOUR)
    write(delayq)
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    delayq.load(lines)
    write(delayq)
    waiting = {rule.name: {*runs(delayq, rule.name)} & {*rule.next} for rule in delayq.rules()}
    assert {name for name in rules if not waiting[name]} == set()


def test_some_seconds_change_no_rule_and_repeat_no_run(delayq, rules, set_clock):
    revisions = {rule.name: rule.revision for rule in delayq.rules()}
    set_clock(20 * SECOND)
    write(delayq)
    set_clock(timedelta(0))
    write(delayq)
    assert {rule.name: rule.revision for rule in delayq.rules()} == revisions


@pytest.mark.parametrize("wrong", [-5 * HOUR, 5 * HOUR], ids=str)
def test_a_process_whose_own_clock_is_wrong_writes_the_same_runs(delayq, report, wrong):
    with time_machine.travel(datetime.now(timezone.utc) + wrong):
        delayq.every("r", report.s().set(expires=60), SECOND)
        write(delayq)
    assert is_going_on(delayq, "r")
    [first, *_] = sorted(delayq.tasks(), key=lambda task: task.due)
    assert first.due - now(delayq) < HOUR
    message = json.loads(delayq.services.entries.find(first.id).message)
    assert datetime.fromisoformat(message["headers"]["expires"]) == first.due + 60 * SECOND


@pytest.mark.parametrize("wrong", [-HOUR, HOUR], ids=str)
def test_a_replica_that_takes_over_with_another_clock_silences_no_rule(
    app, report, start_group, wrong
):
    group = start_group("--replica-read-only", "no")
    with isolated(app, redis=group.url(), delayq_transport_options=group.options) as delayq:
        delayq.every("r", report.s(), SECOND)
        write(delayq)
        [replica] = group.replicas
        for shard in delayq.services.scripts:
            replica.client().set(clock_key(shard), wrong // timedelta(microseconds=1))

        kill(group)

        eventually(lambda: is_reached(delayq))
        write(delayq)
        assert is_going_on(delayq, "r")


def is_reached(delayq):
    with suppress(StoreUnavailable):
        return delayq.counts().now_ms

"""No rule is silent: not for a clock that is wrong, nor a process that cannot make its run."""

import json
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import time_machine

from celery_delayq.contrib import rule_store
from celery_delayq.contrib.rules import beside_scanner
from celery_delayq.contrib.rules.step import GIVEN_WAY, SKIPPED, Writer
from celery_delayq.contrib.rules.writing import look_at
from celery_delayq.contrib.testing import isolated
from celery_delayq.contrib.testing.clock import clock_key
from celery_delayq.core import clock
from celery_delayq.errors import StoreUnavailable
from tests.rules.support import DAILY, HOUR, now, runs, write
from tests.sentinel.conftest import start_group
from tests.sentinel.faults import kill
from tests.support.waiting import eventually

__all__ = ["start_group"]


# Redis's clock, and a process's own, that are wrong for a while: no rule is silent for longer.


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


def test_an_edited_run_stays_though_the_clock_was_ahead_when_a_dump_brought_its_rule(
    delayq, report, set_clock, redis
):
    set_clock(timedelta(days=2))
    delayq.every("r", report.s(7), HOUR)
    lines = [json.dumps(line) for line in delayq.dump()]
    redis.flushdb()
    set_clock(timedelta(days=2))
    delayq.load(lines)
    set_clock(timedelta(0))
    write(delayq)
    [run] = delayq.select(tag="every:r")
    assert run.due <= now(delayq) + HOUR

    delayq.edit(run.id, args=(8,))
    delayq.rule("r").pause()
    write(delayq)

    assert [task.args for task in delayq.tasks()] == [(8,)]


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


# A process that cannot make a rule's run leaves it to those that can, as in a deploy.


FIVE_MINUTES = timedelta(minutes=5)
FAR_MS = 10**14


@pytest.fixture
def scanners(delayq, redis):
    """Let so many scanners be alive."""

    def scanners(count):
        for shard in delayq.services.scripts:
            redis.zadd(shard.keys["scanners"], {f"s{number}": FAR_MS for number in range(count)})

    return scanners


@pytest.fixture
def wait(delayq, redis, monkeypatch):
    """Let time pass, for Redis and for this process."""
    monotonic, waited = clock.monotonic, []
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + sum(waited))

    def wait(span):
        waited.append(span.total_seconds())
        for shard in delayq.services.scripts:
            redis.incrby(clock_key(shard), span // timedelta(microseconds=1))

    return wait


@pytest.fixture
def process(app, delayq):
    """Make a process whose code has the task as given, or takes no argument."""

    @app.task(name="old")
    def old():
        pass

    def process(new=None):
        writer = beside_scanner(app)

        def write():
            app.tasks["report"] = new or old
            return writer.write()

        return write

    return process


def test_a_process_that_can_make_the_runs_writes_each_slot_though_four_cannot(
    delayq, report, scanners, wait, process
):
    processes = [*(process() for _ in range(4)), process(report)]
    scanners(len(processes))
    delayq.every("r", report.s(7).set(delayq_key="k"), FIVE_MINUTES)
    dues = set()
    for _ in range(20):
        for one in processes:
            one()
            assert (delayq.rule("r").trouble, delayq.counts().troubled_rules) == ("", 0)
        dues |= {task.due for task in delayq.tasks()}
        wait(FIVE_MINUTES)
        delayq.hand_over()
    assert len(dues) == 20
    assert {after - before for before, after in pairwise(sorted(dues))} == {FIVE_MINUTES}


def test_the_trouble_is_told_when_all_have_failed(delayq, report, scanners, process):
    processes = [process() for _ in range(5)]
    scanners(len(processes))
    delayq.every("r", report.s(7), FIVE_MINUTES)
    for one in processes:
        assert delayq.rule("r").trouble == ""
        one()
    assert "positional argument" in delayq.rule("r").trouble
    assert any("the next run of 1 rule cannot be made" in line for line in delayq.health())
    delayq.rule("r").pause()
    delayq.rule("r").resume()
    processes[0]()
    assert delayq.rule("r").trouble == ""
    assert process(report)() > 0
    assert delayq.counts().scheduled == 1


def test_a_process_that_failed_leaves_the_rule_alone_for_a_while_unless_it_is_changed(  # noqa: PLR0917
    delayq, report, scanners, wait, process, caplog
):
    failures = lambda: caplog.text.count("cannot be made by this process")  # noqa: E731
    write = process()
    scanners(2)
    delayq.every("r", report.s(7), FIVE_MINUTES)
    assert (write() > 0, write() > 0, failures()) == (True, True, 1)
    wait(timedelta(seconds=2 * SKIPPED - 1))
    assert (write() <= 1, failures()) == (True, 1)
    wait(timedelta(seconds=1))
    assert (write() > 0, failures()) == (True, 2)
    delayq.every("r", report.s(), FIVE_MINUTES, replace=True)
    write()
    assert (failures(), delayq.counts().scheduled) == (2, 1)


def test_a_slot_is_not_left_out_as_an_own_apply_async_refuses_the_arguments_in_old_code(  # noqa: PLR0917
    app, delayq, report, scanners, wait, process
):
    old = process()
    for task in (report, app.tasks["old"]):
        task.apply_async = partial(type(task).apply_async, task)
    scanners(2)
    delayq.every("r", report.s(7), FIVE_MINUTES)
    old()
    wait(FIVE_MINUTES)
    old()
    assert delayq.counts().scheduled == 0
    process(report)()
    assert [task.args for task in delayq.tasks()] == [(7,)]


def test_a_process_that_cannot_make_a_run_wakes_the_other_writers(delayq, report, process, redis):
    delayq.every("r", report.s(7), FIVE_MINUTES)
    with redis.pubsub() as heard:
        heard.subscribe(*(shard.keys["wake"] for shard in delayq.services.scripts))
        process()()
        assert eventually(heard.get_message)["type"] == "subscribe"
        eventually(lambda: (heard.get_message() or {}).get("data") == b"rules")


@pytest.fixture
def busy():
    """A worker's pool in which all processes run tasks; and the claims that it got."""
    got = []
    return SimpleNamespace(is_busy=True, got=got, rest=lambda: 0.0, write=got.append)


def test_a_worker_whose_pool_is_busy_lets_others_claim_first(delayq, report, process, busy):
    writer = Writer(delayq, lambda: busy)
    delayq.every("r", report.s(7), FIVE_MINUTES)
    assert (writer.look(), busy.got) == (GIVEN_WAY, [])
    process(report)()
    writer.look()
    assert (busy.got, delayq.counts().scheduled) == ([], 1)


def test_a_busy_worker_claims_a_rule_that_no_other_one_has_claimed_meanwhile(delayq, report, busy):
    writer = Writer(delayq, lambda: busy)
    delayq.every("r", report.s(7), FIVE_MINUTES)
    for _ in range(2):
        writer.look()
    assert len(busy.got) == 1

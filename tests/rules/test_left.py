"""A process that cannot make a rule's run leaves it to those that can, as in a deploy."""

from datetime import timedelta
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest

from celery_delayq.contrib.rules import beside_scanner
from celery_delayq.contrib.rules.step import GIVEN_WAY, SKIPPED, Writer
from celery_delayq.contrib.testing import isolated
from celery_delayq.contrib.testing.clock import clock_key
from celery_delayq.core import clock
from tests.support.waiting import eventually

FIVE_MINUTES = timedelta(minutes=5)
FAR_MS = 10**14


@pytest.fixture
def delayq(app, url):
    with isolated(app, redis=url) as delayq:
        yield delayq


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
        for write in processes:
            write()
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
    for write in processes:
        assert delayq.rule("r").trouble == ""
        write()
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

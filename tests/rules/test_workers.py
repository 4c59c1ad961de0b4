"""Real workers write and run what a rule says: each slot once, whichever of them is killed."""

import json
import time
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest

from celery_delayq.contrib.rule_store import TASK
from celery_delayq.contrib.rules.step import REST, SKIPPED
from celery_delayq.core.store import What
from tests.rules.support import now
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.worker.conftest import make_project, patient, server
from tests.worker.project import TASKS

__all__ = ["make_project", "patient", "server"]

SECOND = timedelta(seconds=1)
PUBLISHED, RAN, IMPORTED = "published", "ran", "imported"  # see tests/rules/told.py


@pytest.fixture
def project(make_project):
    return make_project(delayq_history=10_000)


@pytest.fixture
def start(project, start_worker):
    return lambda: start_worker(TASKS, "-P", "threads", env=project.env)


def lapse(project, name):
    """Let workers look at a rule now: the claim on it lapses, or it has written a minute's runs."""
    for ahead in project.delayq.services.scripts:
        project.client.zadd(ahead.keys["rules_next"], {name: 0}, xx=True)


def ids(project, what):
    return [event.id for event in project.delayq.history() if event.what is what]


def test_no_slot_is_doubled_or_left_out_though_a_worker_is_killed(project, start):
    rule = project.delayq.every("tick", project.tasks["note"].s(), SECOND)
    first, _ = start(), start()
    eventually(lambda: len(ids(project, What.HANDED_OVER)) >= 3)
    first.kill()
    start()
    lapse(project, "tick")
    handed_over = len(ids(project, What.HANDED_OVER))
    eventually(lambda: len(ids(project, What.HANDED_OVER)) >= handed_over + 3)
    rule.pause()

    events = project.delayq.history()
    dues = sorted(event.due for event in events if event.what is What.SCHEDULED)
    assert {after - before for before, after in pairwise(dues)} == {SECOND}
    assert max(Counter(ids(project, What.HANDED_OVER)).values()) == 1
    # A task that the killed worker had acknowledged does not run: that is Celery's part.
    assert max(len(project.runs(task_id)) for task_id in ids(project, What.HANDED_OVER)) == 1


# Where the user's code runs.


@pytest.fixture
def noted(project):
    """What the receivers of the worker's signals wrote down, by the list's name."""
    return lambda key: [json.loads(line) for line in project.evidence.lrange(key, 0, -1)]


@pytest.fixture
def in_pool(project, start_worker, noted):
    """Start a worker of a pool; return the runs that it published by then, and it itself."""

    def in_pool(*options, published=6):
        project.evidence.delete(PUBLISHED, RAN)
        worker = start_worker("tests.rules.told", *options, env=project.env).wait_ready()
        eventually(lambda: len({one["id"] for one in noted(PUBLISHED)}) >= published)
        return worker

    return in_pool


@pytest.mark.libraries
def test_receivers_of_publishing_run_in_the_pool_and_not_in_the_process_that_forks(
    project, in_pool, noted
):
    for number in range(6):
        project.delayq.every(f"r{number}", project.tasks["note"].s(), SECOND)

    worker = in_pool("-P", "prefork", "-c", "2", "--max-tasks-per-child", "1", published=60)

    children = {one["pid"] for one in noted(RAN) if one["task"] == TASK}
    assert worker.pid not in children
    assert {one["pid"] for one in noted(PUBLISHED)} <= children


@pytest.mark.libraries
@pytest.mark.parametrize("pool", ["solo", "threads", "gevent"])
def test_each_pool_writes_runs_once(project, in_pool, noted, pool):
    project.delayq.every("r", project.tasks["note"].s(), SECOND)

    in_pool("-P", pool, published=30)

    ids = [one["id"] for one in noted(PUBLISHED)]
    assert len(ids) == len({*ids})
    assert {one["task"] for one in noted(RAN)} >= {TASK}


def test_a_rule_that_is_set_or_resumed_has_its_runs_at_once(project, start):
    start()
    eventually(lambda: project.scanners() == 1)
    delayq, note = project.delayq, project.tasks["note"].s()
    delayq.every("first", note, timedelta(days=1))
    waiting = lambda name: [*delayq.tasks(tag=f"every:{name}")]  # noqa: E731
    eventually(lambda: waiting("first"), REST / 2)
    delayq.rule("first").pause()
    delayq.rule("first").resume()
    eventually(lambda: waiting("first"), REST / 2)


def test_a_worker_whose_pool_cannot_make_a_run_remembers_it_and_leaves_it_to_another_one(
    project, start_worker, start
):
    eager = json.dumps({**project.conf, "task_always_eager": True})
    begun = time.monotonic()
    options = ("-P", "prefork", "-c", "1", "--max-tasks-per-child", "1")
    failing = start_worker(TASKS, *options, env={**project.env, "DELAYQ_TEST_CONF": eager})
    failing.wait_ready()
    project.delayq.every("r", project.tasks["note"].s(), timedelta(days=1))
    eventually(lambda: "task_always_eager" in project.delayq.rule("r").trouble)

    start()

    eventually(lambda: [*project.delayq.tasks(tag="every:r")])
    assert project.delayq.rule("r").trouble == ""
    tries = sum(f"{TASK}[" in line and "received" in line for line in failing.lines)
    assert 1 <= tries <= 1 + (time.monotonic() - begun) / SKIPPED


def test_a_worker_without_rules_runs_no_task_of_theirs_and_imports_nothing_that_writes_them(
    project, in_pool, noted
):
    in_pool("-P", "threads", published=0).stop()
    assert noted(RAN) == noted(PUBLISHED) == []
    [imported] = noted(IMPORTED)
    writes = ("writing", "timing", "rule", "beat", "pool")
    names = {"cronsim", *(f"celery_delayq.contrib.rules.{name}" for name in writes)}
    assert {*imported["names"]} & names == set()


@pytest.mark.libraries
def test_a_worker_writes_runs_again_when_its_broker_is_back(make_project, start_worker, server):
    with RedisServer() as broker:
        project = make_project(broker_url=broker.url(), delayq_url=server.url())
        waiting = lambda name: [*project.delayq.tasks(tag=f"every:{name}")]  # noqa: E731
        worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
        project.delayq.every("before", project.tasks["note"].s(), timedelta(days=1))
        eventually(lambda: waiting("before"))

        seen = len(worker.lines)
        broker.restart()

        worker.wait_log("Connected to", since=seen)
        project.delayq.every("after", project.tasks["note"].s(), timedelta(days=1))
        eventually(lambda: waiting("after"))


# While all processes of a pool are busy.


@pytest.fixture
def busy(project, in_pool):
    """Start a worker, and let each of its processes run a task; return it, and how to end those."""

    def busy(processes):
        worker = in_pool("-P", "prefork", "-c", str(processes), published=0)
        held = [project.tasks["hold"].delay(600) for _ in range(processes)]
        for result in held:
            project.wait_runs(result)
        return worker, lambda: [project.let_go(result) for result in held]

    return busy


def test_another_worker_writes_the_runs_while_the_task_for_them_waits_in_a_busy_pool(
    project, busy, in_pool
):
    worker, let_go = busy(2)
    project.delayq.every("r", project.tasks["note"].s(), SECOND, missed="all")
    worker.wait_log(rf"{TASK}\[.*received")
    lapse(project, "r")

    in_pool("-P", "prefork", "-c", "1")

    eventually(lambda: len(ids(project, What.SCHEDULED)) >= 30)
    let_go()
    worker.wait_log(rf"{TASK}\[.*succeeded")
    events = project.delayq.history()
    dues = sorted(event.due for event in events if event.what is What.SCHEDULED)
    assert {after - before for before, after in pairwise(dues)} == {SECOND}


@pytest.mark.libraries
def test_the_only_worker_writes_all_runs_as_soon_as_one_of_its_processes_is_free(project, busy):
    worker, let_go = busy(1)
    begun = now(project.delayq)
    project.delayq.every("r", project.tasks["note"].s(), SECOND, missed="all")
    is_set = now(project.delayq)
    worker.wait_log(rf"{TASK}\[.*received")
    assert project.delayq.counts().scheduled == 0

    let_go()

    eventually(lambda: len(ids(project, What.HANDED_OVER)) >= 3)
    events = project.delayq.history()
    dues = sorted(event.due for event in events if event.what is What.SCHEDULED)
    assert begun < dues[0] <= is_set + SECOND
    assert {after - before for before, after in pairwise(dues)} == {SECOND}

"""A key that is held until its run has finished, if Celery raises, or says nothing."""

import json

import pytest

from tests.support.redis_server import RedisServer
from tests.support.shards import with_one_shard
from tests.support.waiting import eventually
from tests.worker.project import TASKS
from tests.worker.test_held_keys import (
    behind,
    end,
    end_successor,
    holder,
    is_held,
    start,
    wait_free,
)

pytestmark = [pytest.mark.libraries, with_one_shard]


@pytest.fixture
def backend():
    """A result backend of its own, to be killed."""
    with RedisServer() as one:
        yield one


@pytest.fixture
def without_backend(make_project, start_worker, backend):
    """Make a project, and its worker, whose result backend a test kills."""

    def make(*options, **conf):
        project = make_project(**conf)
        once = {"retry_policy": {"max_retries": 0}}
        # The worker's alone: this process asks it for nothing.
        its = {"result_backend": backend.url(), "result_backend_transport_options": once}
        env = {**project.env, "DELAYQ_TEST_CONF": json.dumps({**project.conf, **its})}
        project.worker = start_worker(TASKS, *options, env=env)
        return project

    return make


ENDS = {
    "prefork": {
        *(("end", how) for how in ("succeed", "fail", "ignore", "reject", "lose")),
        ("end_late", "succeed"),
        ("end_limited", "hang", "time_limit"),
        ("end_limited", "hang", "soft_time_limit"),
    },
    # An error of the backend leaves a thread without a word.
    "threads": {("end", "succeed"), ("end", "fail")},
    "solo": {("end", "succeed")},
}


@pytest.mark.parametrize("pool", ENDS)
def test_a_run_that_ends_while_its_result_backend_is_down_frees_its_key(
    without_backend, backend, pool
):
    project = without_backend("-P", pool, "-c", "8", delayq_unknown_for=None)
    runs = {way: start(project, *way[:2], f"{way}", *way[2:]) for way in ENDS[pool]}
    backend.kill()
    for way, result in runs.items():
        end(project, result)
        wait_free(project, f"{way}")
    unknown = project.app.signature("nobody.knows")
    project.delayq.schedule(unknown, after=0, key="unknown", unique_until="finished")
    wait_free(project, "unknown")


def test_the_successor_under_a_key_runs_although_the_result_backend_is_down(
    without_backend, backend
):
    project = without_backend("-P", "threads", "-c", "2")
    runs = {
        own: start(project, "follow", str(own), str(own), "succeed", own) for own in (True, False)
    }
    backend.kill()
    for own, first in runs.items():
        [run] = project.runs(first)
        end(project, first)
        end_successor(project, run, own)
        wait_free(project, str(own))


def test_without_the_backend_a_message_that_was_not_acknowledged_keeps_its_key(
    without_backend, backend
):
    project = without_backend("-P", "threads")
    first = start(project, "end_late", "succeed", "k")
    backend.kill()
    end(project, first)
    project.worker.wait_log("Exception raised outside body")
    other = start(project, "end", "succeed", "other")
    end(project, other)
    wait_free(project, "other")
    assert is_held(project, "k")


GOING_ON = [(f"go_on_{acks}", how) for acks in ("early", "late") for how in ("retry", "defer")]


@pytest.mark.parametrize("captured", [True, False], ids=["captured", "left to Celery"])
def test_a_run_that_goes_on_without_the_backend_keeps_its_key(without_backend, backend, captured):
    project = without_backend("-P", "prefork", "-c", "9", delayq_capture_eta=captured)
    firsts = {way: start(project, *way, f"{way}") for way in GOING_ON}
    seconds = {way: behind(project, f"{way}") for way in GOING_ON}
    backend.kill()
    for first in firsts.values():
        end(project, first)
    for first in firsts.values():
        project.wait_runs(first, 2)
    # The worker sends its words in order, so those about these runs come before that about another.
    other = start(project, "end", "succeed", "other")
    end(project, other)
    wait_free(project, "other")
    assert {way: project.delayq.get(second).behind for way, second in seconds.items()} == {
        way: first.id for way, first in firsts.items()
    }
    for way, first in firsts.items():
        end(project, first)
        project.wait_runs(seconds[way])
        end(project, seconds[way])


def test_a_task_that_is_terminated_without_the_backend_frees_its_key_if_acknowledged(
    without_backend, backend
):
    project = without_backend("-P", "prefork", "-c", "2")
    late, early = (start(project, task, "hang", task) for task in ("end_late", "end"))
    backend.kill()
    for one in (late, early):
        seen = len(project.worker.lines)
        project.app.control.revoke(one.id, terminate=True, signal="SIGKILL")
        project.worker.wait_log("Pool callback raised exception", since=seen)
    wait_free(project, "end")
    assert is_held(project, "end_late")


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_task_that_is_refused_before_it_runs_keeps_its_key_until_the_backend_is_back(
    without_backend, backend, how
):
    """Its message is not acknowledged, and comes again."""
    project = without_backend("-P", "prefork", "-c", "1")
    busy = start(project, "end", "succeed", "busy")
    task, expires = project.tasks["end"].s("succeed"), 0.001 if how == "expired" else None
    backend.kill()
    refused = project.delayq.schedule(
        task.set(expires=expires), after=0, key="k", unique_until="finished"
    )
    eventually(lambda: len(holder(project, "k") or ()) == 2)
    if how == "revoked":
        its_own = {"destination": [project.worker.name], "timeout": 30, "limit": 1}
        assert project.app.control.revoke(refused.id, reply=True, **its_own)
    end(project, busy)

    for _ in range(2):
        seen = len(project.worker.lines)
        project.worker.wait_log(f"Discarding revoked task: .*{refused.id}", since=seen)
    assert is_held(project, "k")
    backend.start()
    wait_free(project, "k")


UNSAID = {"exit": ("threads", "end"), "hang": ("gevent", "end_limited")}


@pytest.mark.parametrize("how", UNSAID)
def test_a_run_of_which_its_pool_says_nothing_frees_its_key(make_project, start_worker, how):
    """A thread that ends itself, and a greenlet that its time limit ends."""
    project, (pool, task) = make_project(), UNSAID[how]
    start_worker(TASKS, "-P", pool, env=project.env)
    first = start(project, task, how, "k")
    end(project, first)
    wait_free(project, "k")


@pytest.mark.parametrize("refused", ["unknown", "pickled"])
def test_a_message_that_its_worker_refuses_frees_its_key(make_project, start_worker, refused):
    """Its task is not known there, or its body is of a kind that the worker does not take."""
    project = make_project(delayq_unknown_for=None)
    start_worker(TASKS, env=project.env)
    signature = {
        "unknown": project.app.signature("nobody.knows"),
        "pickled": project.tasks["end"].s("succeed").set(serializer="pickle"),
    }[refused]
    project.delayq.schedule(signature, after=0, key=refused, unique_until="finished")
    wait_free(project, refused)

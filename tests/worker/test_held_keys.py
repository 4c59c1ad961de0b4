"""A key that is held until its run has finished: every way in which a run ends, and goes on."""

import json
import signal
from itertools import count

import pytest
from celery import Task

from celery_delayq.contrib.held import LEASE
from celery_delayq.core.store import Keys
from celery_delayq.errors import AlreadyScheduled, KeyHeld
from tests.support.redis_server import RedisServer
from tests.support.shards import with_one_shard
from tests.support.waiting import eventually
from tests.worker.conftest import each_of
from tests.worker.project import TASKS

pytestmark = [pytest.mark.libraries, with_one_shard]


_numbers = count(1)
LONG = 7200


project = each_of("crew", "capturing", "solo", "rabbit")
each_pool = pytest.mark.parametrize("pool", ["prefork", "threads", "solo"], indirect=True)


@pytest.fixture
def key():
    return f"held {next(_numbers)}"


def start(project, task, how, key, *args, **options):
    """Schedule a task that holds the key, and return its result once it runs."""
    terms = {"unique_until": "finished", **options}
    result = project.delayq.schedule(project.tasks[task].s(how, *args), after=0, key=key, **terms)
    project.wait_runs(result)
    return result


def end(project, result):
    project.evidence.rpush(f"gate:{getattr(result, 'id', result)}", "1")


def end_successor(project, run, own):
    """Wait until the successor that a run has scheduled runs too, and end it."""
    project.wait_runs(run["successor"], 1 + own)
    end(project, run["successor"])


def keys(project):
    return Keys(project.conf["delayq_prefix"])


def holder(project, key):
    """The id that has the key, and the delivery."""
    row = project.client.hget(keys(project)["holders"], key)
    return None if row is None else row.split(b"\xff")


def ends_in(project, key):
    """In how many seconds the key is free, at the latest."""
    seconds, micros = project.client.time()
    ms = project.client.zscore(keys(project)["held"], key)
    return ms and ms / 1000 - seconds - micros / 1_000_000


def is_held(project, key):
    try:
        project.delayq.schedule(project.tasks["note"].s(), after=3600, key=key).cancel()
    except KeyHeld:
        return True
    return False


def wait_free(project, key):
    eventually(lambda: holder(project, key) is None)
    assert not is_held(project, key)


@each_pool
@pytest.mark.parametrize("task", ["end", "end_late"])
@pytest.mark.parametrize("how", ["succeed", "fail", "ignore", "reject"])
def test_a_key_is_held_while_its_task_runs_and_free_once_that_has_ended(pool, key, task, how):
    result = start(pool, task, how, key)
    assert is_held(pool, key)
    end(pool, result)
    wait_free(pool, key)


def test_a_task_behind_a_held_key_runs_once_its_holder_has_ended(project, key):
    first = start(project, "end", "succeed", key)
    second = behind(project, key)
    assert project.delayq.get(key=key).behind == first.id
    end(project, first)
    project.wait_runs(second)
    assert holder(project, key)[0] == second.id.encode()
    end(project, second)
    wait_free(project, key)


@pytest.mark.parametrize("own", [True, False], ids=["own id", "new id"])
@pytest.mark.parametrize("how", ["succeed", "fail", "ignore", "reject", "lose"])
def test_the_successor_of_a_task_runs_once_that_has_ended_in_any_way(crew, key, how, own):
    first = start(crew, "follow", key, key, how, own)
    [run] = crew.runs(first)
    end(crew, first)
    end_successor(crew, run, own)
    wait_free(crew, key)


def behind(project, key):
    """Schedule a task that is due, and goes behind the one that runs."""
    return project.delayq.schedule(
        project.tasks["end"].s("succeed"),
        after=0,
        key=key,
        unique_until="finished",
        conflict="replace",
    )


@each_pool
@pytest.mark.parametrize(
    ("task", "how"),
    [
        pytest.param("end", "requeue", id="it was acknowledged, and does not run again"),
        pytest.param("end_quietly", "succeed", id="it has sent its retry, and goes on"),
    ],
)
def test_a_run_that_seems_to_go_on_and_does_not_frees_its_key_as_it_ends(pool, key, task, how):
    result = start(pool, task, how, key)
    end(pool, result)
    wait_free(pool, key)


def goes_on(project, key, task, how):
    """Check that the key is held until the run of *task* that follows the first one has ended."""
    result = start(project, task, how, key)
    if task != "go_on":
        end(project, result)
    project.wait_runs(result, 2)
    assert is_held(project, key)
    end(project, result)
    wait_free(project, key)


@pytest.mark.parametrize("how", ["retry", "retry at", "defer", "replace", "requeue"])
def test_a_key_is_held_as_long_as_its_task_runs_again(project, key, how):
    goes_on(project, key, "go_on", how)


@pytest.mark.parametrize("how", ["chain", "chord", "ends in a chord"])
def test_a_canvas_that_replaces_a_task_keeps_its_key_until_its_last_part_has_ended(crew, key, how):
    goes_on(crew, key, "go_on", how)


@pytest.mark.parametrize(("task", "how"), [("end", "lose"), ("end_limited", "hang")])
def test_a_child_that_is_lost_or_killed_frees_the_key_of_its_task(crew, key, task, how):
    result = start(crew, task, how, key)
    assert is_held(crew, key)
    end(crew, result)
    wait_free(crew, key)


RETRIED = pytest.mark.skipif(
    not hasattr(Task, "retry_on_worker_lost"), reason="Celery has that since 5.7"
)


@pytest.mark.parametrize("task", ["end_lost", pytest.param("end_lost_and_retried", marks=RETRIED)])
def test_a_lost_child_whose_message_is_requeued_keeps_the_key_of_its_task(crew, key, task):
    goes_on(crew, key, task, "lose")


def test_a_revoke_that_terminates_frees_the_key(crew, key):
    result = start(crew, "end", "hang", key)
    crew.app.control.revoke(result.id, terminate=True, signal="SIGKILL")
    wait_free(crew, key)


@pytest.fixture
def one(make_project, start_worker):
    """A project with a worker of one child, which a task of another key keeps busy."""
    project = make_project()
    project.worker = start_worker(TASKS, "-P", "prefork", "-c", "1", env=project.env)
    return project


def test_a_task_that_is_revoked_or_expires_before_it_runs_frees_its_key(one):
    busy = start(one, "end", "succeed", "busy")
    terms = {"after": 0, "unique_until": "finished"}
    task = one.tasks["end"].s("succeed")
    revoked = one.delayq.schedule(task, key="revoked", **terms)
    eventually(lambda: len(holder(one, "revoked") or ()) == 2)
    # It expires before it arrives, or while it waits for the child.
    expired = one.delayq.schedule(task.clone().set(expires=0.001), key="expired", **terms)
    eventually(lambda: one.delayq.get(expired.id) is None)
    # Workers of other tests hear it as well, and one of them may answer first.
    its_own = {"destination": [one.worker.name], "timeout": 30, "limit": 1}
    assert one.app.control.revoke(revoked.id, reply=True, **its_own)
    end(one, busy)

    for name in ("busy", "revoked", "expired"):
        wait_free(one, name)


@pytest.mark.parametrize(
    ("task", "longest"),
    [("end", LEASE), ("end_late", LONG)],
    ids=["no worker gets its message again", "it is delivered again"],
)
def test_a_worker_that_is_killed_leaves_a_held_key_to_its_lease_or_to_the_end_in_time(
    one, task, longest
):
    start(one, task, "hang", "k", unique_for=LONG)
    # In threads the message is acknowledged a moment after the task has begun.
    eventually(lambda: longest - 60 < ends_in(one, "k") <= longest)
    one.worker.kill()
    assert longest - 60 < ends_in(one, "k") <= longest
    one.client.zadd(keys(one)["held"], {"k": 1})
    assert not is_held(one, "k")


@pytest.mark.parametrize(
    ("task", "anew"),
    [(("end", "succeed"), (LEASE - 60, LEASE)), (("persist", 1, 5 * LONG), (5 * LONG, 6 * LONG))],
)
def test_a_start_sets_the_end_anew_and_a_retry_adds_its_countdown(one, task, anew):
    busy = start(one, "end", "succeed", "busy")
    name, *args = task
    signature = one.tasks[name].s(*args)
    result = one.delayq.schedule(
        signature, after=0, key="k", unique_until="finished", unique_for=LONG
    )
    eventually(lambda: len(holder(one, "k") or ()) == 2)
    one.client.zadd(keys(one)["held"], {"k": one.client.time()[0] * 1000 + 60_000})

    end(one, busy)
    one.wait_runs(result)

    eventually(lambda: anew[0] < ends_in(one, "k") <= anew[1])


def test_a_retry_that_a_worker_adopts_keeps_its_key(make_project, start_worker):
    project = make_project(delayq_adopt_after=60)
    start_worker(TASKS, "-P", "solo", env=project.env)
    task = project.tasks["persist"].s(1, LONG)
    result = project.delayq.schedule(task, after=0, key="k", unique_until="finished")
    project.wait_runs(result)
    adopted = eventually(lambda: project.delayq.get(result.id))

    assert adopted.key == "k"
    with pytest.raises(AlreadyScheduled):
        project.delayq.schedule(project.tasks["note"].s(), after=LONG, key="k")
    project.delayq.run_now(result.id)
    project.wait_runs(result, 2)
    wait_free(project, "k")


def test_a_worker_that_stops_sends_its_last_words(one):
    result = start(one, "end", "succeed", "k")
    one.worker.signal(signal.SIGTERM)
    one.worker.wait_log("Warm shutdown")
    end(one, result)
    assert one.worker.wait() == 0
    assert holder(one, "k") is None


# A key that is held until its run has finished, if Celery raises, or says nothing.


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

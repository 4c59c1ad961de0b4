"""Tasks of the store that a worker does not know, or cannot read, go back; none is lost."""

import math
import time
from contextlib import closing
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pytest
from celery import chord
from celery.exceptions import NotRegistered
from celery.result import AsyncResult
from kombu import compression

from celery_delayq import State
from celery_delayq.errors import AlreadyScheduled
from tests.lab.faults.proxy import Proxy
from tests.support.places import take
from tests.support.waiting import PATIENCE, eventually
from tests.worker.project import TASKS

pytestmark = pytest.mark.libraries

KNOWING = "tests.worker.knowing"
TURNED = "application/x-turned"  # its compression
PLAIN = "tests.worker.plain"
DISCARDED = r"Received unregistered task of type 'gone'"
SCRIPTS = ("eval", "evalsha")
MANY = 400  # messages: some fifty times the prefetch count
LONG = 4 * PATIENCE  # a busy machine needs half a minute to run rabbitmqctl


@pytest.fixture
def start(start_worker):
    """Start a worker of a project."""

    def start(project, module=TASKS, pool="solo", **more):
        options = ("-P", pool, "-c", "2", *more.pop("options", ()))
        return start_worker(module, *options, env={**project.env, "C_FORCE_ROOT": "1", **more})

    return start


@pytest.fixture
def project(make_project, start, broker_conf):
    project = make_project(**broker_conf)
    project.worker = start(project)
    return project


@pytest.fixture
def capturing(make_project, start, broker_conf):
    project = make_project(delayq_capture_eta=True, **broker_conf)
    project.worker = start(project)
    return project


def gone(project, *args, **options):
    return project.app.signature("gone", args=args, app=project.app, **options)


def call(project, *args, task_id=None, **options):
    """Schedule a call of a task that a worker does not know; due at once."""
    signature = gone(project, *args).set(task_id=task_id or str(uuid4()))
    return project.delayq.schedule(signature, **{"after": 0, **options})


def put_back(project, result, count=1):
    """The task, once workers have put it back so often."""
    task_id = getattr(result, "id", result)

    def look():
        task = project.delayq.get(task_id)
        times = task.headers.get("delayq_unknown", {}).get("times", 0) if task else 0
        return task if times >= count else None

    return eventually(look, PATIENCE, f"{task_id} back in the store {count} times")


def unknown(project):
    return project.delayq.select(state="unknown")


def now(project):
    """Redis's clock, rounded up to a millisecond, as a due time is."""
    seconds, micros = project.client.time()
    return round(seconds + math.ceil(micros / 1000) / 1000, 3)


def seconds_until(project, task):
    return round(task.due.timestamp() - now(project), 3)


def wait_empty(project):
    """Its queue is empty, and so are its workers' hands."""
    eventually(lambda: project.queued() == 0, LONG)


def go_over_to(project, start, module=KNOWING, pool="solo"):
    """End the project's worker, start one with another code, and let the tasks run at once."""
    project.worker.stop()
    project.worker = start(project, module, pool)
    return unknown(project).run_now()


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_task_that_no_worker_knows_comes_again_until_one_knows_it(
    make_project, broker_conf, start, pool
):
    project = make_project(task_acks_late=pool == "threads", **broker_conf)
    project.worker = start(project, pool=pool)
    before = now(project)
    result = call(project, 40, 2)

    task = put_back(project, result)

    assert (task.state, task.task, task.args) == (State.SCHEDULED, "gone", (40, 2))
    assert (task.queue, task.error) == (
        project.queue, f"{project.worker.name} has no task of this name",
    )  # fmt: skip
    assert before <= round(task.due.timestamp() - 60, 3) <= now(project)
    assert [one.id for one in unknown(project)] == [result.id]
    before = now(project)
    assert project.delayq.run_now(result.id)
    due = put_back(project, result, 2).due.timestamp()
    assert before <= round(due - 120, 3) <= now(project)
    assert go_over_to(project, start, pool=pool) == 1
    assert result.get(timeout=PATIENCE) == 42
    assert len(project.wait_runs(result)) == 1
    # The scanner removes the entry once the broker has confirmed it, which may be after the run.
    eventually(lambda: project.delayq.counts().unknown == 0)
    wait_empty(project)


def test_a_worker_without_this_package_discards_an_unknown_task_as_ours_does_with_celerys_own(
    project, start, make_project, broker_conf
):
    celerys = project.app.send_task("gone")
    ours = call(project)
    put_back(project, ours)

    with pytest.raises(NotRegistered):
        celerys.get(timeout=PATIENCE)
    assert project.delayq.get(celerys.id) is None
    theirs = project.worker.wait_log(DISCARDED)
    assert project.worker.stop() == 0
    plain = start(project, PLAIN, DELAYQ_TEST_CONF=project.plain_env["DELAYQ_TEST_CONF"])
    project.delayq.run_now(ours.id)
    assert project.delayq.hand_over() >= 0
    plain.wait_log(DISCARDED)
    with pytest.raises(NotRegistered):
        AsyncResult(ours.id, app=project.app).get(timeout=PATIENCE)
    assert theirs


@pytest.mark.parametrize("how", ["pickle", "compressed"])
def test_a_message_that_a_worker_cannot_read_comes_again_as_it_was(project, start, how):
    options = {"serializer": "pickle"}
    project.app.conf.accept_content = ["json", "pickle"]
    if how == "compressed":
        compression.register(lambda body: body[::-1], lambda body: body[::-1], TURNED)
        options = {"compression": TURNED}
    signature = project.tasks["note"].s(1, 2).set(**options)
    result = project.delayq.schedule(signature, after=0)

    task = put_back(project, result)

    assert task.error.startswith(f"{project.worker.name} cannot read its message: ")
    assert (task.task, task.args) == ("note", (1, 2))
    project.conf["accept_content"] = ["json", "pickle"]
    assert go_over_to(project, start) == 1
    [run] = project.wait_runs(result)
    assert run["args"] == [1, 2]


def test_without_delayq_unknown_for_a_worker_discards_an_unknown_task(
    make_project, broker_conf, start
):
    project = make_project(delayq_unknown_for=None, **broker_conf)
    worker = start(project)

    result = call(project)

    worker.wait_log(DISCARDED)
    with pytest.raises(NotRegistered):
        result.get(timeout=PATIENCE)
    # The scanner removes the entry once the broker has confirmed it, which may be after the result.
    eventually(lambda: project.delayq.get(result.id) is None)


def test_after_delayq_unknown_for_a_task_is_dead_and_a_retry_begins_anew(
    make_project, broker_conf, start
):
    project = make_project(delayq_unknown_for=1, **broker_conf)
    project.worker = start(project)
    result = call(project, 1, key="dies", unique_until="finished")
    put_back(project, result)

    def dead():
        task = project.delayq.get(result.id)
        if task and task.state is State.SCHEDULED:
            project.delayq.run_now(result.id)
        return task if task and task.state is State.DEAD else None

    task = eventually(dead)

    assert task.reason == f"{project.worker.name} has no task of this name"
    assert (task.args, task.tags, list(unknown(project))) == ((1,), (), [])
    eventually(lambda: project.delayq.holder(key="dies") is None)
    assert project.delayq.retry(result.id)
    assert put_back(project, result).error
    assert go_over_to(project, start) == 1
    assert result.get(timeout=PATIENCE) == 1


def test_an_unknown_task_that_has_expired_meanwhile_ends_as_an_expired_one(project):
    result = call(project, key="expires", unique_until="finished")
    put_back(project, result)
    project.delayq.edit(result.id, expires=datetime.now(timezone.utc))

    project.delayq.run_now(result.id)

    eventually(lambda: result.state == "REVOKED")
    eventually(lambda: project.delayq.holder(key="expires") is None)
    # The scanner removes the entry once the broker has confirmed it, which may be after that.
    eventually(lambda: project.delayq.get(result.id) is None)
    wait_empty(project)


def test_the_key_of_a_task_that_no_worker_knows_stays_held_until_it_has_run(project, start):
    result = call(project, "waits", key="held", unique_until="finished")
    put_back(project, result)

    with pytest.raises(AlreadyScheduled):
        call(project, key="held", unique_until="finished")
    assert project.delayq.get(key="held").id == result.id
    go_over_to(project, start, pool="threads")
    project.wait_runs(result)
    assert project.delayq.holder(key="held").id == result.id
    project.let_go(result)
    eventually(lambda: project.delayq.holder(key="held") is None)


def test_a_delivered_retry_stays_the_same_retry(capturing, start):
    project = capturing
    project.worker.stop()
    project.worker = start(project, KNOWING)
    result = call(project, "retries")
    eventually(lambda: (task := project.delayq.get(result.id)) and task.headers["retries"] == 1)
    project.worker.stop()
    project.worker = start(project)
    project.delayq.run_now(result.id)

    assert put_back(project, result).headers["retries"] == 1

    go_over_to(project, start)
    assert [run["retries"] for run in project.wait_runs(result, 2)] == [0, 1]


def test_a_chord_goes_on_when_its_parts_have_come_again(capturing, start):
    project = capturing
    header = [gone(project, number).set(countdown=3600) for number in (40, 2)]
    result = chord(header, app=project.app)(project.tasks["total"].s())
    assert project.delayq.select(all=True).run_now() == 2
    for part in result.parent.results:
        put_back(project, part)

    assert go_over_to(project, start) == 2

    assert result.get(timeout=PATIENCE) == 42


@pytest.mark.parametrize("of", ["one", "many"])
def test_an_unknown_task_that_is_edited_goes_at_once_unless_it_is_paused(project, of):
    result = call(project, 1)
    task = put_back(project, result)
    project.delayq.pause(task="note")
    edits = {"task": "note", "args": (2,)}

    if of == "one":
        assert project.delayq.edit(result.id, **edits)
    else:
        assert unknown(project).edit(**edits) == 1

    assert project.delayq.get(result.id).due < task.due
    assert project.runs(result) == []
    project.delayq.resume(task="note")
    [run] = project.wait_runs(result)
    assert run["args"] == [2]


def test_the_run_of_a_rule_comes_again(project, start):
    rule = project.delayq.every("unknown", gone(project, 1), timedelta(seconds=1))
    eventually(lambda: unknown(project).count() >= 2)
    rule.remove()
    ids = [task.id for task in unknown(project)]

    go_over_to(project, start)

    assert [len(project.wait_runs(one)) for one in ids] == [1] * len(ids)


def test_an_unknown_task_that_was_released_waits_for_its_eta(project):
    result = call(project, after=3600)
    assert project.delayq.select(all=True).release() == 1

    task = put_back(project, result)

    assert 3500 < seconds_until(project, task) <= 3600


def test_unknown_tasks_of_several_shards_keep_their_keys_until_they_have_run(
    make_project, start, broker_conf
):
    project = make_project(delayq_shards=3, **broker_conf)
    project.worker = start(project)
    keys = [f"key {number}" for number in range(12)]
    results = [call(project, 1, key=key, unique_until="finished") for key in keys]
    for result in results:
        put_back(project, result)

    assert project.delayq.counts().unknown == unknown(project).count() == len(keys)
    assert [project.delayq.get(key=key).id for key in keys] == [one.id for one in results]
    assert go_over_to(project, start) == len(keys)
    for key, result in zip(keys, results, strict=True):
        assert len(project.wait_runs(result)) == 1
        eventually(lambda key=key: project.delayq.holder(key=key) is None)


# The worker or the store ends in between.


@pytest.fixture
def apart(make_project, server, broker):
    """A project whose broker is not its store, and whose way to the store can be cut."""
    with Proxy(server.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        project = make_project(broker_url=broker.url, delayq_url=server.url())
        # Only for its workers: calls of the test have time.
        project.worker_url = {**project.conf, "delayq_url": url, "delayq_timeout": 1}
        yield project, proxy


def start_apart(project, start, proxied=True, **more):
    """Start a worker that has no scanner, so that the test alone delivers."""
    conf, project.conf = project.conf, project.worker_url if proxied else project.conf
    try:
        return start(project, options=("--no-delayq",), **more)
    finally:
        project.conf = conf


def test_a_worker_that_ends_before_the_store_has_it_ends_at_once_and_loses_nothing(
    apart, start, broker
):
    project, proxy = apart
    worker = start_apart(project, start)
    results = [call(project) for _ in range(20)]
    proxy.refuse()
    project.delayq.hand_over()
    worker.wait_log("left to the broker, until the store takes them")

    assert worker.stop() == 0

    proxy.accept()
    start_apart(project, start)
    for result in results:
        assert put_back(project, result).headers["delayq_unknown"]["times"] == 1
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)
    assert unknown(project).count() == len(results)


@pytest.mark.parametrize("since", ["waits", "cancelled"])
def test_a_worker_that_is_killed_before_the_acknowledgement_puts_no_task_back_twice(
    apart, start, broker, since
):
    project, proxy = apart
    worker = start_apart(project, start)
    warm = call(project)
    project.delayq.hand_over()
    put_back(project, warm)
    result = call(project)
    proxy.lose(result.id.encode(), 1)
    project.delayq.hand_over()
    put_back(project, result)
    worker.kill()
    proxy.lose(b"", 0)
    if since == "cancelled":
        assert project.delayq.cancel(result.id)
    broker.end_visibility()

    other = start_apart(project, start)

    other.wait_log(rf"task {result.id} \(gone\): dropped, as it went back")
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)
    assert [task.id for task in unknown(project)] == [warm.id] + [result.id] * (since == "waits")
    wait_empty(project)


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_without_a_store_other_tasks_run_and_no_message_is_lost(apart, start, broker, pool):
    project, proxy = apart
    worker = start_apart(project, start, pool=pool)
    results = [call(project) for _ in range(MANY)]
    proxy.refuse()
    project.delayq.hand_over()
    worker.wait_log("left to the broker, until the store takes them")

    others = [project.app.send_task("note") for _ in range(3)]

    assert [len(project.wait_runs(one)) for one in others] == [1] * 3
    eventually(lambda: broker.unacked(project.queue) == MANY, LONG)
    proxy.accept()
    for result in results:
        put_back(project, result)
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)
    assert unknown(project).count() == MANY


def test_a_full_store_leaves_an_unknown_task_to_the_broker_and_is_asked_once_a_second(
    make_project, start, start_redis, broker
):
    redis = start_redis("--maxmemory-policy", "noeviction")
    project = make_project(broker_url=broker.url, delayq_url=redis.url())
    worker = start(project, options=("--no-delayq",))
    result = call(project)
    worker.pause()
    project.delayq.hand_over()
    redis.client().config_set("maxmemory", 1)
    worker.resume()
    worker.wait_log("left to the broker, until the store takes them")

    def asked():
        commands = redis.client().info("commandstats")
        return sum(commands.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in SCRIPTS)

    before, began = asked(), time.monotonic()
    eventually(lambda: asked() >= before + 3)
    assert asked() - before <= time.monotonic() - began + 2

    redis.client().config_set("maxmemory", 0)

    put_back(project, result)
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)


def test_while_another_task_has_its_id_an_unknown_task_stays_with_the_broker(apart, start, broker):
    project, _ = apart
    task_id = str(uuid4())
    call(project, "first", task_id=task_id)
    project.delayq.hand_over()
    call(project, "second", task_id=task_id, after=3600)
    worker = start_apart(project, start)
    worker.wait_log(f"task {task_id}.*; left to its broker")
    assert project.delayq.get(task_id).args == ("second",)

    assert project.delayq.cancel(task_id)

    assert put_back(project, task_id).args == ("first",)
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)


def test_the_same_call_under_its_id_is_enough(apart, start, broker):
    project, _ = apart
    task_id = str(uuid4())
    call(project, 1, task_id=task_id)
    project.delayq.hand_over()
    call(project, 1, task_id=task_id, after=3600)

    worker = start_apart(project, start)

    worker.wait_log(f"task {task_id}.*: dropped, as the same call waits")
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)
    assert 3500 < seconds_until(project, project.delayq.get(task_id)) <= 3600


def test_a_task_that_dies_before_its_broker_has_confirmed_it_stays_as_a_dead_task(
    apart, start, broker
):
    project, _ = apart
    project.worker_url["delayq_unknown_for"] = 1
    worker = start_apart(project, start)
    result = call(project, 1)
    project.delayq.hand_over()
    since = put_back(project, result).headers["delayq_unknown"]["since"]
    worker.stop()
    project.delayq.run_now(result.id)
    project.delayq.hand_over()
    # The entry that delivered it is under its lease until the broker confirms the message.
    call(project, 1, task_id=result.id)
    leased = take(project.delayq, "leased", result.id)
    eventually(lambda: time.time() * 1000 - since > 1000)

    start_apart(project, start).wait_log(f"task {result.id}.*is being published")
    [steps] = project.delayq.services.steps_by_shard()
    with closing(steps):
        assert steps.ack(leased) == 1

    eventually(lambda: (task := project.delayq.get(result.id)) and task.state is State.DEAD)
    eventually(lambda: broker.unacked(project.queue) == 0, LONG)

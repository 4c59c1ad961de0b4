"""Real workers declare what their code says before they are ready."""

import json

import pytest

from tests.support.redis_server import RedisServer
from tests.support.shards import SHARDS
from tests.support.waiting import PATIENCE, eventually
from tests.worker.conftest import make_project, patient, server

__all__ = ["make_project", "patient", "server"]

RULES = "DELAYQ_TEST_RULES"  # see tests/rules/declares.py
NOON, ONE = "0 12 * * *", "0 13 * * *"
LOOK = PATIENCE + 30  # seconds until a worker's next look


@pytest.fixture
def project(make_project):
    with RedisServer() as alone:
        yield make_project(alone, delayq_prefix="delayq", delayq_shards=SHARDS)


@pytest.fixture
def start(project, start_worker):
    def start(*options, **said):
        env = {**project.env, RULES: json.dumps(said)}
        return start_worker("tests.rules.declares", *options, "-c", "1", env=env)

    return start


def found(project):
    return {rule.name: rule.is_declared for rule in project.delayq.rules()}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_a_worker_says_before_it_is_ready_is_declared_and_what_a_task_says_is_not(
    project, start, monkeypatch, pool
):
    said = {name: {name: NOON} for name in ("import", "worker_init", "worker_ready", "task")}
    start("-P", pool, **said)
    eventually(lambda: all(found(project).get(name) for name in [*said][:3]))
    project.app.send_task("say")
    eventually(lambda: "task" in found(project))
    assert found(project) == dict.fromkeys(said, True) | {"task": False}


def test_only_the_main_process_of_a_worker_names_its_rules(project, start):
    start("-P", "prefork", **{"import": {"a": NOON}, "worker_process_init": {"b": NOON}})
    eventually(lambda: found(project) == {"a": True, "b": False})
    [shard, *_] = project.delayq.services.scripts
    fields = project.client.hkeys(shard.keys["rules_named"])
    assert len([field for field in fields if field.startswith(b"@")]) == 1


def test_a_worker_that_takes_the_place_of_one_that_stopped_sets_its_own_plan_at_once(
    project, start
):
    old = start("-P", "threads", **{"import": {"a": NOON}})
    eventually(lambda: found(project) == {"a": True})
    assert old.stop() == 0
    start("-P", "threads", **{"import": {"a": ONE}})
    eventually(lambda: found(project) == {"a": True})
    assert project.delayq.rule("a").schedule == ONE


@pytest.mark.libraries
def test_workers_set_their_rules_again_in_a_redis_that_comes_back_empty(project, start):
    workers = [start("-P", "threads", **{"import": {name: NOON}}) for name in ("a", "b")]
    eventually(lambda: found(project) == {"a": True, "b": True})
    project.client.flushall()
    eventually(lambda: found(project) == {"a": True, "b": True}, LOOK)
    for worker in workers:
        worker.wait_log("the store was emptied: this worker sets the 1 rule again")

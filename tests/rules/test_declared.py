"""Rules that code declares: a worker says them at each start, and they go with the code."""

import json
from datetime import timedelta

import pytest

from celery_delayq.contrib import rule_store
from celery_delayq.contrib import rule_store as store
from celery_delayq.contrib.care.doctor import health as doctor_lines
from celery_delayq.contrib.rules.declared import Declared
from celery_delayq.contrib.rules.step import NAMING, Writer
from celery_delayq.core import clock
from celery_delayq.core.servers.risks import NOTE, OK, WARNING
from celery_delayq.errors import InvalidOption
from celery_delayq.operations.health import lines as health_lines
from tests.rules.support import later
from tests.support.redis_server import RedisServer
from tests.support.shards import SHARDS, each
from tests.support.waiting import PATIENCE, eventually
from tests.worker.conftest import make_project, patient, server

__all__ = ["make_project", "patient", "server"]


HOUR = timedelta(hours=1)
NOON, ONE = "0 12 * * *", "0 13 * * *"


class Process:
    """A process of an app: a worker once it `begins`."""

    def __init__(self, app):
        self.delayq, self.report = app.delayq, app.tasks["report"]
        self.worker = None

    def every(self, name, schedule=NOON, **options):
        self.delayq.every(name, self.report.s(7), schedule, **options)
        return self

    def begin(self):
        """Be a worker that has begun, and looks."""
        self.worker = Declared(self.delayq.services, runs_tasks=True)
        self.ready()
        return self.look()

    def ready(self):
        rule_store.said_of(self.delayq.services).is_over = True

    def look(self):
        self.worker.name()
        return self

    def stop(self):
        self.worker.end()

    def found(self, name="r"):
        rule = self.delayq.rule(name)
        return rule and (rule.schedule, rule.is_declared)


@pytest.fixture
def process(delayq_app, url):
    def process(main="tests", **conf):
        app = delayq_app(url, result_expires=None, **conf)
        app.main = main

        @app.task(name="report", shared=False)
        def report(tenant=0):
            pass

        return Process(app)

    return process


@pytest.fixture
def hosts(monkeypatch):
    """Name the host of this process."""
    return lambda name: monkeypatch.setattr("socket.gethostname", lambda: name)


def names(process):
    return [rule.name for rule in process.delayq.rules()]


def test_declared_is_true_or_false(process):
    with pytest.raises(InvalidOption, match="declared is 1; expected true or false"):
        process().every("r", declared=1)


# What is declared.


def test_what_a_worker_says_before_it_is_ready_is_declared_and_stays_so_if_others_say_the_same(
    process,
):
    worker = process().every("r").begin()
    assert worker.found() == (NOON, True)
    process().every("r")
    assert worker.found() == (NOON, True)


@pytest.mark.parametrize("says", ["web", "late", "exception", "exception then", "tenant"])
def test_what_is_said_elsewhere_or_later_is_not_declared(process, says):
    web, worker = process(), process()
    if says == "web":
        web.every("r")
        worker.begin()
    elif says == "late":
        worker.begin().every("r").look()
    elif says.startswith("exception"):
        (worker.every("r") if says.endswith("then") else worker).every("r", declared=False).begin()
    else:
        worker.every("r").begin()
        web.every("r", ONE, replace=True)
    assert web.found()[1] is False


def test_a_rule_that_another_process_said_first_is_declared_once_a_worker_names_it(process):
    web, worker = process().every("r"), process().every("r")
    assert web.found() == (NOON, False)
    worker.begin()
    assert web.found() == (NOON, True)


def test_the_exception_is_one_also_if_the_rule_was_declared_before(process):
    worker = process().every("r").begin()
    process().every("r", declared=False)
    assert worker.look().found() == (NOON, False)


def test_to_declare_a_rule_cancels_none_of_its_runs(process):
    web = process().every("r")
    Writer(web.delayq).write()
    [before] = web.delayq.tasks()
    process().every("r").begin()
    Writer(web.delayq).write()
    assert [task.id for task in web.delayq.tasks()] == [before.id]


# A rule goes with its code.


def test_a_declared_rule_goes_ten_minutes_after_the_last_worker_that_said_it(process, redis):
    old = process().every("r").every("kept").begin()
    old.stop()
    new = process().every("kept").begin()
    later(redis, minutes=9)
    assert names(new.look()) == ["kept", "r"]
    later(redis, minutes=2)
    assert names(new.look()) == ["kept"]


def test_no_declared_rule_goes_while_a_worker_lives_that_says_it(process, redis):
    old, new = process().every("r").begin(), process().begin()
    for _ in range(3):
        later(redis, minutes=9)
        old.look()
        assert names(new.look()) == ["r"]


def test_no_declared_rule_goes_after_an_outage_of_all_workers(process, redis):
    process().every("r").begin()
    later(redis, is_alive=False, hours=1)
    new = process().begin()
    assert names(new) == ["r"]
    later(redis, minutes=3)
    assert names(new.look()) == ["r"]
    later(redis, minutes=11)
    assert names(new.look()) == []


@pytest.mark.parametrize("said", ["elsewhere", "by hand since"])
def test_a_rule_that_is_not_declared_never_goes(process, redis, said):
    old, new = process(), process()
    old.every("r").every("tenant").begin() if said == "by hand since" else old.begin()
    process().every("tenant", ONE, replace=True)
    old.stop()
    new.begin()
    for _ in range(3):
        later(redis, minutes=11)
        new.look()
    assert new.found("tenant") == (ONE, False)


def test_a_worker_removes_only_what_it_has_read(process):
    worker = process().every("r").begin()
    [read] = store.each(worker.delayq.services.entries)
    shard = worker.delayq.services.entries.unasked_shards[read.shard]
    process().every("r", NOON, replace=True, declared=False)
    assert store.change(shard, "r", "sweep", str(worker.delayq.rule("r").revision)) == "not_found"
    process().every("s").begin()
    [read] = [rule for rule in store.each(worker.delayq.services.entries) if rule.name == "s"]
    process().every("s", ONE, version=1).begin()
    assert store.change(shard, "s", "sweep", str(read.revision)) == "not_found"
    assert store.change(shard, "r", "sweep", str(read.revision + 2)) == "not_found"
    assert worker.found() == (NOON, False)


def test_a_worker_of_another_app_removes_none(process, redis):
    worker = process().every("r").begin()
    worker.stop()
    other = process("other").begin()
    later(redis, minutes=11)
    assert names(other.look()) == ["r"]


def test_a_rule_that_somebody_removed_comes_back_with_the_next_worker_that_says_it(process, redis):
    worker = process().every("r").begin()
    worker.delayq.rule("r").remove()
    later(redis, minutes=3)
    assert worker.look().found() is None
    process().every("r").begin()
    assert worker.found() == (NOON, True)


# Two workers that say different rules under one name.


def test_a_rule_stays_as_a_living_worker_says_it_until_that_has_stopped(process, hosts, caplog):
    hosts("old")
    old = process().every("r").begin()
    hosts("new")
    new = process().every("r", ONE).begin().look()
    assert new.found() == (NOON, True)
    [line] = [line.message for line in caplog.records if "stays" in line.message]
    assert line.startswith("rule r stays as living workers say it, one on old among them; ")
    assert "this process, on new, says another plan" in line
    old.stop()
    assert new.look().found() == (ONE, True)


def test_a_worker_that_was_killed_counts_as_living_for_ten_minutes(process, redis):
    process().every("r").begin()
    new = process().every("r", ONE).begin()
    later(redis, minutes=9)
    assert new.look().found() == (NOON, True)
    later(redis, minutes=2)
    assert new.look().found() == (ONE, True)


def test_a_worker_that_was_stopped_for_long_sets_its_plan_again_once_no_living_one_says_another(
    process, redis
):
    first, second = process().every("r").begin(), process().every("r", ONE).begin()
    later(redis, minutes=11)
    assert second.look().found() == (ONE, True)
    assert first.look().found() == (ONE, True)
    second.stop()
    later(redis, minutes=3)
    assert first.look().found() == (NOON, True)


def test_a_rule_stays_while_one_of_the_workers_that_say_it_lives(process):
    first, second = process().every("r").begin(), process().every("r").begin()
    new = process().every("r", ONE).begin()
    first.stop()
    assert new.look().found() == (NOON, True)
    second.stop()
    assert new.look().found() == (ONE, True)


def test_workers_that_each_draw_their_own_minute_move_nothing_as_they_start(process):
    first = process().every("r", "1 * * * *").begin()
    revision = first.delayq.rule("r").revision
    others = [process().every("r", f"{minute} * * * *").begin() for minute in range(2, 6)]
    for other in others:
        other.look()
    assert first.delayq.rule("r").revision == revision
    first.stop()
    for other in others * 2:
        other.look()
    assert first.delayq.rule("r").revision == revision + 1


def test_a_process_that_is_no_worker_moves_nothing_as_it_starts(process):
    worker = process().every("r").begin()
    assert process().every("r", ONE).found() == (NOON, True)
    worker.stop()
    assert process().every("r", ONE).found() == (ONE, False)


def test_a_higher_version_counts_at_once_and_a_lower_one_never(process):
    old = process().every("r", version=1).begin()
    new = process().every("r", ONE, version=2).begin()
    assert new.found() == (ONE, True)
    assert old.look().found() == (ONE, True)
    new.stop()
    back = process().every("r", version=1).every("r", version=1).begin()
    assert back.look().found() == (ONE, True)


def test_what_a_person_set_stays_until_the_next_worker_that_says_the_rule(process, redis):
    worker = process().every("r").begin()
    process().every("r", ONE, replace=True)
    later(redis, minutes=11)
    assert worker.look().found() == (ONE, False)
    assert process().every("r").begin().found() == (NOON, True)


# A store that is emptied.


def test_in_an_emptied_store_each_worker_sets_all_that_it_declares_at_its_next_look(
    process, redis, caplog
):
    first = process().every("r").every("s", HOUR).begin()
    second = process().every("r").every("t").begin()
    tenant = process().every("tenant")
    redis.flushdb()
    first.look()
    assert names(first) == ["r", "s"]
    second.look()
    assert names(first) == ["r", "s", "t"]
    assert first.found("s") == ("every 3600 s", True)
    [line, _] = [line.message for line in caplog.records if "emptied" in line.message]
    assert line.startswith("the store was emptied: this worker sets the 2 rules again that it ")
    assert "pauses, edits and removals of rules are lost" in line
    assert tenant.found("tenant") is None


def test_a_worker_looks_whether_its_rules_are_there_each_half_minute(process, redis, monkeypatch):
    one = process().every("r")
    moment = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: moment[0])
    writer = Writer(one.delayq)
    writer.look()
    redis.flushdb()
    moment[0] = NAMING - 1
    writer.look()
    assert names(one) == []
    moment[0] = NAMING
    writer.look()
    assert names(one) == ["r"]


def test_a_store_without_what_was_named_is_not_called_emptied_if_it_has_the_rules(
    process, redis, caplog
):
    worker = process().every("r").every("s").begin()
    worker.delayq.rule("s").remove()
    for key in each("rules_named"):  # as after a resharding
        redis.delete(key)
    assert names(worker.look()) == ["r"]
    assert "emptied" not in caplog.text


def test_a_worker_that_was_stopped_for_long_sets_nothing_again(process, redis, caplog):
    worker, other = process().every("r").begin(), process().begin()
    worker.delayq.rule("r").remove()
    for _ in range(2):
        later(redis, minutes=8)
        redis_fields = [(key, redis.hkeys(key)) for key in each("rules_named")]
        other.look()
    assert redis_fields
    worker.look()
    assert names(worker) == []
    assert "emptied" not in caplog.text


# Tasks that no worker knows.


def rules_told(process):
    """The lines of `health` on rules."""
    return [line for line in health_lines(process.delayq.services) if line.name == "rules"]


def test_health_and_the_doctor_name_a_rule_whose_task_no_living_worker_knows(process, redis):
    worker = process().begin()
    web = process()
    web.delayq.every("old", web.delayq.app.signature("shop.gone"), HOUR)
    web.every("known")
    later(redis, minutes=3)
    worker.look()
    [noted] = rules_told(web)
    told = "no living worker knows the task of 1 rule: old (shop.gone); "
    assert (noted.level, noted.sentence[: len(told)]) == (NOTE, told)
    [line] = [line for line in doctor_lines(web.delayq.services) if line.name == "rules"]
    assert (line.level, line.found) == (WARNING, told.removesuffix("; "))
    web.delayq.rule("old").pause()
    later(redis, minutes=3)
    worker.look()
    assert [line.level for line in rules_told(web)] == [OK]


def test_while_no_worker_says_which_tasks_it_knows_nothing_is_said_of_them(process, redis):
    web = process().every("r")
    scan = Declared(web.delayq.services, runs_tasks=False)
    scan.name()
    later(redis, minutes=3)
    scan.name()
    assert [line.level for line in rules_told(web)] == [OK]


# Real workers declare what their code says before they are ready.


RULES = "DELAYQ_TEST_RULES"  # see tests/rules/declares.py
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

"""An app and its DelayQ: what that adds, several of them, copies, and threads."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import Celery, Task, chain, chord, current_app, group, shared_task, signature
from celery.app.amqp import AMQP, task_message
from celery.app.control import Control

from celery_delayq import DelayQ
from celery_delayq.errors import InvalidOption, StoreDiffers
from tests.app.support import ALL_WAYS, FAR, LONG_AGO, comparable, lists, noop
from tests.app.test_await import slow
from tests.rules.support import write
from tests.support.waiting import eventually

__all__ = ["slow"]

pytestmark = pytest.mark.libraries


# `DelayQ(app)` adds its own parts to an app, and leaves all others alone.


def test_importing_the_package_does_nothing():
    code = """
import socket, sys, threading
def refuse(*_, **__): raise AssertionError("a connection")
socket.socket.connect = socket.create_connection = refuse
open_before = __builtins__.open
import celery_delayq, celery_delayq.operations.cli
from celery import Celery, group, shared_task
from celery.app.task import Task
from celery.canvas import Signature
assert not hasattr(Task, "delay_until") and not hasattr(Signature, "delay_until")
assert threading.active_count() == 1
app = Celery("shop", broker="redis://localhost:1/0", backend="redis://localhost:1/1")
celery_delayq.DelayQ(app)
assert hasattr(Task, "delay_until")
assert threading.active_count() == 1
assert "amqp" not in vars(app) and not app.configured
print("quiet")
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ran.stdout, ran.returncode) == ("quiet\n", 0), ran.stderr


def test_a_second_delayq_of_an_app_changes_nothing_and_serves_the_same_store(
    delayq_app, url, redis
):
    app = delayq_app(url)
    first, steps = app.delayq, set(app.steps["worker"])
    amqp_cls, options = app.amqp_cls, set(app.user_options["worker"])

    second = DelayQ(app)

    assert app.delayq is first
    assert (app.amqp_cls, set(app.steps["worker"])) == (amqp_cls, steps)
    assert set(app.user_options["worker"]) == options
    result = app.send_task("t", delayq_at=FAR)
    assert second.get(result.id).id == result.id
    assert second.cancel(result.id)
    second.close()


def test_a_delayq_may_be_made_after_the_app_was_used(make_app, url, redis):
    app = make_app(url)
    task = app.task(name="t")(noop)
    task.delay(1)
    app.control.broadcast("ping")
    signature = task.s(2)
    redis.flushall()

    delayq = DelayQ(app)

    assert delayq.get(task.delay_until(FAR, 1).id).args == (1,)
    assert delayq.get(signature.delay_until(FAR).id).args == (2,)
    app.control.revoke(task.delay_until(FAR, 3).id)
    assert delayq.counts().scheduled == 2
    delayq.close()


def test_other_apps_are_as_they_were(make_app, delayq_app, url, redis):
    plain = make_app(url)
    delayq_app(url)

    result = plain.send_task("t", countdown=3600)

    assert type(plain.amqp).__module__.startswith("celery.")
    assert type(plain.control).__module__.startswith("celery.")
    assert redis.llen("celery") == 1
    assert not hasattr(plain, "delayq")
    assert result.id


def test_a_task_of_an_app_with_delayq_can_be_pickled(add):
    assert pickle.loads(pickle.dumps(add)).name == "add"


@pytest.fixture
def ours(redis):
    """The package's connections, without those that earlier tests left to the garbage collector."""

    def every():
        named = (client for client in redis.client_list() if client["name"] == "celery_delayq")
        return {client["id"] for client in named}

    before = every()
    return lambda: every() - before


def test_close_lets_go_of_connections_and_the_next_call_makes_new_ones(app, ours):
    app.send_task("t", task_id="a", delayq_at=FAR)
    # Redis takes a moment to notice that the far end of a connection is gone.
    eventually(lambda: len(ours()) == 1)

    app.delayq.close()

    eventually(lambda: not ours())
    assert app.delayq.get("a") is not None
    app.delayq.close()
    app.delayq.close()


def test_finalizing_an_app_registers_each_task_of_the_package_once(make_app):
    app = make_app("redis://")
    DelayQ(app)
    DelayQ(app)

    app.finalize()

    def ours(app):
        return sorted(name for name in app.tasks if name.startswith("celery_delayq"))

    assert ours(app) == ["celery_delayq.launch", "celery_delayq.write_rules"]
    assert ours(Celery("other", set_as_current=False)) == []


def test_a_message_of_an_app_s_own_type_stays_what_it_is(make_app, url, redis):
    class Message(task_message):
        tenant = None

    seen = []

    class OwnAMQP(AMQP):
        def as_task_v2(self, *args, **options):
            message = Message(*super().as_task_v2(*args, **options))
            message.tenant = "acme"
            return message

        def _create_task_sender(self):
            send = super()._create_task_sender()

            def noted(producer, name, message, **options):
                seen.append((name, message.tenant))
                return send(producer, name, message, **options)

            return noted

    app = make_app(url)
    app.amqp_cls = OwnAMQP
    delayq = DelayQ(app)

    app.send_task("sent")
    app.send_task("scheduled", delayq_at=FAR)

    assert seen[0] == ("sent", "acme")
    assert [task.task for task in delayq.tasks()] == ["scheduled"]
    assert redis.llen("celery") == 1
    delayq.close()


def logged(caplog, app, *calls):
    """The messages of some calls, each made twice, that reach the root logger."""
    caplog.clear()
    quiet = app.task(name="quiet", shared=False)(noop)
    for call in calls * 2:
        call(quiet)
    return caplog.messages


# kombu warns of a URL without a host whenever something asks for the connection's description.
@pytest.mark.parametrize("host", ["memory://", "the store's"])
def test_a_process_that_schedules_logs_no_more_than_celery(delayq_app, make_app, url, caplog, host):
    broker = url if host == "the store's" else host
    caplog.set_level("INFO")
    logged(caplog, make_app(broker), lambda quiet: quiet.delay(1))  # fills the pool that both use
    held = delayq_app(broker, delayq_url=url, delayq_capture_eta=True)

    said = logged(
        caplog,
        held,
        lambda quiet: quiet.delay(1),
        lambda quiet: quiet.apply_async((1,), countdown=3000),
        lambda quiet: quiet.delay_for(3000, 1).cancel(),
        lambda quiet: group(quiet.s(1), quiet.s(2)).delay_for(3000),
        lambda quiet: held.delayq.schedule_many(quiet, [((1,), {}), ((2,), {})], after=3000),
        lambda quiet: held.delayq.get(quiet.delay_for(3000, 1).id),
    )

    assert said == []


# Several apps in one process: each method of a ``DelayQ`` writes to the store of its own app.


@pytest.fixture
def apps(delayq_app, redis_server, redis):
    """Two apps with a broker and a store each; the second one is the current app."""
    made = [
        delayq_app(redis_server.url(db), redis_server.url(5), delayq_prefix=name)
        for db, name in enumerate(("first", "second"))
    ]
    for app, name in zip(made, ("first", "second"), strict=True):
        app.main = name
    return made


@pytest.fixture
def first(apps):
    return apps[0].delayq


@pytest.fixture
def second(apps):
    return apps[1].delayq


@pytest.fixture
def remind(apps):
    return shared_task(name="remind")(noop)


def ids_of(delayq):
    return [task.id for task in delayq.tasks()]


def here(call):
    return call()


def in_thread(call):
    """Call it in a thread, which has no current app, so that Celery makes one up."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


SIGNATURES = {
    "signature": lambda task: task.s(1),
    "task": lambda task: task,
    "name": lambda task: signature(task.name, (1,)),
    "chain": lambda task: chain(task.s(1), task.si(2)),
    "group": lambda task: group(task.s(1), task.s(2)),
    "chord": lambda task: chord([task.s(1)], task.si(2)),
    "map": lambda task: task.map([1]),
    "frozen": lambda task: task.s(1).set(task_id="frozen"),
}


def run_of_rule(delayq, made):
    delayq.every("daily", made, 86_400)
    write(delayq)
    return ids_of(delayq)[0]


WAYS = {
    "schedule": lambda delayq, made: delayq.schedule(made, at=FAR).id,
    "every": run_of_rule,
    "schedule_many": lambda delayq, made: delayq.schedule_many(made, [((1,), {})], at=FAR).ids[0],
}
PLAIN = ("signature", "task", "name")


@pytest.mark.parametrize(
    ("way", "what"),
    [("schedule", what) for what in SIGNATURES]
    + [(way, what) for way in ("every", "schedule_many") for what in PLAIN],
)
@pytest.mark.parametrize("where", [here, in_thread])
def test_a_shared_task_waits_in_the_store_of_the_delayq_that_was_called(
    apps, remind, way, what, where
):
    first, second = (app.delayq for app in apps)

    task_id = where(lambda: WAYS[way](first, SIGNATURES[what](remind)))

    assert first.get(task_id).id == task_id
    assert second.counts().scheduled == 0
    assert first.cancel(task_id)


@pytest.mark.parametrize("what", ["signature", "chain", "map"])
def test_a_shared_task_is_due_at_the_broker_of_the_delayq_that_was_called(
    first, second, remind, redis_server, what
):
    first.schedule(SIGNATURES[what](remind), at=LONG_AGO)
    assert (second.hand_over(), first.hand_over()) == (0, 1)
    for db, found in ((0, [b"celery"]), (1, [])):
        with redis_server.client(db=db) as client:
            assert list(lists(client)) == found


def test_a_signature_s_own_method_goes_to_the_app_to_which_celery_sends_it(
    first, second, remind, redis_server
):
    remind.delay(1)
    with redis_server.client(db=1) as client:
        assert list(lists(client)) == [b"celery"]
    remind.delay_until(FAR, 1)
    remind.s(1).delay_until(FAR)
    chain(remind.s(1), remind.s(2)).delay_until(FAR)
    assert (first.counts().scheduled, second.counts().scheduled) == (0, 3)


REFUSED = {
    "task": lambda task: task,
    "signature": lambda task: task.s(1),
    "chain": lambda task: chain(task.s(1), task.s(2)),
    "group": lambda task: group(task.s(1)),
}


@pytest.mark.parametrize(
    ("way", "what"),
    [("schedule", what) for what in REFUSED] + [("every", "task"), ("schedule_many", "task")],
)
@pytest.mark.parametrize("of", ["second alone", "both"])
def test_a_task_that_celery_sends_by_another_app_is_refused(first, second, way, what, of):
    if of == "both":  # one object: Celery sends it by the app that registered it last

        class Remind(Task):
            name = "remind"

        task = Remind()
        first.app.register_task(task)
        second.app.register_task(task)
    else:
        task = second.app.task(name="remind", shared=False)(noop)

    with pytest.raises(InvalidOption) as caught:
        WAYS[way](first, REFUSED[what](task))

    assert str(caught.value) == (
        "signature is 'remind'; expected a task of the app first; for a task of another app use "
        "that app's DelayQ, or app.signature(name) to send it by its name"
    )
    assert first.counts().scheduled == second.counts().scheduled == 0


def test_the_name_of_another_app_s_task_is_sent_by_the_app_that_was_called(first, second):
    task = second.app.task(name="remind", shared=False)(noop)
    result = first.schedule(first.app.signature(task.name, (1,)), at=FAR)
    assert first.get(result).task == "remind"
    assert second.counts().scheduled == 0


def test_the_caller_s_signature_stays_as_it_is(first, remind):
    made = remind.s(1).set(queue="mail")
    before = dict(made), made.app, made.type
    first.schedule(made, at=FAR)
    assert (dict(made), made.app, made.type) == before


def test_a_delayq_of_the_current_app_stays_with_that_app(first, second):
    delayq = DelayQ(current_app)
    first.app.set_current()
    assert delayq.app is delayq.services.app is second.app


# One store under one prefix, and a broker each.


@pytest.fixture
def shop(delayq_app, url, redis_server):
    """Its broker is database 1; in its store a task of another app waits, whose broker is 0."""
    delayq_app(url).send_task("theirs", delayq_at=FAR)
    shop = delayq_app(redis_server.url(1), delayq_url=url)
    shop.task(name="remind")(noop)
    return shop


MORE_WAYS = {
    **ALL_WAYS,
    "schedule_many": lambda task, *args: task.app.delayq.schedule_many(
        task, [(args, {})] * 3, at=FAR
    ),
    "canvas": lambda task, *args: chain(task.s(*args), task.si(2)).delay_until(FAR),
    "every": lambda task, *args: task.app.delayq.every("daily", task.s(*args), 86_400),
    "load": lambda task, *_: task.app.delayq.load(list(task.app.delayq.dump())),
    "hand_over": lambda task, *_: task.app.delayq.hand_over(),
}


@pytest.mark.parametrize("way", MORE_WAYS)
def test_a_call_whose_task_would_be_due_at_another_broker_is_refused(shop, redis, way):
    before = ids_of(shop.delayq), redis.dbsize()
    with pytest.raises(StoreDiffers, match=r"^the store has broker 'redis, database 0', this pro"):
        MORE_WAYS[way](shop.tasks["remind"], 1)
    assert before == (ids_of(shop.delayq), redis.dbsize())


@pytest.mark.parametrize("count", [1, 2])
def test_a_captured_call_goes_to_its_own_broker_as_celery_sends_it(
    shop, redis_server, delayq_app, count
):
    shop.conf.delayq_capture_eta = True
    fixed = {"task_id": "a", "reply_to": "r", "root_id": "a", "eta": "2100-01-01T00:00:00+00:00"}
    sent = []
    for app in (shop, delayq_app(redis_server.url(1), delayq_enabled=False)):
        for _ in range(count):
            app.send_task("remind", (1,), **fixed)
        with redis_server.client(db=1) as client:
            [(key, messages)] = lists(client).items()
            client.delete(key)
        sent.append([comparable(one) for one in messages])
        for one in sent[-1]:
            one["headers"].pop("origin")

    assert sent[0] == sent[1]
    assert [task.task for task in shop.delayq.tasks()] == ["theirs"]


def test_whatever_was_left_to_celery_is_revoked_as_celery_does(shop):
    assert shop.delayq.services.membership.broker == "redis, database 1"
    told = []
    shop.control.broadcast = lambda command, **given: told.append((command, given["arguments"]))

    shop.control.revoke("a")

    [(command, arguments)] = told
    assert (command, arguments["task_id"]) == ("revoke", "a")


@pytest.mark.parametrize("way", ["delay_until", "schedule_many", "every"])
def test_a_broker_that_is_reached_in_another_way_is_the_same(delayq_app, url, redis_server, way):
    """A container may know it by another host than the one of the workers."""
    other = url.replace("127.0.0.1", "localhost")
    assert other != url
    delayq_app(url).delayq.hand_over()
    web = delayq_app(f"{other};{url}", delayq_url=url)
    MORE_WAYS[way](web.task(name="remind")(noop), 1)
    write(web.delayq)
    assert web.delayq.counts().scheduled


# A copy of an app, in this process or another one, has its own DelayQ.


def pickled(app):
    return pickle.loads(pickle.dumps(app))


@pytest.fixture(params=[copy.deepcopy, copy.copy, pickled])
def copied(request, app):
    made = request.param(app)
    yield made
    made.delayq.close()
    made.close()


def test_a_copy_sends_and_schedules(app, copied, delayq, redis):
    copied.send_task("t", task_id="sent")
    copied.send_task("t", (1,), task_id="a", delayq_at=FAR)

    assert len(lists(redis)[b"celery"]) == 1
    assert delayq.get("a").args == (1,)
    assert copied.delayq is not delayq
    assert copied.delayq.app is copied
    assert copied.control.revoke("a") is None
    assert delayq.get("a") is None


def test_a_copy_s_worker_scans_and_has_the_option(app, copied):
    assert copied.steps["worker"] == app.steps["worker"]
    assert len(copied.user_options["worker"]) == 1
    assert "celery_delayq.launch" in copied.tasks


def test_a_copy_of_a_copy_is_one_as_well(app):
    twice = pickled(copy.deepcopy(app))

    assert twice.delayq.app is twice
    twice.delayq.close()
    twice.close()


def test_making_a_delayq_of_a_copy_gives_what_it_has(copied):
    assert DelayQ(copied).services is copied.delayq.services


class OwnAMQP(AMQP):
    """Of a user."""


class OwnControl(Control):
    """Of a user."""


def test_a_copy_keeps_the_classes_of_the_user(url):
    app = Celery("own", broker=url, amqp=OwnAMQP, control=OwnControl, set_as_current=False)
    delayq = DelayQ(app)

    made = copy.deepcopy(app)
    made.send_task("t", task_id="a", delayq_at=FAR)

    assert isinstance(made.amqp, OwnAMQP)
    assert isinstance(made.control, OwnControl)
    assert delayq.cancel("a")
    for one in (made, app):
        one.delayq.close()
        one.close()


def schedule_in(app):
    app.send_task("t", task_id="there", delayq_at=LONG_AGO)
    app.delayq.close()


def test_an_app_that_is_passed_to_a_spawned_process_schedules_there(app, delayq):
    process = multiprocessing.get_context("spawn").Process(target=schedule_in, args=(app,))

    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert delayq.get("there") is not None


# One app in many threads: calls do not mix, and block no other.


THREADS, CALLS = 8, 40


def test_calls_from_many_threads_do_not_mix(add, delayq):
    def schedule(number):
        options = {"queue": f"q{number % 5}", "priority": number % 10, "headers": {"n": number}}
        return add.s(number, y=str(number)).set(**options).delay_until(FAR + number)

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(schedule, range(THREADS * CALLS)))

    for number, result in enumerate(results):
        task = delayq.get(result.id)
        assert (task.args, task.kwargs) == ((number,), {"y": str(number)})
        assert (task.queue, task.due.timestamp()) == (f"q{number % 5}", FAR + number)
        assert json.loads(delayq.services.entries.find(result.id).message)["headers"]["n"] == number
    assert delayq.counts().scheduled == len(results)


def test_a_call_keeps_one_of_celery_s_producers_of_which_there_are_ten(slow):
    server, delayq, note = slow
    producers = delayq.app.producer_pool
    server.pause()
    thread = threading.Thread(target=note.delay_for, args=(60, 42))
    thread.start()
    eventually(lambda: len(producers._dirty) == 1)
    server.resume()
    thread.join()

    assert (len(producers._dirty), producers.limit) == (0, 10)

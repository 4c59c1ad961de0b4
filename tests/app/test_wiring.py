"""`DelayQ(app)` adds its own parts to an app, and leaves all others alone."""

import pickle
import subprocess
import sys

import pytest
from celery import Celery, group
from celery.app.amqp import AMQP, task_message

from celery_delayq import DelayQ
from tests.app.support import FAR, noop
from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


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

"""Code that patches or overrides Celery sees every task of a bulk, as it sees single tasks."""

from types import MethodType
from unittest import mock

import pytest
from celery import Celery, Task
from celery.app.amqp import AMQP
from celery.canvas import Signature

from celery_delayq import DelayQ
from tests.app.bulk import ITEMS, both_ways, plain_task
from tests.app.support import FAR

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize(
    ("owner", "method"), [(Task, "apply_async"), (Celery, "send_task"), (Signature, "apply_async")]
)
def test_a_patch_of_celery_sees_every_task(app, redis, monkeypatch, owner, method):
    original, seen = getattr(owner, method), []

    def patched(self, *args, **options):
        seen.append(args)
        return original(self, *args, **options)

    monkeypatch.setattr(owner, method, patched)

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert len(seen) == 2 * len(ITEMS)


def test_a_mock_of_one_app_sees_every_task(app, delayq):
    app.send_task = mock.Mock(side_effect=app.send_task)

    delayq.schedule_many(plain_task(app), ITEMS, at=FAR)

    assert app.send_task.call_count == len(ITEMS)


def test_a_callable_object_bound_to_one_app_sees_every_task(app, delayq):
    seen, send = [], app.send_task

    class Sends:
        def __call__(self, app, *args, **options):
            seen.append(args)
            return send(*args, **options)

    app.send_task = MethodType(Sends(), app)

    delayq.schedule_many(plain_task(app), ITEMS, at=FAR)

    assert len(seen) == len(ITEMS)


def test_messages_that_are_not_made_of_their_arguments_are_celery_s(app, redis, monkeypatch):
    make = AMQP.as_task_v2

    def hiding(self, *args, **options):
        return make(self, *args, **{**options, "argsrepr": "hidden"})

    monkeypatch.setattr(AMQP, "as_task_v2", hiding)

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert {message["headers"]["argsrepr"] for message in together[b"celery"]} == {"hidden"}


def test_a_method_of_one_task_sees_every_call(app, redis, made_by_celery):
    task = plain_task(app)
    send = task.apply_async

    def apply_async(self, args=None, kwargs=None, **options):
        return send(args, kwargs, **{**options, "queue": f"q{len(args)}"})

    task.apply_async = MethodType(apply_async, task)

    singly, together = both_ways(redis, task.s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)


def test_a_signature_of_another_class_makes_every_message(app, delayq):
    class Signed(Signature):
        def _merge(self, args=None, kwargs=None, options=None, force=False):
            return super()._merge((len(args),), kwargs, options, force)

    signature = Signed(plain_task(app), app=app)

    bulk = delayq.schedule_many(signature, [((1,), {}), ((1, 2), {}), ((), {})], at=FAR)

    assert [delayq.get(task_id).args for task_id in bulk.ids] == [(1,), (2,), (0,)]


def test_an_app_s_own_amqp_makes_every_message(make_app, url, redis, made_by_celery):
    class OwnAMQP(AMQP):
        def as_task_v2(self, task_id, name, args=None, *rest, **options):
            return super().as_task_v2(task_id, name, [str(args)], *rest, **options)

    app = make_app(url)
    app.amqp_cls = OwnAMQP
    DelayQ(app)

    singly, together = both_ways(redis, plain_task(app).s())

    assert together == singly
    assert len(made_by_celery) == len(ITEMS)
    app.delayq.close()


def test_a_backend_that_notes_every_call_hears_of_every_task(app, delayq, monkeypatch):
    noted = []

    def on_task_call(self, producer, task_id):
        noted.append(task_id)

    monkeypatch.setattr(type(app.backend), "on_task_call", on_task_call)

    bulk = delayq.schedule_many(plain_task(app), ITEMS, at=FAR)

    assert noted == bulk.ids

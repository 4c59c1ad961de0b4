"""celery-redis-plus as broker: its queues are no lists, so due tasks go there by the relay."""

import importlib
import sys

import kombu.transport
import pytest
from celery.signals import before_task_publish

from celery_delayq import Outcome
from celery_delayq.errors import InvalidSetting
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.libraries,
    pytest.mark.skipif(sys.version_info < (3, 13), reason="it needs Python 3.13"),
]

TASKS = "tests.worker.plus_tasks"
TRANSPORT = "celery_redis_plus.transport:Transport"
FAR = 1200
# What its user writes: a URL, or its class for a redis:// URL.
WAYS = {
    "valkey": lambda server: {"broker_url": server.url(3).replace("redis://", "valkey://")},
    "class": lambda server: {"broker_url": server.url(3), "broker_transport": TRANSPORT},
}


@pytest.fixture(params=WAYS)
def plus(request, make_project, server, monkeypatch):
    """A project whose broker it is, in another database than its store."""
    if server.version < (7,):
        pytest.skip("it needs Redis 7")
    # For other tests, kombu has no valkey://.
    names = dict.fromkeys(("valkey", "valkeys"), TRANSPORT)
    known = {**kombu.transport.TRANSPORT_ALIASES, **names}
    monkeypatch.setattr(kombu.transport, "TRANSPORT_ALIASES", known)
    monkeypatch.setattr(kombu.transport, "_transport_cache", {})
    # Its import lets it see each message that Celery sends.
    importlib.import_module("celery_redis_plus.transport")
    theirs = importlib.import_module("celery_redis_plus.signals")._convert_eta_to_properties
    before_task_publish.connect(theirs)
    store = server.url().replace("redis://", "valkey://")
    # By default it waits ten seconds for the messages of a queue that it was not asked for before.
    options = {"blocking_timeout": 1}
    yield make_project(
        **WAYS[request.param](server),
        broker_transport_options=options,
        delayq_url=store,
        delayq_capture_eta=True,
    )
    before_task_publish.disconnect(theirs)


def test_a_task_of_celery_redis_plus_waits_in_the_store_and_runs_once_when_due(plus, start_worker):
    note, persist = plus.tasks["note"], plus.tasks["persist"]
    soon, far = note.delay_for(1), note.apply_async((42,), countdown=FAR)
    cancelled = note.delay_for(FAR)
    start_worker(TASKS, "-c", "2", env=plus.env)

    [run] = plus.wait_runs(soon)
    assert run["at"] >= run["due"]
    assert cancelled.cancel() is Outcome.DONE
    assert plus.delayq.run_now(far) is Outcome.DONE
    [run] = plus.wait_runs(far)
    assert (run["args"], run["queue"]) == ([42], plus.queue)

    # In the worker, its transport delays each message with an eta, but none that waited already.
    retried = persist.delay_for(0.1, 1, FAR)
    plus.wait_runs(retried)
    eventually(lambda: plus.delayq.get(retried.id))
    assert plus.delayq.run_now(retried) is Outcome.DONE
    plus.wait_runs(retried, 2)
    assert [len(plus.runs(one)) for one in (soon, far, cancelled, retried)] == [1, 1, 0, 2]


def test_a_broker_that_celery_redis_plus_serves_is_no_store_without_a_url(plus):
    plus.app.conf.delayq_url = None

    with pytest.raises(InvalidSetting) as caught:
        plus.delayq.services.check()
    assert str(caught.value) == (
        "delayq_url is None; expected a redis:// or valkey:// URL, because the broker's transport "
        "is not kombu's own for Redis"
    )


def test_an_eta_is_not_held_by_a_worker_of_celery_redis_plus(plus):
    assert plus.delayq.services.broker.hold_limit is None

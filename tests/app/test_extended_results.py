"""With ``result_extended``, a cancelled task's result has the facts that a worker stores."""

import pytest
from celery import chord, group
from celery.worker.request import Request
from celery.worker.state import revoked

from tests.app.support import FAR
from tests.app.test_outbox import drain

__all__ = ["drain"]

pytestmark = pytest.mark.libraries

DIFFERENT = {"task_id", "date_done", "worker"}  # no worker had the cancelled task


@pytest.fixture
def app(delayq_app, redis_server, redis):
    app = delayq_app(redis_server.url(), redis_server.url(1), result_extended=True)
    app.conf.accept_content = ["json", "pickle"]
    return app


def facts(app, task_id):
    """What the result backend has of a task."""
    return {
        name: value
        for name, value in app.backend.get_task_meta(task_id, cache=False).items()
        if name not in DIFFERENT
    }


@pytest.fixture
def by_a_worker(app):
    """Send a signature, and let Celery's own worker code drop it; return what it stores."""

    def dropped(signature):
        task_id = signature.apply_async().id
        with app.connection_for_read() as connection:
            queue = signature.options.get("queue", "celery")
            message = connection.default_channel.basic_get(queue, no_ack=True)
        message.accept = {message.content_type}
        revoked.add(task_id)
        assert Request(message, app=app, hostname="w@h").revoked()
        return facts(app, task_id)

    yield dropped
    revoked.clear()


OPTIONS = {
    "arguments": {},
    "a queue": {"queue": "mail", "priority": 3},
    "pickle": {"serializer": "pickle"},
    "stamps": {"stamped_headers": ["tenant"], "tenant": "t1"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_cancelled_task_has_what_a_revoked_one_has(app, add, by_a_worker, options):
    signature = add.s(1, y=2).set(**options)
    result = signature.clone().delay_until(FAR)

    assert result.cancel()

    found = facts(app, result.id)
    assert (found["name"], found["args"], found["kwargs"]) == ("add", [1], {"y": 2})
    assert found == {**by_a_worker(signature), "result": found["result"]}


def test_a_task_cancelled_among_many_has_what_a_revoked_one_has(
    app, add, delayq, drain, by_a_worker
):
    result = delayq.schedule(add.s(1), at=FAR, tags=["x"])
    count = delayq.select(tag="x").cancel()
    assert (count, count.outstanding) == (1, 1)

    assert drain()

    found = facts(app, result.id)
    assert found == {**by_a_worker(add.s(1)), "result": found["result"]}


def test_each_part_of_a_cancelled_canvas_that_is_sent_at_once_has_what_a_revoked_task_has(
    app, add, by_a_worker
):
    parts = [add.s(number).set(queue="mail") for number in range(2)]
    result = group(parts).delay_until(FAR)

    assert result.cancel()

    for part, waited in zip(parts, result.results, strict=True):
        found, revoked_one = facts(app, waited.id), by_a_worker(part.clone())
        own = {name: found[name] for name in ("result", "group_id")}
        assert found == {**revoked_one, **own}


def test_a_cancelled_chord_counts_no_part(app, add):
    result = chord([add.s(1), add.s(2)], add.si(3)).delay_until(FAR)

    assert result.cancel()

    assert app.backend.client.keys("*") == [app.backend.get_key_for_task(result.id)]

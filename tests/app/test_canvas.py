"""A canvas is scheduled as one entry; the caller knows the ids of its parts at once."""

import importlib.util
import json
from itertools import product
from uuid import uuid4

import pytest
from celery import chain, chord, group
from celery.app.task import Context
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, GroupResult

from celery_delayq import Outcome
from celery_delayq.core.message.headers import LAUNCH
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, lists, noop

__all__ = ["app"]

pytestmark = pytest.mark.libraries


CANVASES = {
    "chain": lambda add: chain(add.s(1), add.s(2), add.s(3)),
    "pipe": lambda add: add.s(1) | add.s(2),
    "group": lambda add: group(add.s(1), add.s(2)),
    "group of one": lambda add: group([add.s(1)]),
    "chord": lambda add: chord([add.s(1), add.s(2)], add.si(3)),
    "group of chains": lambda add: group(add.s(1) | add.s(2), add.s(3) | add.s(4)),
    "chain with group": lambda add: chain(add.s(1), group(add.s(2), add.s(3))),
    "chain with chord": lambda add: chain(add.s(1), group(add.s(2), add.s(3)), add.si(4)),
    "map": lambda add: add.map([1, 2]),
    "starmap": lambda add: add.starmap([(1, 2), (3, 4)]),
    "chunks": lambda add: add.chunks([(1, 2), (3, 4)], 1),
}


def test_a_canvas_s_uuid_is_its_entry_s_id(add, delayq):
    number = uuid4()

    result = delayq.schedule(CANVASES["group"](add).set(task_id=number), at=FAR)

    assert result.id == delayq.get(number).id == str(number)
    assert result.cancel()


@pytest.mark.parametrize("what", CANVASES)
def test_a_canvas_is_one_entry_that_shows_what_it_is_and_that_its_result_cancels_and_moves(
    add, delayq, what
):
    result = CANVASES[what](add).delay_until(FAR)

    for task in (delayq.get(result.id), *delayq.tasks()):
        assert task.is_canvas is (what in SHOWN)
        assert not task.is_canvas or task.task == task.argsrepr == SHOWN[what]
    assert delayq.counts().scheduled == 1
    assert result.reschedule(by=60) is Outcome.DONE
    assert delayq.get(result).due.timestamp() == FAR + 60
    assert delayq.cancel(result) is Outcome.DONE
    assert delayq.counts().scheduled == 0


# Installed serializers only. `map` and `starmap` are one plain task of Celery's, sent as that.
SERIALIZERS = ["pickle", *filter(importlib.util.find_spec, ("yaml", "msgpack"))]
APPLIED = [
    *((what, "json") for what in CANVASES if "map" not in what),
    *product(("group", "chord", "group of chains", "chain"), SERIALIZERS),
]


@pytest.mark.parametrize(("what", "serializer"), APPLIED)
def test_applying_it_gives_the_ids_that_the_caller_has(app, delayq, redis, what, serializer):
    app.conf.update(task_serializer=serializer, accept_content=[serializer])
    result = CANVASES[what](app.task(name="add")(noop)).delay_until(LONG_AGO)
    delayq.hand_over()
    [body] = received(app, serializer)
    redis.flushall()

    app.tasks[LAUNCH](*body[0])

    applied = {message["headers"]["id"] for message in pushed(redis)}
    assert applied <= known_ids(result)
    assert len(applied) == (1 if what.startswith(("chain", "pipe", "group of one")) else 2)


def received(app, serializer="json", queue="celery"):
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue(queue, no_ack=True, accept=[serializer])
        bodies = [simple.get_nowait().payload for _ in range(simple.qsize())]
        simple.close()
    return bodies


def pushed(redis):
    return [json.loads(raw) for messages in lists(redis).values() for raw in messages]


def known_ids(result):
    """Ids of the tasks that can be reached from a result."""
    ids = set()
    if isinstance(result, GroupResult):
        ids.update(*map(known_ids, result.results))
    else:
        ids.add(result.id)
    return ids | (known_ids(result.parent) if result.parent else set())


def test_each_part_of_a_group_is_pending_and_the_group_s_result_is_one_of_celery_s(add):
    result = group(add.s(1), add.s(2)).delay_until(FAR)

    assert isinstance(result, GroupResult)
    assert len(result) == 2
    assert [part.state for part in result] == ["PENDING", "PENDING"]
    assert not result.ready()


def leaves(result):
    if isinstance(result, GroupResult):
        return [one for part in result.results for one in leaves(part)]
    return [result.id]


NESTED = {"nested": lambda add: group(group(add.s(1), add.s(2)), add.s(3) | add.s(4)), **CANVASES}


@pytest.mark.parametrize(
    "what", ["group", "nested", "chain", "chord", "chain with chord", "starmap"]
)
@pytest.mark.parametrize("how", ["cancel", "revoke"])
def test_cancelling_a_canvas_revokes_every_part_and_makes_its_result_raise(app, add, what, how):
    result = NESTED[what](add).delay_until(FAR)

    getattr(result, how)()

    assert app.delayq.counts().scheduled == 0
    assert {AsyncResult(one, app=app).state for one in leaves(result)} == {"REVOKED"}
    assert {part.state for part in getattr(result, "results", [result])} == {"REVOKED"}
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)


def test_the_entry_goes_to_the_queue_that_the_canvas_was_given(add, delayq, redis):
    group(add.s(1), add.s(2)).set(queue="mail", priority=3).delay_until(LONG_AGO)

    delayq.hand_over()

    assert list(lists(redis)) == [b"mail\x06\x163"]


def test_parts_keep_their_own_options(app, add, delayq, redis):
    parts = [add.s(1).set(queue="one", priority=6), add.s(2).set(queue="two", time_limit=5)]
    group(parts).delay_until(LONG_AGO)
    delayq.hand_over()
    [body] = received(app, queue="one")
    redis.flushall()

    app.tasks[LAUNCH](*body[0])

    assert set(lists(redis)) == {b"one\x06\x166", b"two"}
    [two] = redis.lrange("two", 0, -1)
    assert json.loads(two)["headers"]["timelimit"][0] == 5


def test_scheduling_the_same_canvas_twice_gives_two_entries(add, delayq):
    canvas = group(add.s(1), add.s(2))

    first, second = canvas.delay_until(FAR), canvas.delay_until(FAR)

    assert first.id != second.id
    assert delayq.counts().scheduled == 2


def test_a_part_of_a_chord_that_is_cancelled_counts_and_fails_the_chord(app, add, delayq):
    late = add.s(2).set(delayq_at=FAR)
    body = chord([add.s(1), late], add.si(3)).apply_async()
    [held] = delayq.tasks()

    assert delayq.cancel(held.id)
    finish_all(app)

    # No other process would ever store it: the chord waits until each of its parts is counted.
    assert AsyncResult(held.id, app=app).state == "REVOKED"
    assert AsyncResult(body.id, app=app).state == "FAILURE"


def finish_all(app):
    """Do what a worker does at the end of each task in the queue."""
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue("celery", no_ack=True)
        for _ in range(simple.qsize()):
            message = simple.get_nowait()
            _, _, embedded = message.payload
            request = Context({**message.headers, "chord": embedded["chord"]})
            app.backend.mark_as_done(request.id, 1, request=request)
        simple.close()


def test_a_result_of_a_group_can_be_saved_and_restored(app, add):
    result = group(add.s(1), add.s(2)).delay_until(FAR)

    result.save()

    assert GroupResult.restore(result.id, app=app) == result


SHOWN = {
    "chain": "chain(add, ...)",
    "pipe": "chain(add, ...)",
    "group": "group(add, ...)",
    "group of one": "group(add)",
    "chord": "chord(add, ...)",
    "group of chains": "group(chain(add, ...), ...)",
    "chain with group": "chain(add, ...)",
    "chain with chord": "chain(add, ...)",
    "chunks": "group(starmap(add), ...)",
}


def test_a_caller_that_waits_over_rpc_for_a_part_gets_the_revocation_of_the_whole(delayq_app, url):
    app = delayq_app("memory://", "rpc://", delayq_url=url)
    task = app.signature("t")
    result = group(task, task.clone()).delay_until(FAR)

    assert result.cancel() is Outcome.DONE

    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)

"""Custom task ids: stored as the text that is delivered; the error names the accepted types."""

import json
import pickle
from enum import Enum
from types import SimpleNamespace
from uuid import UUID

import pytest
from celery.result import AsyncResult

from celery_delayq import Outcome, State
from celery_delayq.core.clock import from_ms
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO, WAYS, only_message

pytestmark = [pytest.mark.core, pytest.mark.libraries]


class Job(str, Enum):  # StrEnum is its own value in every respect
    """``str`` turns its members into their names."""

    NIGHTLY = "nightly-report"


NUMBER = UUID("0d5bd3c7-6d6c-4c3b-8d2a-5a52b0d0a3f1")


BULK = lambda add, *args, at=FAR, task_id: add.app.delayq.schedule_many(  # noqa: E731
    add, [(args, {}, at, task_id)]
)


@pytest.fixture(params=[*WAYS.values(), BULK], ids=[*WAYS, "bulk"])
def schedule(request, add):
    """Each way to give a task an id."""
    return lambda name: request.param(add, 1, task_id=name)


@pytest.mark.parametrize(
    ("given", "text"),
    [(Job.NIGHTLY, "nightly-report"), (NUMBER, str(NUMBER))],
    ids=["enum", "UUID"],
)
@pytest.mark.operations
def test_an_id_is_its_text_in_the_store_in_the_queue_and_as_a_name(
    schedule, delayq, redis, given, text
):
    schedule(given)
    assert [task.id for task in delayq.tasks()] == [text]
    assert delayq.get(text).id == delayq.get(given).id == text
    assert delayq.reschedule(given, LONG_AGO)

    delayq.hand_over()

    message = json.loads(only_message(redis)[1])
    assert message["headers"]["id"] == message["properties"]["correlation_id"] == text
    assert message["headers"]["root_id"] == text


# Celery's backends wake a result only if its id is its message's.
@pytest.mark.parametrize("time", [{}, {"delayq_at": LONG_AGO}, {"countdown": 3000}])
def test_a_uuid_is_text_in_a_call_s_message_and_in_its_result(delayq_app, url, redis, time):
    app = delayq_app(url, delayq_capture_eta=True)
    more = {"root_id": NUMBER, "parent_id": NUMBER, "group_id": NUMBER}

    result = app.send_task("t", task_id=NUMBER, **more, **time)
    app.delayq.run_now(NUMBER)
    app.delayq.hand_over()

    headers = json.loads(only_message(redis)[1])["headers"]
    ids = [headers[name] for name in ("id", "root_id", "parent_id", "group")]
    assert ids == 4 * [str(NUMBER)]
    assert result.id == app.AsyncResult(NUMBER).id == str(NUMBER)


NAMES = {
    "text": lambda result: result.id,
    "the result": lambda result: result,
    "Celery's result": lambda result: AsyncResult(result.id),
    "the result as it travels": lambda result: pickle.loads(pickle.dumps(result)),
    "UUID": lambda result: UUID(result.id),
    "the task that was read": lambda result: result.app.delayq.get(result.id),
    "a task of a list": lambda result: next(
        one for one in result.app.delayq.tasks() if one.id == result.id
    ),
}


@pytest.mark.parametrize("named", NAMES.values(), ids=NAMES)
def test_a_task_is_named_by_its_result_its_uuid_or_its_id(add, delayq, redis, named):
    add.delay_until(FAR, 2)
    result = add.delay_until(FAR, 1)
    one = named(result)

    assert delayq.get(one).id == result.id
    assert delayq.reschedule(one, FAR + 1)
    assert delayq.get(one).due == from_ms((FAR + 1) * 1000)
    assert delayq.state(one) is State.SCHEDULED
    assert delayq.cancel(one)
    assert delayq.cancel(one) is Outcome.NOT_FOUND
    assert delayq.counts().scheduled == 1
    gone = named(add.delay_until(LONG_AGO, 1))
    delayq.hand_over()
    assert delayq.handed_over(gone)


def test_an_object_with_the_id_of_a_task_does_not_name_that_task(add, delayq):
    task = SimpleNamespace(id=add.delay_until(FAR, 1).id)

    for step in (delayq.cancel, delayq.get, delayq.state, lambda one: delayq.reschedule(one, FAR)):
        with pytest.raises(
            InvalidOption, match=r"512 bytes, a UUID, a result or a ScheduledTask; pass its \.id$"
        ):
            step(task)

    assert delayq.get(task.id)

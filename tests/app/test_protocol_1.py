"""`task_protocol = 1`: no call schedules, and captured ones are left to Celery.

A worker adopts such messages of other processes.
"""

import base64
import json
from datetime import datetime, timedelta, timezone

import pytest
from celery.signals import task_revoked
from kombu import serialization

from celery_delayq import Outcome
from celery_delayq.errors import InvalidSetting
from tests.app.support import (
    ALL_WAYS,
    FAR,
    LONG_AGO,
    arrive_in_protocol_1,
    lists,
    noop,
    only_message,
)

DUE = datetime.fromtimestamp(FAR, timezone.utc)


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, task_protocol=1, delayq_capture_eta=True)


@pytest.fixture
def task(app):
    return app.task(name="t", shared=False)(noop)


CALLS = {
    **ALL_WAYS,
    "a canvas": lambda task: (task.si() | task.si()).delay_for(60),
    "schedule_many": lambda task: task.app.delayq.schedule_many(task, [((), {})] * 3, at=FAR),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_schedules_is_refused_and_nothing_is_written(task, redis, call):
    with pytest.raises(InvalidSetting) as caught:
        call(task)

    assert str(caught.value) == (
        "task_protocol is 1; expected 2, Celery's default: "
        "no message of protocol 1 can be scheduled"
    )
    assert redis.keys("*delayq*") == []
    assert lists(redis) == {}


def test_a_captured_call_is_left_to_celery_and_the_first_one_is_warned_of(task, redis, caplog):
    with caplog.at_level("WARNING"):
        for _ in range(2):
            task.apply_async(eta=DUE)

    assert redis.keys("*delayq*") == []
    [(_, messages)] = lists(redis).items()
    bodies = [base64.b64decode(json.loads(one)["body"]) for one in messages]
    assert [datetime.fromisoformat(json.loads(one)["eta"]) for one in bodies] == [DUE, DUE]
    assert len([one for one in caplog.messages if "left to Celery" in one]) == 1


def test_a_plain_call_is_celery_s(task, redis):
    task.apply_async((1,), countdown=-5)

    assert "delayq" not in only_message(redis)[1].decode()


# Messages of a process without a DelayQ.


@pytest.fixture
def arrive(delayq_app, url):
    """An app whose store has a task "a" of protocol 1."""

    def arrive(due=FAR, *, accept=("json", "pickle"), conf=None, **options):
        app = delayq_app(url, accept_content=[*accept], **(conf or {}))
        call = {"args": (1,), "kwargs": {"x": "ü"}, "task_id": "a", "delayq_at": due, **options}
        arrive_in_protocol_1(app, **call)
        return app

    return arrive


def body(redis):
    """The body of the one message that left."""
    message = json.loads(only_message(redis)[1])
    text = base64.b64decode(message["body"])
    return serialization.loads(text, message["content-type"], message["content-encoding"])


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_a_message_of_protocol_1_is_read(arrive, serializer):
    task = arrive(serializer=serializer).delayq.get("a")

    # Its name is in the body, and no pickle is read to show a name.
    assert task.task == ("" if serializer == "pickle" else "t")
    assert (task.args, task.kwargs, task.queue) == ((1,), {"x": "ü"}, "celery")
    assert task.argsrepr == (None if serializer == "pickle" else "(1,)")


def test_a_message_of_protocol_1_is_selected_by_its_task(arrive):
    assert arrive().delayq.select(task="t").count() == 1


def test_a_message_of_protocol_1_leaves_without_its_eta(arrive, redis):
    arrive(LONG_AGO).delayq.hand_over()

    assert (body(redis)["id"], body(redis)["args"], body(redis)["eta"]) == ("a", [1], None)


def test_a_cancel_is_told(arrive, url, listen):
    heard = []
    listen(task_revoked, lambda request, **_: heard.append(request))
    app = arrive(conf={"result_backend": url})

    app.delayq.cancel("a")

    assert [(one.id, one.args) for one in heard] == [("a", [1])]
    assert app.AsyncResult("a").state == "REVOKED"


def test_the_event_says_what_it_is(arrive, delayq_app, url, watching):
    with watching(delayq_app(url)) as wait_for:
        arrive(conf={"task_send_sent_event": True})
        [told] = wait_for(1)

    facts = [told[name] for name in ("uuid", "name", "args", "kwargs")]
    assert facts == ["a", "t", "(1,)", "{'x': 'ü'}"]


def test_a_message_of_protocol_1_is_edited(arrive, redis):
    delayq = arrive(LONG_AGO).delayq

    assert delayq.edit("a", args=[2], expires=60) is Outcome.DONE

    delayq.hand_over()
    assert (body(redis)["args"], body(redis)["kwargs"]) == ([2], {"x": "ü"})
    expires = datetime.fromtimestamp(LONG_AGO + 60, timezone.utc)
    assert datetime.fromisoformat(body(redis)["expires"]) == expires
    assert "delayq_expires_ms" not in json.loads(only_message(redis)[1])["headers"]


def test_a_message_of_protocol_1_is_released_with_its_eta(arrive, redis):
    delayq = arrive(expires=DUE + timedelta(seconds=60)).delayq

    assert delayq.select(all=True).release() == 1

    delayq.hand_over()
    assert datetime.fromisoformat(body(redis)["eta"]) == DUE
    assert datetime.fromisoformat(body(redis)["expires"]) == DUE + timedelta(seconds=60)


def test_an_unreadable_message_is_not_released(arrive, redis):
    delayq = arrive(accept=["json"], serializer="pickle").delayq
    before = redis.hgetall("{delayq:0}:records")

    count = delayq.select(all=True).release()

    assert (count, count.unreadable) == (0, 1)
    assert redis.hgetall("{delayq:0}:records") == before


def test_a_dump_has_it_and_a_store_takes_it_back(arrive, redis):
    delayq = arrive(LONG_AGO).delayq
    lines = [*delayq.dump()]
    delayq.cancel("a")
    redis.flushall()

    assert delayq.load(lines).loaded == 1

    delayq.hand_over()
    assert body(redis)["id"] == "a"


def test_a_new_name_of_its_task_is_in_the_body(arrive, redis):
    app = arrive(LONG_AGO)

    @app.task(name="new", shared=False)
    def new(*_, **__):
        pass

    assert app.delayq.select(task="t").edit(task="new") == 1

    assert app.delayq.get("a").task == "new"
    app.delayq.hand_over()
    assert body(redis)["task"] == "new"

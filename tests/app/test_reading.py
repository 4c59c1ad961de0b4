"""Reading one entry; content that must not be decoded is not decoded."""

import base64
import json
import math
import pickle
from datetime import datetime, timezone

import pytest

from celery_delayq import ScheduledTask, State
from tests.app.support import FAR, LONG_AGO, redis_ms, redis_now, to_ms
from tests.support.shards import keys_of

pytestmark = pytest.mark.core

UTC = timezone.utc


class Mark:
    """Unpickling it leaves a mark."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_an_entry_has_what_was_scheduled(add, delayq, redis):
    before = redis_now(redis)
    result = add.s(1, y="ü").set(queue="mail").delay_until(FAR)

    task = delayq.get(result.id)

    assert isinstance(task, ScheduledTask)
    assert (task.id, task.task, task.queue) == (result.id, "add", "mail")
    assert (task.args, task.kwargs) == ((1,), {"y": "ü"})
    assert task.due == datetime.fromtimestamp(FAR, UTC)
    assert task.due.utcoffset().total_seconds() == task.created.utcoffset().total_seconds() == 0
    assert before <= task.created <= redis_now(redis)
    assert (task.state, task.reason) == (State.SCHEDULED, "")


@pytest.mark.parametrize("task_id", ["nobody", "*", "a" * 512])
def test_an_id_that_is_not_scheduled_gives_none(delayq, task_id):
    assert delayq.get(task_id) is delayq.state(task_id) is delayq.handed_over(task_id) is None


@pytest.mark.parametrize("compression", [None, "zlib", "bzip2"])
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_arguments_are_read_from_every_kind_of_message(delayq_app, url, compression, serializer):
    app = delayq_app(url, accept_content=["json", "pickle"])
    args, kwargs = ("ü", 2**70, [1.5, None], "x" * 3000), {"k": {"deep": True}}

    result = app.send_task(
        "t", args, kwargs, serializer=serializer, compression=compression, delayq_at=FAR
    )

    task = app.delayq.get(result.id)
    assert (task.task, task.args, task.kwargs) == ("t", args, kwargs)
    assert [(one.args, one.kwargs) for one in app.delayq.tasks()] == [(args, kwargs)]


def test_a_pickle_is_never_read_by_an_app_that_does_not_accept_it(app, delayq, tmp_path):
    mark = tmp_path / "mark"
    result = app.send_task("t", (Mark(mark),), serializer="pickle", delayq_at=FAR)

    tasks = [delayq.get(result.id), *delayq.tasks()]

    assert [(task.args, task.kwargs) for task in tasks] == [(None, None)] * 2
    assert {task.task for task in tasks} == {"t"}
    assert delayq.cancel(result.id)
    assert not mark.exists()


def test_the_mark_that_proves_it_is_left_by_an_app_that_accepts_pickles(delayq_app, url, tmp_path):
    app = delayq_app(url, accept_content=["pickle"])
    mark = tmp_path / "mark"
    result = app.send_task("t", (Mark(mark),), serializer="pickle", delayq_at=FAR)

    app.delayq.get(result.id).args[0].close()

    assert mark.exists()


def test_nothing_is_unpickled_that_somebody_else_put_into_redis(app, delayq, redis, tmp_path):
    mark = tmp_path / "mark"
    app.send_task("t", ("x" * 40,), task_id="a", serializer="pickle", delayq_at=FAR)
    record = redis.hget(keys_of("a")["records"], "a")
    message = json.loads(delayq.services.entries.find("a").message)
    evil = base64.b64encode(pickle.dumps(((Mark(mark),), {}, {}))).decode()
    forged = record.replace(message["body"].encode(), evil.encode())
    assert forged != record
    redis.hset(keys_of("a")["records"], "a", forged)

    assert delayq.get("a").args is None
    assert [task.args for task in delayq.tasks()] == [None]
    assert delayq.cancel("a")
    assert not mark.exists()


def test_arguments_do_not_show_in_the_repr(add, delayq):
    result = add.delay_until(FAR, "a secret")

    assert "a secret" not in repr(delayq.get(result.id))
    assert "a secret" not in repr(list(delayq.tasks()))


def test_a_body_that_cannot_be_decoded_hides_its_arguments_and_nothing_else(app, delayq, redis):
    for number, compression in enumerate(["zlib", "bzip2", None]):
        task_id = str(number)
        app.send_task("t", ("x" * 99,), task_id=task_id, compression=compression, delayq_at=FAR)
        body = json.loads(delayq.services.entries.find(task_id).message)["body"].encode()
        record = redis.hget(keys_of(task_id)["records"], task_id)
        redis.hset(keys_of(task_id)["records"], task_id, record.replace(body, b"A" * len(body)))

    assert [delayq.get(str(number)).args for number in range(3)] == [None] * 3
    assert [(task.task, task.args) for task in delayq.tasks()] == [("t", None)] * 3


def test_the_time_of_delivery_is_known_apart_from_the_due_time(add, delayq, redis):
    result = add.delay_until(LONG_AGO, 1)
    assert delayq.handed_over(result.id) is None
    before = math.floor(redis_ms(redis))

    delayq.hand_over()

    when = delayq.handed_over(result.id)
    assert before <= to_ms(when) <= redis_ms(redis)
    assert when.utcoffset().total_seconds() == 0


def test_a_header_that_kombu_cannot_decode_hides_no_task(add, delayq):
    broken = {"x": {"__type__": "decimal", "__value__": "none"}}
    add.apply_async((1,), task_id="first", delayq_at=FAR)
    add.apply_async((2,), task_id="broken", delayq_at=FAR, headers=broken)
    add.apply_async((3,), task_id="last", delayq_at=FAR)

    assert [task.id for task in delayq.tasks()] == ["first", "broken", "last"]
    assert delayq.get("broken").reason.startswith("its message cannot be read: ")

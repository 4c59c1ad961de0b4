"""What is wrong in the store: repaired, or shown and changed as it is."""

from dataclasses import replace
from functools import partial

import kombu.compression
import pytest

from celery_delayq import State
from celery_delayq.core.store import Outcome
from celery_delayq.errors import InvalidOption
from celery_delayq.signals import task_dead
from tests.app.support import FAR, LONG_AGO
from tests.support.places import take
from tests.support.shards import put_message

# `delayq.repair(finding)` mends a finding of `check`, in each shard, and notifies scanners.


def test_a_finding_is_repaired(app, redis):
    app.send_task("t", task_id="a", delayq_at=FAR)
    redis.delete("{delayq:0}:due")
    [finding] = app.delayq.check()
    assert (finding.kind, finding.id) == ("record_without_place", "a")
    assert finding.repair.startswith("it waits again")

    repaired = app.delayq.repair(finding)

    assert (bool(repaired), repaired.what, repaired.finding) == (True, "back", finding)
    assert list(app.delayq.check()) == []
    assert app.delayq.state("a") is State.SCHEDULED
    assert app.delayq.repair(finding).what == "gone"


def test_a_finding_without_a_repair_is_left_alone(app, redis):
    app.send_task("t", task_id="a", delayq_at=FAR)
    redis.hset("{delayq:0}:records", "a", "2?")
    [finding] = app.delayq.check()
    repaired = app.delayq.repair(finding)
    assert (bool(repaired), repaired.what, finding.repair) == (False, "left", "")


def test_a_repair_that_makes_a_task_dead_sends_task_dead(app, redis):
    heard = []
    task_dead.connect(lambda task_id, reason, **_: heard.append((task_id, reason)), weak=False)
    app.send_task("t", task_id="a", delayq_at=FAR)
    redis.hset("{delayq:0}:errors", "a", "NO_ROUTE")
    redis.delete("{delayq:0}:due")

    (repaired,) = map(app.delayq.repair, app.delayq.check())

    assert (repaired.what, repaired.reason) == ("dead", "NO_ROUTE")
    assert heard == [("a", "NO_ROUTE")]


def test_each_shard_is_mended(delayq_app, url, redis):
    app = delayq_app(url, delayq_shards=3)
    ids = [f"a{number}" for number in range(12)]
    for task_id in ids:
        app.send_task("t", task_id=task_id, delayq_at=FAR)
    redis.delete(*redis.keys("*:due"))
    found = list(app.delayq.check())
    assert {one.shard for one in found} == {0, 1, 2}
    assert {app.delayq.repair(one).what for one in found} == {"back"}
    assert sorted(one.id for one in app.delayq.tasks()) == sorted(ids)
    with pytest.raises(InvalidOption):
        app.delayq.repair(replace(found[0], shard=3))


def test_a_value_that_is_no_finding_is_refused(app):
    with pytest.raises(InvalidOption, match=r"^finding is 'a'; expected one that check gave$"):
        app.delayq.repair("a")


# A non-Celery message in a valid record is listed, shown, rescheduled and cancelled.


# The text before the due time and two closing braces.
MESSAGES = {
    "RecursionError": b'{"headers": {"x": ' + b"[" * 100_000,
    "JSONDecodeError": b'{"headers": {"x" ',
    "UnicodeDecodeError": b'{"headers": {"x": "\xff\xfe", "y": ',
    "no headers": b'{"properties": {"x": ',
    "headers are a number": b'{"headers": 5, "properties": {"x": ',
    "properties are a list": b'{"properties": [], "headers": {"x": ',
    "no delivery_info": b'{"properties": {}, "headers": {"task": "t", "x": ',
    "a huge number": b'{"headers": {"x": ' + b"9" * 10_000,
}
PROPERTIES = b'"properties": {"delivery_info": {"routing_key": "q"}, "body_encoding": null}'
BODIES = [b"5", b'"text"', b"null", b"[5, 5]", b'{"args": 5, "kwargs": 5}', b"[" * 100_000]


@pytest.fixture
def put(app, redis):
    """Replace the message in a record."""

    for number, task_id in enumerate("abc"):
        app.send_task("t", (number,), task_id=task_id, delayq_at=FAR + number)
    return partial(put_message, redis)


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())
def test_an_unreadable_task_is_shown_with_what_is_known_of_it_and_can_be_changed(
    delayq, put, message
):
    put("b", message)

    listed = [*delayq.tasks()]

    assert [(task.id, task.args) for task in listed] == [("a", (0,)), ("b", None), ("c", (2,))]
    shown = delayq.get("b")
    assert shown == listed[1]
    assert (shown.due.timestamp(), shown.task, shown.argsrepr) == (FAR + 1, "", None)
    assert shown.reason.startswith("its message cannot be read: ")
    assert delayq.reschedule("b", FAR + 9)
    assert delayq.cancel("b") is Outcome.DONE
    assert [task.id for task in delayq.tasks()] == ["a", "c"]


@pytest.mark.parametrize("text", BODIES, ids=lambda text: text[:20])
def test_a_body_that_has_no_arguments_has_none(delayq, put, text):
    envelope = b'{"body": %s, "content-type": "application/json", "content-encoding": "utf-8", %s'
    quoted = text.replace(b'"', b'\\"')
    put("b", envelope % (b'"%s"' % quoted, PROPERTIES) + b', "headers": {"x": ')

    task = delayq.get("b")

    assert (task.queue, task.args, task.kwargs, task.argsrepr) == ("celery", None, None, None)
    assert [one.id for one in delayq.tasks()] == ["a", "b", "c"]


def test_a_dead_task_says_why_it_is_dead_and_that_it_cannot_be_read(delayq, put, redis):
    put("b", MESSAGES["no headers"])
    redis.delete("celery")
    delayq.reschedule("b", LONG_AGO)
    take(delayq, "dead", "b")

    reason = delayq.get("b").reason

    assert reason.startswith("celery: ")
    assert "; its message cannot be read: KeyError('headers')" in reason


@pytest.mark.libraries
@pytest.mark.parametrize("compression", ["zlib", "bzip2", "lzma"])
def test_a_compressed_body_is_read_and_one_of_an_unknown_codec_is_hidden(
    app, delayq, monkeypatch, compression
):
    app.send_task("t", ("x" * 5000,), task_id="a", compression=compression, delayq_at=FAR)
    assert delayq.get("a").args == ("x" * 5000,)

    monkeypatch.setattr(kombu.compression, "_decoders", {})

    assert delayq.get("a").args is None

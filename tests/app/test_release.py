"""``select(...).release()``: a waiting task leaves as the message Celery sends with an ``eta``."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from celery import chain

from celery_delayq import Outcome, State
from celery_delayq.errors import InvalidOption
from tests.app.support import (
    FAR,
    Killed,
    comparable,
    envelope,
    lists,
    noop,
    only_message,
    templates,
)
from tests.support.places import at, take

pytestmark = pytest.mark.libraries

DUE = datetime.fromtimestamp(FAR, timezone.utc)
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def small_steps(limits):
    limits(release_step=7)


@pytest.fixture
def add(app):
    @app.task(name="add")
    def add(x=0, y=0):
        return x + y

    return add


NAMES = [f"{number:02}" for number in range(20)]


@pytest.fixture
def twenty(add):
    """Twenty tasks, due at one time; tagged, so that half of them can be selected."""
    for number, task_id in enumerate(NAMES):
        tags = ["t", f"t{number % 2}"]
        add.apply_async(task_id=task_id, delayq_at=FAR, delayq_tags=tags)


WAYS = {
    "plain": {},
    "compressed": {"compression": "zlib"},
    "msgpack": {"serializer": "msgpack"},
    "links": {"link": "add", "headers": {"mine": 1}},
    "priority": {"priority": 6},
    "expires": {"expires": DUE + MINUTE},
}


def messages(redis):
    return [json.loads(one) for waiting in lists(redis).values() for one in waiting]


def ids(redis):
    return sorted(one["headers"]["id"] for one in messages(redis))


# Each way once, alternating between a whole message and one that shares a template.
@pytest.mark.parametrize(("way", "shared"), [(way, at % 2 == 0) for at, way in enumerate(WAYS)])
def test_a_released_message_equals_that_of_a_call_with_its_eta(
    delayq_app, url, redis, *, way, shared
):
    app = delayq_app(url, accept_content=["json", "msgpack"])

    @app.task(name="add")
    def add(x, y=0):
        return x + y

    options = {**WAYS[way], "task_id": "a"}
    if "link" in options:
        options["link"] = add.s(3)
    add.apply_async((1,), {"y": 2}, eta=DUE, **options)
    expected_in, expected = only_message(redis)
    redis.delete(expected_in)
    for _ in range(2 if shared else 1):  # a message is sent for the first time
        app.delayq.cancel("a")
        add.apply_async((1,), {"y": 2}, delayq_at=FAR, **options)

    assert app.delayq.select(all=True).release() == 1
    assert app.delayq.hand_over() == 1

    found_in, found = only_message(redis)
    assert (found_in, comparable(found)) == (expected_in, comparable(expected))
    assert "delayq_due" in json.loads(found)["headers"]
    assert templates(redis) == (0, 0)
    assert list(app.delayq.check()) == []


@pytest.mark.parametrize(
    ("options", "after_due"),
    [
        ({"expires": 60}, 60),
        ({"delayq_late": "skip", "delayq_grace": 5}, 5),
        ({"delayq_late": "skip", "delayq_grace": 5, "expires": 60}, 5),
        ({"delayq_late": "skip", "delayq_grace": 90, "expires": 60}, 60),
        ({}, None),
    ],
    ids=repr,
)
def test_expiry_and_grace_period_count_on_from_the_due_time(app, delayq, redis, options, after_due):
    t = app.task(name="t")(noop)
    t.apply_async(task_id="a", delayq_at=FAR - 100, **options)
    delayq.reschedule("a", FAR)

    delayq.select(all=True).release()
    delayq.hand_over()

    [headers] = [one["headers"] for one in messages(redis)]
    assert datetime.fromisoformat(headers["eta"]) == DUE
    until = headers["expires"] and datetime.fromisoformat(headers["expires"]).timestamp()
    assert until == (None if after_due is None else FAR + after_due)
    # A released task can read its due time.
    t.push_request(**headers)
    assert delayq.due_of(t.request) == DUE


@pytest.mark.parametrize("shards", [1, 3])
def test_released_tasks_leave_in_due_order_step_by_step(delayq_app, url, redis, shards):
    app = delayq_app(url, delayq_shards=shards)
    later = {task_id: 7 * number % 20 for number, task_id in enumerate(NAMES)}
    for task_id, seconds in later.items():
        app.send_task("t", task_id=task_id, delayq_at=FAR + seconds)
    sent = {}

    def progress(count):
        app.delayq.hand_over()
        sent[int(count)] = ids(redis)

    assert app.delayq.select(all=True).release(progress=progress) == 20

    in_order = sorted(later, key=later.get)
    for count in (7, 14, 20):
        assert sent[count] == sorted(in_order[:count])


@pytest.mark.parametrize(
    ("broker", "options", "beyond"),
    [
        ("", {}, 3),
        ("", {"visibility_timeout": 7200}, 1),
        ("amqp://guest@127.0.0.1:1//", {}, 4),
        ("memory://localhost//", {}, 0),
    ],
    ids=["Redis's hour", "two hours", "RabbitMQ's half an hour", "none is known"],
)
def test_a_release_counts_what_a_broker_delivers_again_before_it_is_due(
    delayq_app, url, broker, options, beyond
):
    app = delayq_app(broker or url, delayq_url=url, broker_transport_options=options)
    for hours in (0.4, 0.9, 1.1, 1.9, 2.1):
        app.send_task("t", delayq_after=hours * 3600)
    selection, seen = app.delayq.select(all=True), []
    assert selection.release(dry_run=True, progress=seen.append).beyond == beyond
    assert seen[-1] == 5
    # The dry run left each where it waits.
    assert broker or app.delayq.hand_over() == 0
    assert broker or selection.release().beyond == beyond


@pytest.mark.parametrize("how", ["parked", "paused", "resumed"])
def test_a_grace_does_not_end_what_was_held_back_by_a_pause(add, delayq, redis, how):
    due = datetime.now(timezone.utc) - timedelta(minutes=30)
    add.apply_async(task_id="a", delayq_at=due, delayq_late="skip", delayq_grace=3600)
    delayq.pause(all=True)
    if how == "parked":  # a scanner has met it
        delayq.hand_over()
        assert delayq.state("a") is State.PAUSED
    if how == "resumed":
        delayq.resume(all=True)
    delayq.select(all=True).release()
    delayq.hand_over()
    [message] = messages(redis)
    left = datetime.fromisoformat(message["headers"]["expires"]) - datetime.now(timezone.utc)
    assert timedelta(minutes=59) < left <= timedelta(hours=1, seconds=1)


@pytest.mark.parametrize("place", ["dead", "in_flight"])
def test_dead_letters_and_a_task_being_published_stay_and_are_counted(add, delayq, place):
    at(delayq, "dead" if place == "dead" else "leased", name="add")
    add.apply_async(delayq_at=FAR)

    for dry_run in (True, False):
        count = delayq.select(all=True).release(dry_run=dry_run)
        assert (count, getattr(count, place)) == (1, 1)
    assert delayq.state("a").value == place.upper()


# Canvases.


def test_a_canvas_is_refused_before_anything_is_sent(twenty, add, delayq, redis):
    canvas = chain(add.s(1), add.s(2)).delay_until(FAR)
    before = redis.hgetall("{delayq:0}:records")

    for dry_run in (False, True):
        with pytest.raises(InvalidOption) as raised:
            delayq.select(all=True).release(dry_run=dry_run)
        assert str(raised.value) == (
            "canvas is False; expected True: only a worker with celery_delayq can run a canvas, "
            "and there is 1"
        )
    assert redis.hgetall("{delayq:0}:records") == before

    assert delayq.select(task="add").release() == 20
    count = delayq.select(all=True).release(canvas=True)
    assert (count, count.canvases) == (1, 1)
    delayq.hand_over()
    assert {*ids(redis)} == {*NAMES, canvas.id}


# Released tasks that have not left yet.


def test_a_released_task_can_be_cancelled_and_nothing_else(add, delayq, redis):
    for task_id in ("a", "b"):
        add.apply_async(task_id=task_id, delayq_at=FAR, delayq_key=f"k{task_id}")
    delayq.select(all=True).release()
    before = envelope(delayq, "a").raw

    # Its worker would wait for the earlier time, or for the later one.
    assert delayq.reschedule("a", after=60) is Outcome.HANDED_OVER
    assert delayq.reschedule("a", FAR + 60) is Outcome.HANDED_OVER
    assert delayq.edit("a", args=[5]) is Outcome.HANDED_OVER
    assert delayq.select(all=True).reschedule(by=60) == 0
    assert envelope(delayq, "a").raw == before
    assert delayq.cancel("a")
    assert delayq.run_now("b")
    delayq.hand_over()
    [message] = messages(redis)
    assert message["headers"]["eta"] == DUE.isoformat()


def test_a_task_that_died_on_its_way_keeps_its_eta(add, delayq, redis):
    add.apply_async(task_id="a", delayq_at=FAR)
    delayq.select(all=True).release()
    take(delayq, "dead", "a")
    delayq.pause(all=True)

    assert delayq.retry("a")
    assert delayq.reschedule("a", after=1) is Outcome.HANDED_OVER
    assert delayq.select(all=True).release() == 0
    delayq.hand_over()

    [message] = messages(redis)
    assert message["headers"]["eta"] == DUE.isoformat()


# Interrupted releases, and concurrent ones.


@pytest.mark.parametrize(("steps", "scans"), [(1, False), (2, True), (3, False)])
def test_after_a_kill_a_release_is_said_again(twenty, delayq, redis, steps, scans):
    seen = []

    def progress(count):
        seen.append(int(count))
        if len(seen) == steps:
            raise Killed

    with pytest.raises(Killed):
        delayq.select(tag="t").release(progress=progress)
    if scans:
        delayq.hand_over()
    assert seen[-1] < 20 or steps == 3
    assert delayq.select(tag="t").release() == 20 - seen[-1]
    delayq.hand_over()

    assert ids(redis) == NAMES
    assert {one["headers"]["eta"] for one in messages(redis)} == {DUE.isoformat()}


def anew(delayq, redis):
    delayq.cancel("a")
    delayq.app.tasks["add"].apply_async((5,), task_id="a", delayq_at=FAR + 9)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda delayq, _: delayq.reschedule("a", FAR + 60), [(DUE + MINUTE, "{}")]),
        (lambda delayq, _: delayq.edit("a", kwargs={"y": 7}), [(DUE, "{'y': 7}")]),
        (lambda delayq, _: delayq.cancel("a"), []),
        (anew, []),
        (lambda delayq, _: delayq.run_now("a") and take(delayq, "dead", "a"), []),
    ],
    ids=["reschedule", "edit", "cancel", "anew", "dies"],
)
def test_a_task_changed_after_it_was_read_is_read_anew(
    between, add, delayq, redis, *, change, left
):
    add.apply_async((1,), task_id="a", delayq_at=FAR)
    changes = iter([change])
    between.before("rewrite", lambda: [one(delayq, redis) for one in changes])
    count = delayq.select(all=True).release()
    assert (count, count.dead) == (len(left), delayq.counts().dead)
    delayq.hand_over()

    found = [one["headers"] for one in messages(redis)]
    assert [(one["eta"], one["kwargsrepr"]) for one in found] == [
        (due.isoformat(), shown) for due, shown in left
    ]
    if change is anew:
        assert delayq.get("a").due.timestamp() == FAR + 9

"""A canvas is one entry: its call, its launch in a worker, and chords that are forgotten."""

import contextlib
import importlib.util
import json
import logging
import re
from datetime import datetime, timedelta, timezone
from itertools import product
from unittest.mock import Mock
from uuid import uuid4

import pytest
from celery import chain, chord, group
from celery.app.defaults import DEFAULTS
from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.backends.base import BaseBackend
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, GroupResult
from celery.signals import before_task_publish
from celery.utils.time import maybe_timedelta
from kombu import Exchange, Queue

from celery_delayq import Outcome, State
from celery_delayq.core import clock
from celery_delayq.core.message.headers import LAUNCH
from celery_delayq.errors import AlreadyScheduled, NotScheduled
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, lists, noop, received

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
    [message] = received(app, accept=[serializer])
    redis.flushall()

    app.tasks[LAUNCH](*message.payload[0])

    applied = {message["headers"]["id"] for message in pushed(redis)}
    assert applied <= known_ids(result)
    assert len(applied) == (1 if what.startswith(("chain", "pipe", "group of one")) else 2)


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
    [message] = received(app, "one")
    redis.flushall()

    app.tasks[LAUNCH](*message.payload[0])

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
    for message in received(app):
        _, _, embedded = message.payload
        request = Context({**message.headers, "chord": embedded["chord"]})
        app.backend.mark_as_done(request.id, 1, request=request)


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


# The launch of a canvas in a worker: its messages, and the state of a launch that fails.


@pytest.fixture
def launch(app, delayq, redis):
    """Run a due launch as a worker does; return the messages of its parts."""

    def run(redelivered=False):
        delayq.hand_over()
        [(key, [raw])] = lists(redis).items()
        redis.delete(key)
        run_message(app, raw, redelivered)
        return sent(redis)

    return run


def run_message(app, raw, redelivered=False):
    message = json.loads(raw)
    with app.connection_for_read() as connection:
        received = connection.default_channel.Message(
            {**message, "properties": {**message["properties"], "delivery_tag": "t"}},
            channel=connection.default_channel,
        )
        args, _, _ = received.decode()
    info = {**message["properties"]["delivery_info"], "redelivered": redelivered}
    request = {**message["headers"], "delivery_info": info, "reply_to": ""}
    build_tracer(LAUNCH, app.tasks[LAUNCH], app=app)(request["id"], args, {}, request)


def sent(redis):
    """Part of the sent messages by queue."""
    return {
        key.decode(): [json.loads(one)["headers"] for one in found]
        for key, found in lists(redis).items()
    }


def test_sent_parts_are_not_sent_again_when_the_rest_of_the_canvas_is(add, delayq, redis, launch):
    parts = [add.s(1).set(queue=name) for name in ("one", "blocked", "three")]
    result = group(parts).delay_until(LONG_AGO)
    redis.set("blocked", "no list")

    assert [*launch()] == ["one"]
    task = delayq.get(result.id)
    assert (task.state, task.put_offs, task.is_canvas) == (State.SCHEDULED, 1, True)
    assert task.error.startswith("cannot launch, broker: ")
    assert "WRONGTYPE" in task.error
    assert delayq.counts().refused == 1

    redis.delete("blocked", "one")
    assert delayq.run_now(result)
    found = launch()
    assert {queue: len(messages) for queue, messages in found.items()} == {"blocked": 1, "three": 1}
    # The first of them may have been sent before it failed.
    marks = [found[queue][0].get("delayq_redelivered") for queue in ("blocked", "three")]
    assert marks == [True, None]
    assert delayq.get(result.id) is None


@pytest.mark.parametrize("away", ["result backend", "store"])
def test_a_launch_sends_nothing_while_another_server_fails(add, delayq, redis, launch, away):
    """It comes again, perhaps often, and each time would send the parts before the failed step."""
    if away == "store":  # here it refuses
        delayq.schedule(add.s(0), at=FAR, key="k")
        last = add.s(2).set(delayq_after=60, delayq_key="k")
        result = group(add.s(1), last).delay_until(LONG_AGO)
    else:
        result = chord([add.s(1), add.s(2)], add.si(3)).delay_until(LONG_AGO)
        set_size = delayq.app.backend.set_chord_size
        object.__setattr__(set_size, "method", Mock(side_effect=ConnectionError("away")))

    assert launch() == {}
    assert delayq.get(result.id).error.startswith(f"cannot launch, {away}: ")


def halves(add):
    """A group whose second half cannot be sent while the test blocks its queue."""
    return group(add.s(1).set(queue="one"), add.s(2).set(queue="blocked"))


def test_a_launch_that_fails_for_a_day_is_dead_and_a_retry_begins_another_day(
    add, delayq, redis, launch, monkeypatch
):
    result = halves(add).delay_until(LONG_AGO)
    redis.set("blocked", "no list")
    launch()
    first_try = delayq.get(result.id).next_try
    later = datetime.now(timezone.utc) + timedelta(hours=25)
    monkeypatch.setattr(clock, "utc_now", lambda: later)

    redis.delete("one")
    assert delayq.run_now(result)
    launch()
    task = delayq.get(result.id)
    assert (task.state, task.reason) == (State.DEAD, task.error)
    assert "WRONGTYPE" in task.reason
    # A caller that waits for the part that was not sent gets the reason.
    assert [part.state for part in result.results] == ["PENDING", "FAILURE"]

    assert delayq.retry(result)
    launch()
    assert delayq.get(result.id).state is State.SCHEDULED
    assert delayq.get(result.id).next_try >= first_try


def test_a_launch_whose_error_no_try_can_mend_is_dead_at_once(add, delayq, redis, launch):
    """Here a part with a delay of its own has a key that another task has."""
    other = delayq.schedule(add.s(0), at=FAR, key="k")
    waits = add.s(2).set(delayq_after=60, delayq_key="k")
    result = group(add.s(1), waits).delay_until(LONG_AGO)

    launch()

    task = delayq.get(result.id)
    assert task.state is State.DEAD
    assert task.reason.startswith("cannot launch, store: AlreadyScheduled: ")
    assert [part.state for part in result.results] == ["FAILURE", "FAILURE"]
    other.cancel()
    assert delayq.retry(result)
    launch()
    assert delayq.get(key="k").id == result.results[1].id


def test_a_launch_that_waits_already_is_not_run_when_its_message_comes_again(
    add, delayq, redis, launch
):
    result = halves(add).delay_until(LONG_AGO)
    redis.set("blocked", "no list")
    delayq.hand_over()
    [raw] = redis.lrange("one", 0, -1)
    launch()
    redis.delete("one", "blocked")
    redis.lpush("one", raw)

    assert launch(redelivered=True) == {}
    assert delayq.get(result.id).next_try


def test_a_launch_that_fails_before_its_scanner_has_acknowledged_it_waits_for_that(
    delayq_app, redis, redis_server, monkeypatch
):
    app = delayq_app(redis_server.url(2), redis_server.url(1), delayq_url=redis_server.url())
    add = app.signature("add")
    result = group(add.clone().set(queue="blocked"), add).delay_until(LONG_AGO)
    with redis_server.client(db=2) as broker, claimed(app.delayq) as (shard_steps, [entry]):
        broker.set("blocked", "no list")
        monkeypatch.setattr(clock, "sleep", lambda _: shard_steps.ack([entry]))

        run_message(app, entry.message, redelivered=True)

    assert app.delayq.get(result.id).next_try
    assert app.delayq.counts().in_flight == 0


@contextlib.contextmanager
def claimed(delayq):
    for shard_steps in delayq.services.steps_by_shard():
        with contextlib.closing(shard_steps):
            if entries := shard_steps.claim(10).entries:
                yield shard_steps, entries


@pytest.mark.parametrize("by", ["its broker", "a relay"])
def test_parts_of_a_launch_that_is_delivered_again_are_marked_so_that_workers_can_drop_them(
    add, delayq, redis, launch, by
):
    group(add.s(1), add.s(2)).delay_until(LONG_AGO)
    delayq.hand_over()
    [raw] = redis.lrange("celery", 0, -1)
    first = launch()["celery"]
    redis.delete("celery")
    marked = raw.replace(b'"delayq_due"', b'"delayq_redelivered": true, "delayq_due"')
    redis.lpush("celery", marked if by == "a relay" else raw)

    second = launch(redelivered=by == "its broker")["celery"]

    for name in ("id", "delayq_hand_over"):
        assert [one[name] for one in first] == [one[name] for one in second]
    assert [one.get("delayq_redelivered") for one in (*first, *second)] == [None, None, True, True]
    # An attempt of another number is a copy.
    attempts = [{one["delayq_attempt"] for one in sent} for sent in (first, second)]
    assert attempts[0].isdisjoint(attempts[1])


def test_a_part_with_a_delay_of_its_own_waits_from_the_launch_on(add, delayq, launch, redis):
    add.app.conf.timezone = "Asia/Tokyo"
    far = datetime.fromtimestamp(FAR, timezone.utc)
    parts = [
        add.s(1).set(countdown=60),
        add.s(2).set(delayq_after=60, delayq_tags=["x"]),
        add.s(3).set(expires=60),
        add.s(4).set(eta=far, expires=far),
        add.s(5).set(eta=far.replace(tzinfo=None), expires=far.replace(tzinfo=None)),
    ]
    result = group(parts).delay_until(FAR)
    result.reschedule(LONG_AGO)

    before = datetime.now(timezone.utc)
    found = launch()["celery"]

    by_id = {one["id"]: one for one in found}
    counted, _, expiring, *absolute = (by_id.get(part.id) for part in result.results)
    assert before <= datetime.fromisoformat(counted["eta"]) - timedelta(seconds=60)
    assert datetime.fromisoformat(expiring["expires"]).timestamp() == LONG_AGO + 60
    # The time that a broker has for it, as Celery says it: here it is over.
    assert expirations(redis)[expiring["id"]] == "0"
    assert [clock.celery_time(one["eta"]) for one in absolute] == [far, far]
    assert [clock.celery_time(one["expires"]) for one in absolute] == [far, far]
    [waiting] = delayq.tasks()
    assert (waiting.id, waiting.tags) == (result.results[1].id, ("x",))
    assert before <= waiting.due - timedelta(seconds=60)


def expirations(redis):
    sent = [json.loads(one)["properties"] for one in lists(redis)[b"celery"]]
    return {one["correlation_id"]: one["expiration"] for one in sent if "expiration" in one}


def test_a_canvas_that_begins_with_a_broadcast_is_launched_by_one_worker(add, delayq):
    everywhere = Queue("everywhere", Exchange("everywhere", type="fanout"))

    result = chain(add.s(1).set(queue=everywhere), add.s(2)).delay_until(FAR)

    assert delayq.get(result.id).queue == "celery"


def test_parts_of_another_app_are_sent_by_the_app_that_schedules_the_canvas(make_app, add, launch):
    other = make_app("memory://").task(name="other")(noop)
    canvas = group(add.s(1), other.s())
    canvas._app = add.app

    canvas.delay_until(LONG_AGO)

    assert [one["task"] for one in launch()["celery"]] == ["add", "other"]


def test_signals_of_publishing_are_sent_by_the_caller_once_for_each_message(add, launch, listen):
    heard = []
    listen(before_task_publish, lambda sender, **_: heard.append(sender))

    result = group(add.s(1), add.s(2) | add.s(3)).delay_until(LONG_AGO)
    assert [one for one in heard if one != LAUNCH] == ["add", "add"]
    heard.clear()
    assert len(launch()["celery"]) == 2
    assert heard == []
    assert len(result) == 2


def test_the_result_backend_hears_of_a_chord_when_it_is_launched(add, redis_server, launch):
    chord([add.s(1), add.s(2)], add.si(3)).delay_until(LONG_AGO)

    with redis_server.client(db=1) as results:
        assert results.keys() == []
        launch()
        [size] = results.keys()
        assert results.get(size) == b"2"


def test_a_launch_that_is_tried_again_sets_the_size_of_its_chord_again(
    add, delayq, redis, redis_server, launch
):
    """The result backend forgets it after a day, and a dead launch may be retried much later."""
    header = [add.s(one).set(queue=name) for one, name in enumerate(("one", "blocked", "three"))]
    result = chord(header, add.si(3)).delay_until(LONG_AGO)
    redis.set("blocked", "no list")
    with redis_server.client(db=1) as results:
        launch()
        redis.delete("one", "blocked")
        results.flushdb()

        assert delayq.run_now(result)
        found = launch()

        [size] = results.keys("*.s")
        assert results.get(size) == b"3"
    marks = [found[queue][0].get("delayq_redelivered") for queue in ("blocked", "three")]
    assert marks == [True, None]


def test_the_body_of_a_chord_is_read_only_by_a_serializer_that_the_app_accepts(
    app, add, delayq, launch
):
    """Otherwise, a program that can write to the broker could make a worker load a pickle."""
    header = [add.s(one).set(serializer="pickle") for one in (1, 2)]
    result = chord(header, add.si(3)).delay_until(LONG_AGO)
    app.conf.accept_content = ["json"]

    launch()

    task = delayq.get(result.id)
    assert task.state is State.DEAD
    assert "ContentDisallowed" in task.reason


def test_without_a_result_backend_a_chord_is_refused_as_celery_refuses_it(delayq_app, url, redis):
    add = delayq_app(url).signature("add")
    canvas = chord([add, add], add)

    with pytest.raises(NotImplementedError) as plain:
        canvas.apply_async()
    with pytest.raises(NotImplementedError, match=re.escape(str(plain.value))):
        canvas.delay_for(60)

    assert redis.keys() == []


def test_a_message_that_apply_async_sends_beside_a_part_is_sent_at_once(app, delayq, redis):
    class Audited(app.Task):
        def apply_async(self, *args, **options):
            app.send_task("audit")
            return super().apply_async(*args, **options)

    task = app.task(name="t", base=Audited)(noop)
    group(task.s(), task.s()).delay_until(FAR)

    assert [one["task"] for one in sent(redis)["celery"]] == ["audit", "audit"]
    assert delayq.counts().scheduled == 1


def test_a_chord_that_a_part_s_apply_async_applies_is_registered_at_once(app, add, redis_server):
    class Auditing(app.Task):
        def apply_async(self, *args, **options):
            chord([add.s(1), add.s(2), add.s(3)], add.si(0)).apply_async()
            return super().apply_async(*args, **options)

    task = app.task(name="t", base=Auditing)(noop)
    chord([task.s(), add.s(4)], add.si(5)).delay_until(FAR)

    with redis_server.client(db=1) as results:
        [size] = results.keys()
        assert results.get(size) == b"3"


def test_a_part_whose_apply_async_drops_options_is_reported_as_sent(app, delayq):
    class Dropping(app.Task):
        def apply_async(self, args=None, kwargs=None, task_id=None, **_):
            return super().apply_async(args, kwargs, task_id=task_id)

    task = app.task(name="t", base=Dropping)(noop)

    with pytest.raises(NotScheduled):
        group(task.s(), task.s()).delay_until(FAR)
    assert delayq.counts().scheduled == 0


@pytest.mark.parametrize("empty", [chain, lambda: group([]), lambda: chain(group([]))])
def test_an_empty_canvas_gives_what_celery_gives_and_schedules_nothing(delayq, empty):
    plain, result = empty().apply_async(), empty().delay_until(FAR)

    assert (result and list(result)) == (plain and list(plain))
    assert delayq.counts().scheduled == 0


def test_a_chord_with_an_empty_header_is_its_body(add, delayq, launch):
    result = chord([], add.si(1)).delay_until(LONG_AGO)

    assert [one["id"] for one in launch()["celery"]] == [result.id]


def test_a_canvas_that_gives_way_leaves_no_child_of_the_running_task(app, add, delayq):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")

    @app.task(name="parent", bind=True)
    def parent(self):
        delayq.schedule(group(add.s(2), add.s(3)), at=FAR, key="k", conflict="keep")
        with pytest.raises(AlreadyScheduled):
            delayq.schedule(add.s(2) | add.s(3), at=FAR, key="k")
        return [child.id for child in self.request.children]

    assert build_tracer("parent", parent, app=app)("p", (), {}, {"id": "p"}).retval == [holder.id]


# A part of a chord that waits longer than the result backend keeps the chord is warned of.


DAY = 86400
OF_CHORDS = "result_chord_expires" if "result_chord_expires" in DEFAULTS else "result_expires"
WARNING = re.compile(
    r"task \S+: waits for (\d+) s, but the result backend keeps its chord for (\d+) s, so the "
    r"chord's body may never run; set (\w+) to at least (\d+), plus the time that the task runs"
)


class Database(BaseBackend):
    """Looks at the results of a chord's parts, and keeps a timedelta, as Celery's for databases."""

    def __init__(self, **options):
        super().__init__(expires_type=maybe_timedelta, **options)


@pytest.fixture
def told(caplog):
    """The warnings: each has the wait, the time that the backend keeps, a setting and its value."""

    def told():
        lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        found = [WARNING.fullmatch(line) for line in lines]
        assert all(found), lines
        return [(int(one[1]), int(one[2]), one[3], int(one[4])) for one in found]

    return told


def waiting(add, **options):
    return add.s(2).set(**(options or {"delayq_after": 2 * DAY}))


def apply(add, *parts):
    return chord([add.s(1), *parts])(add.si(3))


def part(app, name="add"):
    """A part that is sent by itself."""
    return app.signature(name, (1,), chord=app.signature("body"), group_id="g")


def run_part(task):
    """Run a task as a part of a chord, as a worker does."""
    request = {"id": "a", "group": "g", "chord": dict(task.app.signature("body"))}
    build_tracer(task.name, task, app=task.app)("a", (), {}, request)


def retry(add):
    @add.app.task(name="t", bind=True)
    def task(self):
        raise self.retry(countdown=2 * DAY)

    add.app.conf.delayq_capture_eta = True
    run_part(task)


def defer(add):
    @add.app.task(name="t", bind=True)
    def task(self):
        raise self.defer(after=2 * DAY)

    run_part(task)


def captured(add):
    add.app.conf.delayq_capture_eta = True
    apply(add, waiting(add, countdown=2 * DAY))


def held(add, **options):
    chord([add.s(1), waiting(add, **options)], add.si(3)).delay_until(FAR)


WAITS = {
    "an option": lambda add: apply(add, waiting(add)),
    "delay_for": lambda add: part(add.app).delay_for(2 * DAY),
    "schedule_many": lambda add: add.app.delayq.schedule_many(
        part(add.app), [((), {"y": number}) for number in range(9)], after=2 * DAY
    ),
    "captured": captured,
    "retry": retry,
    "defer": defer,
    "of a group": lambda add: apply(add, group(add.s(2), waiting(add))),
    "of a chain": lambda add: apply(add, waiting(add) | add.s(3)),
    "before a chord": lambda add: apply(
        add, chain(waiting(add), chord([add.s(3), add.s(4)], add.si(5)))
    ),
    "of a held chord": held,
    "of a held chord, by Celery": lambda add: held(add, countdown=2 * DAY),
    "of a held chord, until a time": lambda add: held(add, delayq_at=FAR + 2 * DAY),
}


@pytest.mark.parametrize("way", WAITS)
def test_a_part_that_waits_too_long_causes_one_warning_at_its_call(add, told, way):
    WAITS[way](add)

    [(waits, keeps, setting, least)] = told()
    assert (keeps, setting) == (DAY, OF_CHORDS)
    assert DAY < waits <= 2 * DAY  # an eta comes nearer while Celery makes its message
    assert least - waits in (0, 1)


def test_the_least_value_of_the_warning_keeps_the_chord_s_counter_for_longer_than_the_wait(
    add, told, delayq_app, redis_server
):
    with redis_server.client(db=1) as results:
        apply(add, waiting(add))
        [(waits, _, setting, least)] = told()
        [short] = results.keys("*.s")
        assert results.pttl(short) < 1000 * waits

        app = delayq_app(redis_server.url(), redis_server.url(1), **{setting: least})
        before = now_ms(results)
        apply(app.task(name="add")(noop), waiting(add))
        [long] = {*results.keys("*.s")} - {short}
        assert now_ms(results) + results.pttl(long) > before + 1000 * waits
    assert len(told()) == 1


def now_ms(client):
    seconds, us = client.time()
    return 1000 * seconds + us // 1000


BACKENDS = {"cache+memory://": OF_CHORDS, f"{__name__}:Database": "result_expires"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_setting_is_the_one_that_the_backend_reads(delayq_app, url, told, backend):
    long, short = timedelta(days=9), timedelta(hours=1)
    both = {"result_expires": long, "result_chord_expires": long}
    app = delayq_app(url, backend, **{**both, BACKENDS[backend]: short})

    part(app).delay_for(DAY)

    assert told() == [(DAY, 3600, BACKENDS[backend], DAY + 1)]


def test_each_task_is_warned_of_once_and_again_if_it_waits_longer(app, add, told):
    apply(add, *(waiting(add) for _ in range(3)))
    part(app, "other").delay_for(2 * DAY)
    part(add.app).delay_for(1.5 * DAY)
    part(add.app).delay_for(3 * DAY)

    assert [waits for waits, *_ in told()] == [2 * DAY, 2 * DAY, 3 * DAY]


QUIET = {
    "a short wait": lambda add: part(add.app).delay_for(DAY - 1),
    "a group": lambda add: group(add.s(1), waiting(add)).apply_async(),
    "a chain": lambda add: chain(add.s(1), waiting(add)).apply_async(),
    "a chain before a chord": lambda add: chain(
        waiting(add), chord([add.s(1), add.s(2)], add.si(3))
    ).apply_async(),
    "the body": lambda add: chord([add.s(1), add.s(2)])(waiting(add)),
    "a whole chord": lambda add: chord([add.s(1), add.s(2)], add.si(3)).delay_for(2 * DAY),
}


@pytest.mark.parametrize("wait", QUIET)
def test_a_task_whose_wait_no_chord_has_to_outlast_is_not_warned_of(add, told, wait):
    QUIET[wait](add)

    assert told() == []


@pytest.mark.parametrize(
    ("backend", "expires"),
    [("disabled://", DAY), ("cache+memory://", None), ("cache+memory://", 0)],
)
def test_without_results_or_their_expiry_no_part_is_warned_of(
    delayq_app, url, told, backend, expires
):
    app = delayq_app(url, backend, result_expires=expires)

    assert part(app).delay_for(2 * DAY)
    assert told() == []

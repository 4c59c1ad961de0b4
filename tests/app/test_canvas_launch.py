"""The launch of a canvas in a worker: its messages, and the state of a launch that fails."""

import contextlib
import json
import re
from datetime import datetime, timedelta, timezone
from unittest.mock import Mock

import pytest
from celery import chain, chord, group
from celery.app.trace import build_tracer
from celery.signals import before_task_publish
from kombu import Exchange, Queue

from celery_delayq import State
from celery_delayq.core import clock
from celery_delayq.core.message.headers import LAUNCH
from celery_delayq.errors import AlreadyScheduled, NotScheduled
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, lists, noop

__all__ = ["app"]

pytestmark = pytest.mark.libraries


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

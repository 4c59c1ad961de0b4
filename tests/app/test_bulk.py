"""`schedule_many`: the outcome of each item, in order, independent of the other items."""

import gc
import threading
import tracemalloc
import weakref
from datetime import datetime, timedelta, timezone

import pytest
from celery import Task, chain, chord, group
from celery.exceptions import QueueNotFound, SoftTimeLimitExceeded
from kombu.exceptions import SerializerNotInstalled

from celery_delayq import AlreadyScheduled, InvalidDueTime, Item
from celery_delayq.errors import (
    InvalidOption,
    InvalidSetting,
    ItemsRefused,
    NotATask,
    NotScheduled,
)
from tests.app.bulk import numbered, plain_task
from tests.app.support import FAR, LONG_AGO, templates
from tests.support.network import CUT
from tests.support.shards import total, with_one_shard
from tests.support.waiting import interrupt

pytestmark = [pytest.mark.operations, pytest.mark.libraries]


def test_each_item_is_scheduled_and_its_id_stands_in_its_place(remind, delayq, caplog):
    bulk = delayq.schedule_many(remind, numbered(450), at=FAR)

    assert [delayq.get(task_id).args for task_id in bulk.ids] == [(n,) for n in range(450)]
    assert (bulk.scheduled, bulk.refused) == (450, {})
    assert len(set(bulk.ids)) == delayq.counts().scheduled == 450
    assert repr(bulk) == "<Bulk: 450 scheduled, 0 refused>"
    assert bulk
    assert bulk.raise_for_refused() is None
    assert caplog.messages == []


def test_items_for_a_list_and_for_the_relay_stand_in_one_bulk(delayq_app, url, redis):
    def route(name, args, kwargs, options, task=None):
        return {"exchange": "x", "routing_key": "k"} if args[0] % 2 else {"queue": "mail"}

    app = delayq_app(url, task_routes=(route,))

    bulk = app.delayq.schedule_many(plain_task(app), numbered(10), at=LONG_AGO)

    assert bulk.scheduled == 10
    assert (total(redis.zcard, "due"), total(redis.zcard, "relay")) == (5, 5)


@with_one_shard
def test_all_items_but_the_first_and_the_large_ones_share_a_template(remind, delayq, redis):
    large = (("x" * 3000,), {})

    delayq.schedule_many(remind, [*numbered(300), large, large], at=FAR)

    assert templates(redis) == (1, 299)


def test_the_signature_stays_as_it_was(remind, delayq):
    signature = remind.s(1, y={}).set(queue="mail", headers={"a": [1]})
    before = repr(dict(signature))

    delayq.schedule_many(signature, [((), {"x": 3})], at=FAR)

    assert repr(dict(signature)) == before


def test_naive_times_are_in_the_zone_of_the_called_delayq_s_app(delayq_app, redis_server, redis):
    here, there = (
        delayq_app(redis_server.url(), timezone="Asia/Tokyo"),
        delayq_app(redis_server.url(7)),
    )
    noon = datetime(2100, 1, 1, 12)  # noqa: DTZ001

    bulk = here.delayq.schedule_many(
        plain_task(there), [((1,), {}), ((1,), {}, noon), ((1,), {}, noon.isoformat())], at=noon
    )

    due = {here.delayq.get(task_id).due for task_id in bulk.ids}
    assert due == {datetime(2100, 1, 1, 3, tzinfo=timezone.utc)}
    assert there.delayq.counts().scheduled == 0


# Items that are refused.
# tests/unit tries many more; here, one of each kind.
BAD = {
    "no pair": (((1,),), InvalidOption, "(args, kwargs), such as ((1,), {})"),
    "too long": (((1,), {}, None, "x", "key"), InvalidOption, "(args, kwargs), such as ((1,), {})"),
    "no sequence": (5, InvalidOption, "item is 5; expected (args, kwargs), such as"),
    "text": ("ab", InvalidOption, "item is 'ab'; expected"),
    "args are text": (("ab", {}), InvalidOption, "expected (args, kwargs)"),
    "kwargs are a list": (((1,), []), InvalidOption, "expected (args, kwargs)"),
    "time is no time": (((1,), {}, "soon"), InvalidDueTime, "'soon' is not a due time"),
    "delay is too long": (((1,), {}, timedelta(days=84_000)), InvalidDueTime, "2255-06-05"),
    "id is no text": (((1,), {}, None, 5), InvalidOption, "task_id is 5; expected text of 1"),
    "key is none": (Item((1,), {}, key=5), InvalidOption, "delayq_key is 5; expected text of"),
    "id is held": (((1,), {}, None, "held"), AlreadyScheduled, "'held' is already scheduled"),
}


@pytest.mark.parametrize(("name", "place"), [(name, n % 3) for n, name in enumerate(BAD)])
def test_a_bad_item_is_refused_and_spoils_no_other(remind, delayq, name, place):
    item, error, words = BAD[name]
    delayq.schedule(remind.s("first").set(task_id="held"), at=FAR)
    items = [*numbered(3)]
    items.insert(place, item)

    bulk = delayq.schedule_many(remind, items, at=FAR)

    assert bulk.refused.keys() == {place}
    assert isinstance(bulk.refused[place], error)
    assert words in str(bulk.refused[place])
    assert (bulk.ids.pop(place), bulk.scheduled) == (None, 2)
    assert [delayq.get(task_id).args for task_id in bulk.ids] == [(0,), (1,), (2,)]
    assert delayq.get("held").args == ("first",)


def test_a_refused_item_keeps_no_argument_alive(remind, delayq):
    class Unpicklable:
        """No serializer takes it."""

    def items():
        for _ in range(3):
            wrong = Unpicklable()
            seen.append(weakref.ref(wrong))
            yield (wrong,), {}

    seen = []

    bulk = delayq.schedule_many(remind, items(), at=FAR)

    gc.collect()
    assert len(bulk.refused) == 3
    assert [wrong() for wrong in seen] == [None] * 3


@pytest.mark.parametrize(
    "item",
    [
        ((object(),), {}),
        ((1, 2, 3), {}),
        ((1,), {}, "soon"),
        ((1,), {}, None, ""),
        ((1,), {}, None, "held"),
        (("x" * 2_000_000,), {}),
    ],
    ids=["no JSON", "too many arguments", "no time", "no id", "id is held", "too large"],
)
def test_a_call_does_not_fail_if_each_item_is_wrong_by_itself(remind, delayq, item):
    delayq.schedule(remind.s().set(task_id="held"), at=FAR)

    bulk = delayq.schedule_many(remind, [item, item], at=FAR)

    assert (bulk.scheduled, [*bulk.refused]) == (0, [0, 1])


def test_a_bulk_with_refused_items_is_false_and_tells_them_in_one_error_and_one_log_line(
    remind, delayq, caplog
):
    items = [*numbered(210), (("s3cret",), {}, "soon"), ((2,), {}, None, 5)]

    bulk = delayq.schedule_many(remind, items, at=FAR)

    with pytest.raises(ItemsRefused) as caught:
        bulk.raise_for_refused()
    error = caught.value
    assert str(error).startswith(
        "2 of 212 items were refused; the first is number 210: 'soon' is not a due time; expected "
    )
    assert error.so_far is bulk
    assert error.__cause__ is bulk.refused[210]
    assert delayq.counts().scheduled == 210
    assert not bulk
    [line] = caplog.messages
    assert line == (
        f"2 of 212 items of a bulk of {remind.name} were refused; the first is number 210, with "
        "InvalidDueTime"
    )


# Calls that are refused.

NO_TASKS = {
    "a chain": lambda task: chain(task.s(1), task.s(2)),
    "a group": lambda task: group(task.s(1), task.s(2)),
    "a chord": lambda task: chord([task.s(1)], task.s(2)),
    "chunks": lambda task: task.chunks([(1,), (2,)], 1),
    "a name": lambda _: "add",
    "a number": lambda _: 5,
    "none": lambda _: None,
    "a function": lambda _: print,
}


@pytest.mark.parametrize("kind", NO_TASKS)
def test_a_canvas_and_a_value_that_is_not_a_task_are_refused(remind, delayq, redis, kind):
    what = NO_TASKS[kind](remind)
    expected = "a plain task; schedule takes a canvas" if isinstance(what, dict) else "a signature"

    with pytest.raises(NotATask, match=f"expected {expected}"):
        delayq.schedule_many(what, numbered(3), at=FAR)
    assert redis.keys() == []


SHAPES = {
    "forgotten time": ([((1,), {})] * 2, {}, "time is None; expected at, after or spread; or a "),
    "bare arguments": ([(1,), (2,)], {"at": FAR}, "item is (1,); expected (args, kwargs), such as"),
    "both": ([((1,), {}), (2,)], {}, "time is None"),
    "text": ("ab", {"at": FAR}, "item is 'a'; expected (args, kwargs)"),
    "mappings": ([{"x": 1}] * 450, {"at": FAR}, "item is {'x': 1}; expected"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_call_of_which_every_item_has_a_wrong_shape_is_refused(remind, delayq, redis, name):
    items, options, words = SHAPES[name]

    with pytest.raises(InvalidOption) as caught:
        delayq.schedule_many(remind, items, **options)

    assert str(caught.value).startswith(words)
    assert redis.keys() == []


def test_items_that_are_none_are_the_call_s_error(remind, delayq, redis):
    with pytest.raises(TypeError):
        delayq.schedule_many(remind, None, at=FAR)
    assert redis.keys() == []


WRONG = {
    "serializer": ({"serializer": "nope"}, SerializerNotInstalled, "No encoder installed for nope"),
    "option of ours": ({"delayq_nope": 1}, InvalidOption, "delayq_nope is 1; expected no such"),
    "value of ours": ({"delayq_once": "x"}, InvalidOption, "delayq_once is 'x'; expected true or"),
    "two times": ({"delayq_after": 5}, InvalidOption, "expected only one of delayq_at and delayq_"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_option_for_all_that_none_can_have_is_raised_as_by_a_single_call(
    remind, delayq, redis, name
):
    options, error, words = WRONG[name]

    with pytest.raises(error, match=words) as caught:
        delayq.schedule_many(remind.s().set(**options), numbered(450), at=FAR)

    assert (caught.value.so_far.scheduled, len(caught.value.so_far.refused)) == (0, 450)
    assert redis.keys() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task_id": "a"}, "task_id is 'a'; expected an id in each item"),
        ({"delayq_tags": "x"}, "delayq_tags is 'x'; expected a list of tags, like ['x']"),
    ],
    ids=["id", "tags"],
)
def test_an_id_for_all_and_wrong_tags_are_refused_before_an_item_is_asked_for(
    remind, delayq, redis, options, words
):
    items = numbered(3)

    with pytest.raises(InvalidOption) as caught:
        delayq.schedule_many(remind.s().set(**options), items, at=FAR)

    assert str(caught.value) == words
    assert len([*items]) == 3
    assert redis.keys() == []


@pytest.mark.parametrize(
    ("conf", "error"),
    [
        ({"delayq_batch_size": 0}, InvalidSetting),
        ({"task_create_missing_queues": False}, QueueNotFound),
    ],
    ids=["setting", "queue"],
)
def test_a_wrong_setting_and_a_missing_queue_are_the_call_s_and_no_item_s(
    delayq_app, url, conf, error
):
    app = delayq_app(url, **conf)

    with pytest.raises(error):
        app.delayq.schedule_many(plain_task(app).s().set(queue="nope"), numbered(3), at=FAR)


def test_an_apply_async_that_drops_options_sends_one_task_and_no_more(app, delayq, redis):
    class Drops(Task):
        def apply_async(self, args=None, kwargs=None, **options):
            return super().apply_async(args, kwargs)

    with pytest.raises(NotScheduled) as caught:
        delayq.schedule_many(plain_task(app, base=Drops), numbered(3), at=FAR)

    assert caught.value.so_far.ids == []
    assert redis.llen("celery") == 1


# Slices: a bulk is read, held and forgotten slice by slice, so that it may be of any length.


@pytest.mark.parametrize("count", [0, 450], ids=["no items", "refused items"])
def test_no_items_and_items_that_are_all_refused_are_no_step_at_all(delayq_app, hanging_up, count):
    app = delayq_app(f"redis://127.0.0.1:{hanging_up.port}/0")

    items = iter([((), {}, "soon")] * count)
    bulk = app.delayq.schedule_many(plain_task(app), items, at=FAR)

    assert (bulk.ids, [*bulk.refused]) == ([None] * count, [*range(count)])
    assert (bulk.scheduled, bool(bulk)) == (0, count == 0)
    assert hanging_up.connections == 0


def test_a_slice_is_scheduled_and_progress_is_given_the_bulk_before_the_next_one_is_read(
    remind, delayq, redis
):
    told, given, held_when_read = [], [], []

    def items():
        for item in [*numbered(210), *[None] * 210, *numbered(30)]:
            held_when_read.append(total(redis.hlen, "records"))
            yield item

    def progress(bulk):
        told.append((len(bulk.ids), bulk.scheduled, delayq.counts().scheduled))
        given.append(bulk)

    bulk = delayq.schedule_many(remind, items(), at=FAR, progress=progress)
    delayq.schedule_many(remind, [], at=FAR, progress=progress)

    assert told == [(200, 200, 200), (400, 210, 210), (450, 240, 240)]
    assert [one is bulk for one in given] == [True] * 3
    assert held_when_read == [0] * 200 + [200] * 200 + [210] * 50


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("items", ValueError),
        ("items", AlreadyScheduled),
        ("items", GeneratorExit),
        ("progress", SystemExit),
        ("progress", SoftTimeLimitExceeded),
        ("the call of Redis", KeyboardInterrupt),
    ],
)
def test_an_error_that_ends_a_bulk_carries_its_results_so_far(
    between, remind, delayq, error, where
):
    def items():
        yield from numbered(250)
        yield None
        yield from numbered(249)
        if where == "items":
            raise error("enough")
        yield from numbered(200)

    def progress(so_far):
        if where == "progress" and len(so_far.ids) == 400:
            raise error

    def stop():
        if where == "the call of Redis" and between.asked["schedule"] == 3:
            interrupt(threading.main_thread(), error)
            return CUT
        return None

    between.before("schedule", stop)

    with pytest.raises(error) as caught:
        delayq.schedule_many(remind, items(), at=FAR, progress=progress)

    so_far = caught.value.so_far
    assert (len(so_far.ids), [*so_far.refused], so_far.scheduled) == (400, [250], 399)
    assert delayq.counts().scheduled == 399


def test_a_time_limit_that_strikes_while_a_message_is_made_ends_the_bulk(app, delayq):
    class Struck(Task):
        def apply_async(self, args=None, kwargs=None, **options):
            raise SoftTimeLimitExceeded

    with pytest.raises(SoftTimeLimitExceeded):
        delayq.schedule_many(plain_task(app, base=Struck), numbered(3), at=FAR)


def test_large_messages_are_scheduled_in_smaller_slices(remind, delayq):
    delayq.app.conf.delayq_max_message = 2_000_000
    told = []
    megabyte, small, tenth = (((what,), {}) for what in ("x" * 1_000_000, 1, "y" * 100_000))

    delayq.schedule_many(
        remind,
        [megabyte, megabyte, small, small, megabyte, *[tenth] * 7],
        at=FAR,
        progress=lambda bulk: told.append(bulk.scheduled),
    )

    # In base64, 100,000 bytes are 133,000: three of them are a slice.
    assert told == [1, 2, 4, 5, 8, 11, 12]
    assert delayq.counts().scheduled == 12


def test_a_bulk_keeps_its_ids_and_nothing_else(remind, delayq):
    delayq.schedule_many(remind, numbered(1000), at=FAR)
    tracemalloc.start()
    try:
        bulk = delayq.schedule_many(remind, numbered(5000), at=FAR)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # A text of 36 characters and a place in a list take some 93 bytes; a scheduled task, 1,500.
    assert bulk.scheduled == 5000
    assert kept < 5000 * 120
    assert peak - kept < 2_000_000


# Eager.


def test_with_eager_tasks_each_item_runs_and_nothing_is_scheduled(delayq_app, url, redis):
    eager = delayq_app(url, task_always_eager=True)
    seen, progress = [], []

    @eager.task(name="note")
    def note(x, y=0):
        seen.append((x, y))
        if x == 1:
            raise KeyError

    bulk = eager.delayq.schedule_many(
        note,
        [((0,), {}), ((1,), {}), ((), {}), ((2,), {"y": 3}, None, "mine"), *numbered(300)],
        after=60,
        progress=lambda bulk: progress.append(bulk.scheduled),
    )

    assert seen[:3] == [(0, 0), (1, 0), (2, 3)]
    assert bulk.ids[3] == "mine"
    assert {place: type(error) for place, error in bulk.refused.items()} == {2: TypeError}
    assert progress == [199, 303]
    assert redis.keys() == []


def test_an_eager_task_s_error_that_propagates_is_its_item_s(delayq_app, url):
    app = delayq_app(url, task_always_eager=True, task_eager_propagates=True)

    @app.task(name="divide")
    def divide(x):
        return 1 / x

    bulk = app.delayq.schedule_many(divide, numbered(3), at=FAR)

    assert {place: type(error) for place, error in bulk.refused.items()} == {0: ZeroDivisionError}


def test_eager_tasks_need_no_store_and_none_of_them_existed(delayq_app):
    app = delayq_app("amqp://127.0.0.1:1//", task_always_eager=True)
    items = [Item((number,), {}, key="k", conflict="keep") for number in range(3)]

    bulk = app.delayq.schedule_many(plain_task(app), items, at=FAR)

    assert (bulk.scheduled, bulk.existed) == (3, set())

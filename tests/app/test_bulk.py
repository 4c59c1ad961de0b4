"""`schedule_many`: the outcome of each item, in order, independent of the other items."""

import gc
import weakref
from datetime import datetime, timedelta, timezone

import pytest
from celery import Task, chain, chord, group
from celery.exceptions import SoftTimeLimitExceeded

from celery_delayq import AlreadyScheduled, InvalidDueTime, Item
from celery_delayq.errors import InvalidOption, InvalidSetting, NotATask, NotScheduled
from tests.app.bulk import plain_task
from tests.app.support import FAR, LONG_AGO, lists, templates
from tests.support.shards import total, with_one_shard

pytestmark = [pytest.mark.operations, pytest.mark.libraries]


@pytest.fixture
def remind(app):
    return plain_task(app)


def numbered(count):
    return (((number,), {}) for number in range(count))


def test_each_item_is_scheduled_and_its_id_stands_in_its_place(remind, delayq):
    bulk = delayq.schedule_many(remind, numbered(450), at=FAR)

    assert [delayq.get(task_id).args for task_id in bulk.ids] == [(n,) for n in range(450)]
    assert (bulk.scheduled, bulk.refused) == (450, {})
    assert len(set(bulk.ids)) == delayq.counts().scheduled == 450
    assert repr(bulk) == "<Bulk: 450 scheduled, 0 refused>"


@with_one_shard
def test_items_that_are_due_at_once_leave_in_their_order(remind, delayq, redis):
    bulk = delayq.schedule_many(
        remind, (((n, "x" * 3000 if n % 7 == 3 else ""), {}) for n in range(450)), at=LONG_AGO
    )

    assert delayq.hand_over() == 450

    [messages] = lists(redis).values()
    assert [task_id in str(raw) for task_id, raw in zip(bulk.ids, messages, strict=True)] == (
        [True] * 450
    )


@with_one_shard
def test_a_bulk_keeps_its_order_when_one_before_it_has_left(remind, delayq, redis):
    for _ in range(2):
        redis.delete("celery")
        bulk = delayq.schedule_many(
            remind, [((n, "x" * 3000 * (n % 2)), {}) for n in range(9)], at=0
        )
        delayq.hand_over()

    [messages] = lists(redis).values()
    assert [task_id in str(raw) for task_id, raw in zip(bulk.ids, messages, strict=True)] == (
        [True] * 9
    )


def test_items_for_a_list_and_for_the_relay_stand_in_one_bulk(delayq_app, url, redis):
    def route(name, args, kwargs, options, task=None):
        return {"exchange": "x", "routing_key": "k"} if args[0] % 2 else {"queue": "mail"}

    app = delayq_app(url, task_routes=(route,))

    bulk = app.delayq.schedule_many(plain_task(app), numbered(10), at=LONG_AGO)

    assert bulk.scheduled == 10
    assert (total(redis.zcard, "due"), total(redis.zcard, "relay")) == (5, 5)


@with_one_shard
def test_a_template_is_counted_by_those_who_share_it_and_goes_with_the_last(remind, delayq, redis):
    bulk = delayq.schedule_many(remind, numbered(300), at=FAR)
    # The first may be the only one of its kind, and is scheduled whole.
    assert templates(redis) == (1, 299)

    delayq.schedule_many(remind, [((1,), {}), ((2,), {})], at=LONG_AGO)
    delayq.hand_over()
    assert templates(redis) == (1, 299)

    assert all(delayq.cancel(task_id) for task_id in bulk.ids)
    assert templates(redis) == (0, 0)


@with_one_shard
def test_a_large_message_of_a_bulk_is_kept_whole_as_a_single_one_is(remind, delayq, redis):
    large = (("x" * 3000,), {})

    delayq.schedule_many(remind, [*numbered(3), large, large], at=FAR)

    assert templates(redis) == (1, 2)


BAD = {
    "no pair": (((1,),), InvalidOption, "(args, kwargs), such as ((1,), {})"),
    "too long": (((1,), {}, None, "x", "key"), InvalidOption, "(args, kwargs), such as ((1,), {})"),
    "no sequence": (5, InvalidOption, "item is 5; expected (args, kwargs), such as"),
    "text": ("ab", InvalidOption, "item is 'ab'; expected"),
    "args are text": (("ab", {}), InvalidOption, "expected (args, kwargs)"),
    "args are none": ((None, {}), InvalidOption, "expected (args, kwargs)"),
    "kwargs are a list": (((1,), []), InvalidOption, "expected (args, kwargs)"),
    "kwargs are none": (((1,), None), InvalidOption, "expected (args, kwargs)"),
    "time is no time": (((1,), {}, "soon"), InvalidDueTime, "'soon' is not a due time"),
    "time is true": (((1,), {}, True), InvalidDueTime, "True is not a due time"),
    "time is too late": (((1,), {}, 9e15), InvalidDueTime, "is not a due time"),
    "delay is too long": (((1,), {}, timedelta(days=84_000)), InvalidDueTime, "2255-06-05"),
    "id is no text": (((1,), {}, None, 5), InvalidOption, "task_id is 5; expected text of 1"),
    "id is bytes": (((1,), {}, None, b"x"), InvalidOption, "task_id is b'x'; expected text"),
    "id is empty": (((1,), {}, None, ""), InvalidOption, "task_id is ''; expected text of 1"),
    "id is too long": (((1,), {}, None, "x" * 513), InvalidOption, "text of 1 to 512 bytes"),
    "key is none": (Item((1,), {}, key=5), InvalidOption, "delayq_key is 5; expected text of"),
    "policy is none": (Item((1,), {}, conflict="no"), InvalidOption, "delayq_conflict is 'no'"),
    "tags are text": (Item((1,), {}, tags="a"), InvalidOption, "like ['a']"),
    "no grace": (Item((1,), {}, late="skip"), InvalidOption, "delayq_grace together"),
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


@pytest.mark.parametrize("between", [0, 300])
def test_an_id_that_comes_twice_is_scheduled_once_with_its_first_arguments(remind, delayq, between):
    items = [((1,), {}, None, "a"), *numbered(between), ((2,), {}, None, "a")]

    bulk = delayq.schedule_many(remind, items, at=FAR)

    assert (bulk.ids[0], bulk.ids[-1]) == ("a", None)
    assert [*map(type, bulk.refused.values())] == [AlreadyScheduled]
    assert delayq.get("a").args == (1,)
    assert bulk.scheduled == delayq.counts().scheduled == len(items) - 1


def test_a_bulk_of_bad_items_has_a_reason_for_each_and_writes_nothing(remind, delayq, redis):
    bulk = delayq.schedule_many(remind, [((), {}, "soon")] * 450, at=FAR)

    assert bulk.ids == [None] * 450
    assert [*bulk.refused] == [*range(450)]
    assert bulk.scheduled == 0
    assert redis.keys() == []


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


CANVASES = {
    "chain": lambda task: chain(task.s(1), task.s(2)),
    "group": lambda task: group(task.s(1), task.s(2)),
    "chord": lambda task: chord([task.s(1)], task.s(2)),
    "chunks": lambda task: task.chunks([(1,), (2,)], 1),
}


@pytest.mark.parametrize("kind", CANVASES)
def test_a_canvas_is_refused(remind, delayq, redis, kind):
    with pytest.raises(NotATask, match="expected a plain task; schedule takes a canvas"):
        delayq.schedule_many(CANVASES[kind](remind), numbered(3), at=FAR)
    assert redis.keys() == []


@pytest.mark.parametrize("what", ["add", 5, None, print])
def test_schedule_many_refuses_a_value_that_is_not_a_task(delayq, redis, what):
    with pytest.raises(NotATask, match="expected a signature, or a task"):
        delayq.schedule_many(what, numbered(3), at=FAR)
    assert redis.keys() == []


def test_an_id_for_all_is_refused(remind, delayq, redis):
    with pytest.raises(InvalidOption) as caught:
        delayq.schedule_many(remind.s().set(task_id="a"), numbered(3), at=FAR)
    assert str(caught.value) == "task_id is 'a'; expected an id in each item"
    assert redis.keys() == []


def test_a_wrong_setting_is_the_call_s_and_no_item_s(delayq_app, url):
    app = delayq_app(url, delayq_batch_size=0)
    with pytest.raises(InvalidSetting):
        app.delayq.schedule_many(plain_task(app), numbered(3), at=FAR)


def test_the_signature_stays_as_it_was(remind, delayq):
    signature = remind.s(1, y={}).set(queue="mail", headers={"a": [1]})
    before = repr(dict(signature))

    delayq.schedule_many(signature, [((), {"x": 3})], at=FAR)

    assert repr(dict(signature)) == before


def test_an_apply_async_that_drops_options_sends_one_task_and_no_more(app, delayq, redis):
    class Drops(Task):
        def apply_async(self, args=None, kwargs=None, **options):
            return super().apply_async(args, kwargs)

    with pytest.raises(NotScheduled) as caught:
        delayq.schedule_many(plain_task(app, base=Drops), numbered(3), at=FAR)

    assert caught.value.so_far.ids == []
    assert redis.llen("celery") == 1


def test_a_time_limit_that_strikes_meanwhile_ends_the_bulk(app, delayq):
    class Struck(Task):
        def apply_async(self, args=None, kwargs=None, **options):
            raise SoftTimeLimitExceeded

    with pytest.raises(SoftTimeLimitExceeded):
        delayq.schedule_many(plain_task(app, base=Struck), numbered(3), at=FAR)


def test_tasks_of_another_app_are_scheduled_by_it(delayq_app, redis_server, redis):
    here, there = (
        delayq_app(redis_server.url()),
        delayq_app(redis_server.url(7), timezone="Asia/Tokyo"),
    )
    noon = datetime(2100, 1, 1, 12)  # noqa: DTZ001

    bulk = here.delayq.schedule_many(
        plain_task(there), [((1,), {}), ((1,), {}, noon), ((1,), {}, noon.isoformat())], at=noon
    )

    due = {there.delayq.get(task_id).due for task_id in bulk.ids}
    assert due == {datetime(2100, 1, 1, 3, tzinfo=timezone.utc)}
    assert here.delayq.counts().scheduled == 0


# Eager.


@pytest.fixture
def eager(delayq_app, url):
    return delayq_app(url, task_always_eager=True)


def test_with_eager_tasks_each_item_runs_and_nothing_is_scheduled(eager, redis):
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


def test_eager_tasks_need_no_settings_of_a_store(delayq_app):
    app = delayq_app("amqp://127.0.0.1:1//", task_always_eager=True)

    assert app.delayq.schedule_many(plain_task(app), numbered(3), at=FAR).scheduled == 3


def test_an_item_needs_no_keyword_arguments(add, delayq):
    bulk = delayq.schedule_many(add.s(), [Item((1,), tags=["x"]), Item((2,))], at=FAR)

    assert [delayq.get(task_id).args for task_id in bulk.ids] == [(1,), (2,)]
    assert [delayq.get(task_id).kwargs for task_id in bulk.ids] == [{}, {}]
    assert [delayq.get(task_id).tags for task_id in bulk.ids] == [("x",), ()]


def test_a_plain_tuple_of_one_is_no_item(add, delayq):
    with pytest.raises(InvalidOption, match=r"expected \(args, kwargs\)"):
        delayq.schedule_many(add.s(), [([1],)], at=FAR)

"""`schedule_many`: arguments and times of items."""

import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_delayq import InvalidDueTime
from celery_delayq.errors import InvalidOption
from celery_delayq.operations.bulk import times_for
from tests.app.bulk import both_ways, plain_task
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.app.test_contract import ARGUMENTS, SERIALIZERS
from tests.app.test_contract_fuzz import TEXT, VALUES
from tests.support.shards import total

# A bulk's messages hold arguments as Celery writes them, or are refused as Celery refuses.


MORE = {
    "lists and tuples": (([1, (2, [3])], (4,)), {"y": ([],)}),
    "deep": (([[[[[[[["bottom"]]]]]]]],), {"y": {"a": {"b": {"c": {"d": {}}}}}}),
    "too long for logs": (("x" * 1500,), {"y": list(range(400))}),
    "encoded by kombu": ((Decimal("1.50"), UUID(int=5), b"\xff\x00"), {"y": {1: None}}),
    "no mapping of its own": ((), MappingProxyType({"y": 1})),
    "lone surrogate": (("\ud800",), {}),
    "not a number": ((float("nan"), float("-inf")), {}),
    "just small enough": (("x" * 1400,), {}),
    "quotation marks": (('it\'s \\ "so"', '"', "'", "\\n", "\x7f", "a b-c_d.e@f:/"), {}),
    "numbers": ((True, None, -0.0, 1e300, 10**30, -(2**53) - 1), {}),
}
EVERYTHING = {**ARGUMENTS, **MORE}
# All of them in JSON; for serializers whose body is bytes, two of them and some that need pickle.
CASES = [
    *((what, "json") for what in EVERYTHING),
    *((what, serializer) for what in ("plain", "text") for serializer in SERIALIZERS[1:]),
    *((what, "pickle") for what in ("encoded by kombu", "no mapping of its own", "numbers")),
]


@pytest.mark.parametrize(("what", "serializer"), CASES)
def test_arguments_of_an_item_are_in_its_message_as_in_a_call_s(
    delayq_app, url, redis, serializer, what
):
    conf = {"task_serializer": serializer, "accept_content": SERIALIZERS}
    app = delayq_app(url, delayq_max_message=10_000_000, **conf)
    task = plain_task(app, typing=False)

    singly, together = both_ways(redis, task.s(), [((), {}), EVERYTHING[what], EVERYTHING[what]])

    assert together == singly


KWARGS = st.dictionaries(TEXT, VALUES, max_size=3)
LISTS = st.lists(VALUES, max_size=3)


@given(
    items=st.lists(st.tuples(LISTS | LISTS.map(tuple), KWARGS), min_size=1, max_size=6),
    bound=st.tuples(st.lists(VALUES, max_size=2), st.dictionaries(TEXT, VALUES, max_size=2)),
    immutable=st.booleans(),
)
def test_any_items_of_any_signature_are_what_they_are_one_by_one(
    app, redis, items, bound, immutable
):
    signature = app.signature("elsewhere.t", *bound, immutable=immutable)

    singly, together = both_ways(redis, signature, items)

    assert together == singly


def test_an_item_may_change_once_it_was_read(delayq, remind):
    def items():
        args, kwargs = [0], {"y": {}}
        for number in range(3):
            args[0] = kwargs["y"]["n"] = number
            yield args, kwargs

    bulk = delayq.schedule_many(remind, items(), at=FAR)

    held = [delayq.get(task_id) for task_id in bulk.ids]
    assert [(task.args, task.kwargs) for task in held] == [
        ((number,), {"y": {"n": number}}) for number in range(3)
    ]


def circular():
    """A list that contains itself."""
    itself = []
    itself.append(itself)
    return itself


REFUSED = {
    "too many": ((1, 2, 3), {}),
    "unknown name": ((), {"z": 1}),
    "given twice": ((1,), {"x": 1}),
    "names that are not text": ((), {1: 2}),
    "not serializable": ((object(),), {}),
    "contains itself": ((circular(),), {}),
}


@pytest.mark.parametrize(
    ("what", "place"), [(what, number % 3) for number, what in enumerate(REFUSED)]
)
def test_arguments_that_a_call_would_refuse_are_refused_with_the_same_error(
    remind, delayq, redis, what, place
):
    items, wrong = [((1,), {})] * 2, REFUSED[what]
    items.insert(place, wrong)

    bulk = delayq.schedule_many(remind, items, at=FAR)

    assert bulk.refused.keys() == {place}
    assert bulk.ids[place] is None
    assert bulk.scheduled == total(redis.hlen, "records") == 2
    with pytest.raises(type(bulk.refused[place])) as caught:
        delayq.schedule(remind.s().clone(*wrong), at=FAR)
    assert str(caught.value) == str(bulk.refused[place])


def test_names_that_are_not_text_are_refused_where_arguments_are_not_checked(app, delayq):
    task = plain_task(app, typing=False)

    bulk = delayq.schedule_many(task, [((), {}), ((), {1: 2}), ((), {"y": 3})], at=FAR)

    assert isinstance(bulk.refused[1], TypeError)
    assert bulk.scheduled == 2


# The due times of a bulk: one for all, a list, one of each item's own, or random ones.


THREE = [((number,), {}) for number in range(3)]
NOON = datetime(2100, 1, 1, 12, tzinfo=timezone.utc)
FAR_MS = FAR * 1000
NOON_MS = FAR_MS + 12 * 3_600_000


@pytest.fixture
def due_of(remind, delayq):
    """The due times, in ms, of a bulk: ``due_of(items, at=...)``."""

    def due_of(items=THREE, **times):
        bulk = delayq.schedule_many(remind, items, **times)
        assert bulk.refused == {}
        return [delayq.services.entries.find(task_id).due_ms for task_id in bulk.ids]

    return due_of


@pytest.fixture
def ahead_of(remind, delayq):
    """The delays of a bulk's items in whole seconds, counted from when they were scheduled."""

    def ahead_of(items=THREE, **times):
        ids = delayq.schedule_many(remind, items, **times).ids
        found = [delayq.services.entries.find(task_id) for task_id in ids]
        return [(one.due_ms - one.created_ms) // 1000 for one in found]

    return ahead_of


ONE = [((1,), {})]
TIMES = {
    "one for all": (THREE, {"at": NOON}, [NOON_MS] * 3),
    "as text": (THREE, {"at": NOON.isoformat()}, [NOON_MS] * 3),
    "naive": (THREE, {"at": datetime(2100, 1, 1, 12)}, [NOON_MS] * 3),  # noqa: DTZ001
    "a list": (THREE, {"at": [FAR, NOON, f"{NOON:%Y-%m-%dT%XZ}"]}, [FAR_MS, NOON_MS, NOON_MS]),
    "a tuple": (THREE, {"at": (FAR, NOON, FAR + 1)}, [FAR_MS, NOON_MS, FAR_MS + 1000]),
    "a spread of one instant": (THREE, {"spread": (FAR, FAR)}, [FAR_MS] * 3),
    "some of their own": (
        [((1,), {}, NOON), ((2,), {}), ((3,), {}, None), ((4,), {}, FAR + 1, "a")],
        {"at": FAR},
        [NOON_MS, FAR_MS, FAR_MS, FAR_MS + 1000],
    ),
    "one of its own in a spread": ([(*ONE[0], NOON)], {"spread": (FAR, FAR + 1)}, [NOON_MS]),
    "all of their own": ([(*ONE[0], FAR), (*ONE[0], NOON)], {}, [FAR_MS, NOON_MS]),
}


@pytest.mark.parametrize("kind", TIMES)
def test_items_have_their_own_time_or_theirs_of_a_list_or_that_of_all(due_of, kind):
    items, times, expected = TIMES[kind]

    assert due_of(items, **times) == expected


HOUR = timedelta(hours=1)
DELAYS = {
    "one in seconds": (THREE, {"after": 3600}, [3600] * 3),
    "one for all": (THREE, {"after": HOUR}, [3600] * 3),
    "a list": (THREE, {"after": [60, HOUR, 90.0]}, [60, 3600, 90]),
    "of their own": ([(*ONE[0], HOUR), (*ONE[0], timedelta(0))], {}, [3600, 0]),
    "a spread of one": (THREE, {"spread": (HOUR, HOUR)}, [3600] * 3),
}


@pytest.mark.parametrize("kind", DELAYS)
def test_delays_are_counted_from_now(ahead_of, kind):
    items, times, expected = DELAYS[kind]

    assert ahead_of(items, **times) == expected


@pytest.mark.parametrize("past", [{"at": 0}, {"after": -5}, {"spread": (0, LONG_AGO)}], ids=str)
def test_an_item_with_a_past_time_is_due_at_once(due_of, delayq, redis, past):
    assert max(due_of(**past)) <= math.ceil(redis_ms(redis))


def test_an_item_without_any_time_is_refused_by_itself(remind, delayq):
    bulk = delayq.schedule_many(remind, [((1,), {}), ((2,), {}, FAR), ((3,), {}, None)])

    assert bulk.refused.keys() == {0, 2}
    assert str(bulk.refused[0]) == (
        "time is None; expected at, after or spread; or a time in each item"
    )


WRONG = {
    "two kinds": ({"at": FAR, "after": 5}, InvalidOption, "at most one of at, after, spread"),
    "spread and at": ({"at": FAR, "spread": (1, 2)}, InvalidOption, "at most one of"),
    "no time": ({"at": "soon"}, InvalidDueTime, "'soon' is not a due time"),
    "no delay": ({"after": "5"}, InvalidDueTime, "'5' is not a due time"),
    "a bad one among many": ({"at": [FAR, "soon", FAR]}, InvalidDueTime, "'soon' is not"),
    "too few": ({"at": [FAR, FAR]}, InvalidOption, "len(at) is 2; expected 3, a time for each"),
    "too many": ({"after": [1] * 4}, InvalidOption, "len(after) is 4; expected 3, a time for each"),
    "none at all": ({"at": []}, InvalidOption, "len(at) is 0; expected 3, a time for each item"),
    "no pair": ({"spread": 5}, InvalidOption, "spread is 5; expected two times, or two timedeltas"),
    "three": ({"spread": (1, 2, 3)}, InvalidOption, "expected two times, or two timedeltas"),
    "backwards": ({"spread": (FAR + 1, FAR)}, InvalidOption, "the earlier one first"),
    "mixed": ({"spread": (FAR, timedelta(1))}, InvalidOption, "the earlier one first"),
    "mixed the other way": ({"spread": (timedelta(1), FAR)}, InvalidOption, "two timedeltas"),
    "edge is no time": ({"spread": (FAR, "soon")}, InvalidDueTime, "'soon' is not a due time"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_times_are_refused_before_an_item_is_asked_for(remind, delayq, redis, name):
    times, error, words = WRONG[name]

    class Unread(list):
        def __iter__(self):
            raise AssertionError

    with pytest.raises(error) as caught:
        delayq.schedule_many(remind, Unread(THREE), **times)

    assert words in str(caught.value)
    assert redis.keys() == []


@pytest.mark.parametrize("times", [{"at": [FAR] * 3}, {"after": [5] * 3}])
def test_a_list_of_times_is_not_for_items_that_are_not_counted_yet(remind, delayq, redis, times):
    with pytest.raises(InvalidOption, match="is 3; expected items that can be counted, a time"):
        delayq.schedule_many(remind, iter(THREE), **times)
    assert redis.keys() == []


def test_a_spread_gives_each_item_a_time_of_its_own_within_its_bounds(due_of):
    due = due_of(ONE * 300, spread=(NOON, NOON + HOUR))

    assert NOON_MS <= min(due) < max(due) <= NOON_MS + 3_600_000
    assert len(set(due)) > 250


def test_both_ends_of_a_spread_are_in_it(due_of):
    due = due_of(ONE * 100, spread=(FAR, FAR + 0.001))

    assert set(due) == {FAR_MS, FAR_MS + 1}


def test_a_spread_of_timedeltas_is_from_now(ahead_of):
    ahead = ahead_of(ONE * 100, spread=(timedelta(0), HOUR))

    assert 0 <= min(ahead) < 1800 < max(ahead) <= 3600


def test_a_spread_begins_with_its_first_time_to_the_microsecond():
    """A task that is due at once by the caller's clock is not rounded up to a future time."""
    soon = NOON + timedelta(microseconds=1)
    times = times_for([1], timezone.utc, spread=(soon, soon))

    assert next(times).us == NOON_MS * 1000 + 1


def test_an_item_that_would_be_due_too_late_by_redis_s_clock_is_refused_by_itself(remind, delayq):
    longest = datetime(2255, 6, 1, tzinfo=timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)

    bulk = delayq.schedule_many(remind, THREE, after=[1, longest, 2])

    assert {place: type(error) for place, error in bulk.refused.items()} == {1: InvalidDueTime}
    assert bulk.scheduled == delayq.counts().scheduled == 2

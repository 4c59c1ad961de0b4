"""A bulk's messages hold arguments as Celery writes them, or are refused as Celery refuses."""

from decimal import Decimal
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.bulk import both_ways, plain_task
from tests.app.support import FAR
from tests.app.test_contract_fuzz import TEXT, VALUES
from tests.app.test_contract_messages import ARGUMENTS, SERIALIZERS
from tests.support.shards import total

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


REFUSED = {
    "too many": ((1, 2, 3), {}),
    "unknown name": ((), {"z": 1}),
    "given twice": ((1,), {"x": 1}),
    "names that are not text": ((), {1: 2}),
    "not serializable": ((object(),), {}),
    "contains itself": ((circular := [],), {}),
}
circular.append(circular)


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

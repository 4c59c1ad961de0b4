"""`schedule_many`: keys, tags and policies of items, in both ways of making messages."""

import pytest
from celery import states

from celery_delayq import AlreadyScheduled, Item
from tests.app.bulk import plain_task
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR
from tests.app.test_keys import owed, terms, told, waiting
from tests.support.shards import total

__all__ = ["app"]

LATER = FAR + 60
WAYS = ["made of one another", "made by Celery"]


@pytest.fixture(params=WAYS)
def signature(request, remind, made_by_celery):
    """The task's signature; Celery makes all messages of a bulk, or only the first two."""
    slow = request.param == "made by Celery"
    yield remind.s().set(argsrepr="hidden") if slow else remind.s()
    assert (len(made_by_celery) not in (2, 4)) == slow


def numbered(count, **own):
    return [Item((number,), {}, **own) for number in range(count)]


OF_ITEMS = [
    {},
    {"key": "k1"},
    {"tags": ["a"]},
    {"key": "k2", "tags": ["b", "c", "b"], "late": "skip", "grace": 1.5},
    {"key": "k3", "conflict": "debounce", "max_wait": 5},
    {"tags": []},
]


def test_items_have_what_they_bring_and_else_what_the_signature_has(delayq, signature):
    items = [Item((number,), {}, **own) for number, own in enumerate(OF_ITEMS)]
    bulk = delayq.schedule_many(signature.set(delayq_tags=["all"]), items, at=FAR)

    assert [terms(delayq, one) for one in bulk.ids] == [
        ("", ("all",), None),
        ("k1", ("all",), None),
        ("", ("a",), None),
        ("k2", ("b", "c"), 1500),
        ("k3", ("all",), None),
        ("", (), None),
    ]


def test_a_task_s_attributes_hold_for_items(app, delayq, made_by_celery):
    task = plain_task(app, delayq_tags=["task"], delayq_late="skip", delayq_grace=5)

    bulk = delayq.schedule_many(task, [*numbered(4), Item((), {}, late="run")], at=FAR)

    assert [terms(delayq, one) for one in bulk.ids] == [
        *[("", ("task",), 5000)] * 4,
        ("", ("task",), None),
    ]
    assert len(made_by_celery) == 2


def test_a_taken_key_refuses_its_item_alone_and_the_id_of_a_kept_task_stands_in_the_item_s_place(
    delayq, signature, redis
):
    holder = delayq.schedule(signature, at=FAR, key="k")
    refused, kept = Item((3,), {}, key="k"), Item((4,), {}, key="k", conflict="keep")

    bulk = delayq.schedule_many(signature, [*numbered(3), refused, kept, *numbered(2)], at=FAR)

    [(place, error)] = bulk.refused.items()
    assert (place, type(error), error.holder) == (3, AlreadyScheduled, holder.id)
    assert bulk.ids[3:5] == [None, holder.id]
    assert not bulk
    assert (bulk.scheduled, bulk.existed) == (5, {4})
    assert repr(bulk) == "<Bulk: 5 scheduled, 1 existed, 1 refused>"
    assert len(waiting(delayq)) == 6
    assert redis.info("keyspace").keys() == {"db0"}


def test_an_id_that_an_item_brings_is_revoked_where_another_task_is_kept(app, delayq, signature):
    holder = delayq.schedule(signature, at=FAR, key="k")
    items = [*numbered(4), Item((4,), {}, task_id="mine", key="k", conflict="keep")]

    bulk = delayq.schedule_many(signature, items, at=FAR)

    assert bulk.ids[4] == holder.id
    assert told("mine", app) == (states.REVOKED, f"kept {holder.id}")


def test_items_of_ids_that_wait_already_are_no_mistake_where_they_are_kept(delayq, signature):
    items = [Item((number,), {}, task_id=f"id-{number}", conflict="keep") for number in range(5)]
    delayq.schedule_many(signature, items[:3], at=FAR)

    bulk = delayq.schedule_many(signature, items, at=LATER)

    assert bulk.ids == [f"id-{number}" for number in range(5)]
    assert bulk.existed == {0, 1, 2}
    assert bulk, "nothing was refused"
    assert all(delayq.result(task_id).state == "SCHEDULED" for task_id in bulk.ids)


def test_of_450_items_under_one_key_the_last_waits(app, delayq, signature, redis):
    items = numbered(450, key="k", conflict="replace")

    bulk = delayq.schedule_many(signature, items, at=FAR)

    assert bulk.scheduled == 450
    assert waiting(delayq) == {bulk.ids[-1]: (449,)}
    assert [told(one, app)[1] for one in bulk.ids[:-1]] == [
        f"replaced by {other}" for other in bulk.ids[1:]
    ]
    assert owed(redis) == 0
    assert total(redis.hlen, "records") == total(redis.zcard, "due") == 1

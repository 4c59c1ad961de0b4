"""Reschedule: the id stays, the time moves, and a delivered task is not brought back."""

from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq import InvalidDueTime, Outcome
from celery_delayq.core.clock import MAX_DUE_MS
from celery_delayq.errors import InvalidOption
from tests.app.support import (
    FAR,
    LONG_AGO,
    hand_over_until_dead,
    lists,
    only_message,
    redis_ms,
    to_ms,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.core

UTC = timezone.utc
DUE = datetime.fromtimestamp(FAR, UTC)


def test_moved_earlier_it_is_handed_over_at_the_new_time_and_not_before(add, delayq):
    result = add.delay_until(FAR, 1)

    result.reschedule(after=0.15)

    eventually(lambda: delayq.hand_over() == 1)
    late = delayq.handed_over(result.id) - result.due
    assert late >= timedelta(0)


def test_moved_later_it_is_not_handed_over_at_the_old_time(add, delayq, redis):
    result = add.delay_until(LONG_AGO, 1)

    delayq.reschedule(result.id, after=3600)

    assert delayq.hand_over() == 0
    assert lists(redis) == {}


def test_it_is_handed_over_once_however_often_it_was_moved(add, delayq, redis):
    result = add.delay_until(FAR, 1)
    for when in (FAR + 5, LONG_AGO, FAR, LONG_AGO + 5, LONG_AGO):
        assert delayq.reschedule(result.id, when) is Outcome.DONE

    assert delayq.hand_over() == 1

    only_message(redis)


@pytest.mark.parametrize(
    ("times", "due"),
    [
        ({"at": DUE + timedelta(days=9)}, DUE + timedelta(days=9)),
        ({"at": (DUE + timedelta(days=9)).isoformat()}, DUE + timedelta(days=9)),
        ({"by": 1.5}, DUE + timedelta(seconds=1.5)),
        ({"by": timedelta(weeks=-1)}, DUE - timedelta(weeks=1)),
        ({"by": -FAR}, datetime(1970, 1, 1, tzinfo=UTC)),
        ({"by": -FAR - 9999}, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
    ids=repr,
)
def test_it_moves_to_an_instant_or_from_the_present_due_time(add, delayq, times, due):
    result = add.delay_until(FAR, 1)

    assert delayq.reschedule(result.id, **times) is Outcome.DONE

    assert delayq.get(result.id).due == due


def test_it_moves_from_now_by_redis_s_clock(add, delayq, redis):
    result = add.delay_until(FAR, 1)
    before = redis_ms(redis)

    delayq.reschedule(result.id, after=timedelta(minutes=5))

    assert before + 300_000 <= to_ms(delayq.get(result.id).due) <= redis_ms(redis) + 300_001


def test_shifts_add_up(add, delayq):
    result = add.delay_until(FAR, 1)
    for shift in (60, 60, -30):
        delayq.reschedule(result.id, by=shift)

    assert delayq.get(result.id).due == DUE + timedelta(seconds=90)


@pytest.mark.parametrize("times", [{}, {"at": 5, "by": 5}, {"after": 1, "by": 1}], ids=repr)
def test_exactly_one_time_is_wanted(delayq, times):
    with pytest.raises(InvalidOption) as caught:
        delayq.reschedule("a", **times)

    assert "exactly one of at, after, by" in str(caught.value)


@pytest.mark.parametrize(
    "times",
    [{"at": "soon"}, {"after": "5"}, {"by": True}, {"by": float("nan")}, {"at": [1]}],
    ids=repr,
)
def test_a_value_that_is_not_a_time_is_refused_and_moves_nothing(add, delayq, times):
    result = add.delay_until(FAR, 1)

    with pytest.raises(InvalidDueTime):
        delayq.reschedule(result.id, **times)
    assert delayq.get(result.id).due == DUE


@pytest.mark.parametrize("times", [{"by": MAX_DUE_MS / 1000}, {"after": 240 * 366 * 86_400}])
def test_past_the_last_year_is_refused_and_nothing_moves(add, delayq, times):
    result = add.delay_until(FAR, 1)

    with pytest.raises(InvalidDueTime, match="2255-06-05"):
        delayq.reschedule(result.id, **times)
    assert delayq.get(result.id).due == DUE


def test_a_delivered_task_says_so_and_is_not_brought_back(add, delayq, redis):
    result = add.delay_until(LONG_AGO, 1)
    delayq.hand_over()

    assert delayq.reschedule(result.id, FAR) is Outcome.HANDED_OVER

    assert delayq.get(result.id) is None
    assert delayq.counts().scheduled == 0
    only_message(redis)


def test_a_cancelled_or_unknown_task_is_not_found_and_not_made(add, delayq):
    add.s(1).set(task_id="a").delay_until(FAR).cancel()

    for task_id in ("a", "never"):
        assert delayq.reschedule(task_id, FAR) is Outcome.NOT_FOUND

    assert delayq.counts().scheduled == 0


def test_a_dead_task_is_scheduled_again(app, delayq, redis):
    redis.set("mail", "not a list")
    app.send_task("t", task_id="a", queue="mail", delayq_at=LONG_AGO)
    hand_over_until_dead(delayq, redis)
    redis.delete("mail")

    assert delayq.reschedule("a", LONG_AGO + 1) is Outcome.DONE

    assert delayq.hand_over() == 1
    assert list(lists(redis)) == [b"mail"]
    assert delayq.counts().dead == 0


def test_a_span_that_leads_past_the_end_of_time_is_told_in_words(app):
    app.send_task("t", task_id="a", delayq_at="2255-06-01")

    with pytest.raises(InvalidDueTime) as caught:
        app.delayq.reschedule("a", by=timedelta(days=30, hours=2))

    assert str(caught.value) == (
        "30 days 2 hours is not a due time; expected a time before 2255-06-05"
    )

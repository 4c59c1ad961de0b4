"""``delayq.select``: the tasks it selects, their order, and the changes it makes to them."""

import base64
import json
import pickle
import threading
from contextlib import suppress

import pytest

from celery_delayq import State
from celery_delayq.errors import InvalidDueTime, InvalidOption, StoreDiffers, StoreUnavailable
from tests.app.support import FAR, LONG_AGO, Killed, lists
from tests.support.network import AWAY
from tests.support.places import take
from tests.support.waiting import interrupt

WAYS = {
    "a tag": {"tag": "two"},
    "a task": {"task": "add"},
    "a state": {"state": "scheduled"},
    "everything": {"all": True},
}
two_ways = pytest.mark.parametrize("way", ["a tag", "everything"])
each_way = pytest.mark.parametrize("way", WAYS)
ORDER = [f"t{number:02}" for number in range(30)]


@pytest.fixture(autouse=True)
def small_steps(limits):
    """Steps so small that a few tasks need several of them."""
    limits(selection_page=7, selection_page_most=8, selection_chunk=3)


@pytest.fixture
def fill(delayq, add):
    """Schedule tasks, in that order: ``fill(ids, delayq_tags=...)``."""

    def put(ids=ORDER, due=FAR, **options):
        options = {"delayq_tags": ["one", "two"], **options}
        for task_id in ids:
            add.apply_async((1,), task_id=task_id, delayq_at=due, **options)

    return put


@pytest.fixture
def select(delayq, way):
    """A selection of all tasks of `fill`, in one of the possible ways."""
    return lambda **more: delayq.select(**WAYS[way], **more)


@pytest.fixture
def way():
    return "a tag"


def ids(selection):
    return [one.id for one in selection]


@each_way
def test_a_selection_gives_each_task_once_in_the_order_of_scheduling(fill, select):
    fill(reversed(ORDER))
    selection = select()
    assert ids(selection) == ORDER[::-1]
    assert ids(selection) == ORDER[::-1]
    assert selection.count() == 30


@each_way
def test_a_task_that_comes_after_the_start_is_not_met(fill, select, delayq):
    fill(ORDER[:10])
    selection = select()
    fill(ORDER[10:20])
    met = []
    for task in selection:
        met.append(task.id)
        if len(met) == 5:
            fill(ORDER[20:])
    assert met == ORDER[:10]
    assert selection.cancel() == 10
    assert select().count() == 20


@two_ways
def test_a_task_that_is_moved_meanwhile_is_met_once(fill, select, delayq):
    fill()
    met = []
    for task in select():
        met.append(task.id)
        for task_id in ORDER:
            delayq.reschedule(task_id, by=-1 if len(met) % 2 else 2)
    assert met == ORDER


@each_way
def test_a_task_that_leaves_meanwhile_is_met_at_most_once_and_the_others_once(fill, select, delayq):
    fill()
    met = []
    for task in select():
        met.append(task.id)
        if len(met) == 4:
            for task_id in ORDER[1::3]:
                delayq.cancel(task_id)
    assert len(met) == len(set(met))
    assert set(ORDER) - set(ORDER[1::3]) <= set(met)
    assert met == sorted(met)


@each_way
def test_a_cursor_goes_on_behind_what_was_met_in_another_selection(fill, select):
    fill()
    selection = select()
    walk = iter(selection)
    first = [next(walk).id for _ in range(11)]
    fill(["late"])
    rest = select(cursor=selection.cursor)
    assert [*first, *ids(rest)] == ORDER
    assert rest.count() == 19
    assert select(cursor=rest.cursor).count() == 0
    assert select(cursor=selection.cursor).cancel() == 19
    assert ids(select()) == [*first, "late"]


@two_ways
def test_cancel_counts_what_it_cancels_and_says_so_step_by_step(fill, select, delayq):
    fill()
    told = []
    assert select().cancel(dry_run=True) == 30
    count = select().cancel(progress=told.append)
    assert (count, count.uncertain, count.in_flight, count.outstanding) == (30, 0, 0, 0)
    assert len(told) > 9
    assert told == sorted(set(told))
    assert told[-1] == 30
    assert select().cancel() == 0
    assert delayq.counts().scheduled == 0


@each_way
def test_a_dry_run_that_is_interrupted_goes_on_at_the_cursor(fill, select):
    fill()
    cursor, counts = None, []

    def stop(count):
        counts.append(count)
        raise InterruptedError

    rest = None
    while rest is None:
        selection = select(cursor=cursor)
        with suppress(InterruptedError):
            rest = selection.cancel(dry_run=True, progress=stop)
        cursor = selection.cursor

    assert (sum(counts), rest) == (30, 0)
    assert len(counts) > 3


@pytest.mark.parametrize(
    ("change", "due"),
    [
        (lambda chosen, **dry: chosen.reschedule(FAR + 5, **dry), FAR + 5),
        (lambda chosen, **dry: chosen.reschedule(by=-5, **dry), FAR - 5),
        (lambda chosen, **dry: chosen.run_now(**dry), None),
    ],
    ids=["reschedule", "by", "run_now"],
)
def test_a_change_moves_all_selected_tasks_and_its_dry_run_none(
    fill, select, delayq, redis, *, change, due
):
    fill()
    assert change(select(), dry_run=True) == 30
    assert {task.due.timestamp() for task in select()} == {FAR}

    assert change(select()) == 30

    assert due is None or {task.due.timestamp() for task in select()} == {due}
    while delayq.hand_over():
        pass
    assert sum(map(len, lists(redis).values())) == (30 if due is None else 0)


@pytest.mark.parametrize(
    ("time", "conditions", "count"),
    [
        ({"at": FAR + 5}, {"only": "later"}, 1),
        ({"at": FAR + 10}, {"only": "later"}, 1),
        ({"at": FAR + 5}, {"only": "earlier"}, 2),
        ({"by": -1}, {"only": "earlier"}, 3),
        ({"after": 60}, {"only": "earlier"}, 3),
        ({"after": 60}, {"only": "later"}, 0),
        ({"at": FAR + 5}, {"if_due": FAR + 10}, 2),
    ],
)
def test_a_dry_run_counts_what_a_conditional_move_moves(fill, select, time, conditions, count):
    fill(ORDER[:1])
    fill(ORDER[1:3], due=FAR + 10)
    assert select().reschedule(**time, **conditions, dry_run=True) == count
    assert select().reschedule(**time, **conditions) == count


@two_ways
def test_a_failure_in_the_middle_tells_what_was_done(between, fill, select):
    fill()
    selection = select()
    between.before("cancel", lambda: AWAY if between.asked["cancel"] == 4 else None)
    with pytest.raises(StoreUnavailable) as failed:
        selection.cancel()
    done = failed.value.so_far
    assert 0 < done < 30
    assert select(cursor=selection.cursor).cancel() == 30 - done
    assert select().count() == 0


@two_ways
@pytest.mark.parametrize(("steps", "part_bytes"), [(1, 0), (2, 1000), (7, 1000)])
def test_a_killed_change_goes_on_from_the_cursor_that_progress_stored(
    fill, select, limits, steps, part_bytes
):
    if part_bytes:  # so that a step is more than one call
        limits(change_bytes=part_bytes)
    fill()
    selection, stored = select(), []

    def store(count):
        stored.append((count, selection.cursor))
        if len(stored) == steps:
            raise Killed

    with pytest.raises(Killed):
        selection.reschedule(by=-5, progress=store)
    done, cursor = stored[-1]

    assert select(cursor=cursor).reschedule(by=-5) == 30 - done
    assert {task.due.timestamp() for task in select()} == {FAR - 5}


@two_ways
def test_a_kill_before_it_is_told_lets_one_step_come_twice_and_a_condition_avoids_that(
    between, fill, select
):
    fill()
    selection = select()

    def kill():
        if between.asked["reschedule"] == 3:
            interrupt(threading.main_thread(), Killed)

    between.after("reschedule", kill)
    with pytest.raises(Killed):
        selection.reschedule(by=-5, if_due=FAR)
    done = sum(task.due.timestamp() == FAR - 5 for task in select())

    again = select(cursor=selection.cursor).reschedule(by=-5, if_due=FAR)

    assert (done, again) == (7, 23)
    assert {task.due.timestamp() for task in select()} == {FAR - 5}


def test_a_count_is_a_number_that_can_be_sent(fill, select):
    fill(ORDER[:2])
    count = pickle.loads(pickle.dumps(select().count()))
    assert (count, count.uncertain, count.in_flight, count.outstanding) == (2, 0, 0, 0)


@two_ways
def test_a_cursor_of_another_store_or_selection_is_refused(fill, select, delayq, redis):
    fill()
    cursor = select().cursor
    with pytest.raises(InvalidOption, match="by the same arguments"):
        delayq.select(queue="other", cursor=cursor)
    with pytest.raises(InvalidOption, match="by the same arguments"):
        select(cursor=cursor, before_due=FAR + 1)
    redis.flushall()
    with pytest.raises(InvalidOption, match="of this store"):
        select(cursor=cursor)


@two_ways
def test_a_store_that_was_emptied_ends_a_selection(fill, select, redis, delayq):
    fill()
    walk = iter(select())
    next(walk)
    redis.flushall()
    fill(["new"])
    with pytest.raises(StoreDiffers):
        list(walk)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "e30", "bnVsbA", "WzFd", "ä", 5])
def test_a_value_that_is_no_cursor_is_refused(select, cursor):
    with pytest.raises(InvalidOption, match=r"^cursor is .*; expected the cursor of a selection"):
        select(cursor=cursor)


@pytest.mark.parametrize(
    ("fact", "change"),
    [
        (2, lambda starts: [*starts, 0]),
        (2, lambda starts: [2**40] * len(starts)),
        (3, lambda _: 99),
    ],
    ids=["more shards", "a start in the future", "no such shard"],
)
def test_a_cursor_that_does_not_fit_the_store_is_refused(fill, select, fact, change):
    fill()
    packed = select().cursor
    facts = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    facts[fact] = change(facts[fact])
    cursor = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")
    with pytest.raises(InvalidOption, match=r"^cursor is .*; expected the cursor of a selection"):
        select(cursor=cursor)


@each_way
def test_due_times_bound_a_selection(fill, select):
    fill(ORDER[:5])
    fill(ORDER[5:10], due=FAR + 1)
    fill(ORDER[10:], due=FAR + 2)
    assert ids(select(after_due=FAR + 1, before_due=FAR + 2)) == ORDER[5:10]
    assert select(after_due=FAR + 1).count() == 25
    assert select(before_due=FAR + 1).cancel() == 5
    assert select(before_due=FAR).count() == 0


@each_way
def test_a_task_that_is_being_published_is_left_and_counted(fill, select, delayq, way):
    fill(ORDER[:2])
    fill(ORDER[2:4], due=LONG_AGO, exchange="news", routing_key="news")
    take(delayq, "leased", *ORDER[2:4])
    for dry_run in (True, False):
        count = select().cancel(dry_run=dry_run)
        assert (count, count.in_flight) == (2, 0 if way == "a state" else 2)
    assert ids(delayq.select(state=State.IN_FLIGHT)) == ORDER[2:4]


@two_ways
def test_retry_and_remove_leave_what_is_not_dead(fill, select):
    fill(ORDER[:3])
    for method in ("retry", "remove"):
        assert getattr(select(), method)(dry_run=True) == 0
        assert getattr(select(), method)() == 0
    assert select().count() == 3


@two_ways
def test_a_task_that_would_be_due_too_late_is_an_error_with_the_count_so_far(fill, select):
    fill(ORDER[:5])
    fill(ORDER[5:6], due=9_007_199_254)
    selection = select()
    with pytest.raises(InvalidDueTime) as failed:
        selection.reschedule(by=10)
    assert failed.value.so_far == 5
    assert select(cursor=selection.cursor).reschedule(by=10) == 0

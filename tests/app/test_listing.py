"""Lists: in due order, over pages, both indexes as one, bounded by time and number."""

import random
from datetime import datetime, timedelta, timezone

import pytest
from kombu import Exchange, Queue

from celery_delayq.core.store.pages import PAGE
from celery_delayq.errors import InvalidDueTime, InvalidOption
from tests.app.support import FAR, LONG_AGO, hand_over_until_dead
from tests.support.shards import keys_of, with_one_shard

pytestmark = pytest.mark.operations

TOPIC = Queue("q", Exchange("x", type="topic"), routing_key="#")
UTC = timezone.utc


@pytest.fixture
def schedule(app):
    """Schedule tasks with seconds after FAR as ids: ``schedule([3, 1], relayed=[2])``."""

    def schedule(moved, relayed=()):
        plain, to_topic = app.signature("t"), app.signature("t").set(queue=TOPIC)
        for one, name, seconds in ((plain, "m", moved), (to_topic, "r", relayed)):
            items = [((), {}, FAR + second, f"{name}{second}") for second in seconds]
            assert app.delayq.schedule_many(one, items)

    return schedule


def ids(tasks):
    return [task.id for task in tasks]


def test_tasks_come_in_due_order_and_not_in_the_order_of_scheduling(schedule, delayq):
    schedule([3, 1, 2])

    assert ids(delayq.tasks()) == ["m1", "m2", "m3"]


def test_both_indexes_are_one_list(schedule, delayq):
    schedule([1, 4, 5], relayed=[2, 3, 6])

    assert ids(delayq.tasks()) == ["m1", "r2", "r3", "m4", "m5", "r6"]


@with_one_shard
def test_equal_due_times_keep_the_order_of_scheduling(app, delayq):
    expected = [str(number) for number in random.Random(1).sample(range(10**6), 3 * PAGE)]
    for task_id in expected:
        app.send_task("t", task_id=task_id, delayq_at=FAR)

    assert ids(delayq.tasks()) == expected


def test_thousands_are_listed_once_each_in_due_order(schedule, delayq):
    seconds = random.Random(1).sample(range(100_000), 3000)
    schedule(seconds[:2000], relayed=seconds[2000:])

    listed = ids(delayq.tasks())

    assert len(listed) == 3000
    assert [int(one[1:]) for one in listed] == sorted(seconds)


@pytest.mark.parametrize("size", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_pages_neither_skip_nor_repeat_at_their_edges(schedule, delayq, size):
    schedule(range(size))

    assert ids(delayq.tasks()) == [f"m{second}" for second in range(size)]


def test_entries_that_come_and_go_while_one_reads_do_not_disturb_the_others(app, schedule, delayq):
    schedule(range(3 * PAGE))
    listed, tasks = [], delayq.tasks()
    for number, task in enumerate(tasks):
        listed.append(task.id)
        delayq.cancel(task.id)
        app.send_task("t", task_id=f"early{number}", delayq_at=FAR - 1000)

    assert listed == [f"m{second}" for second in range(3 * PAGE)]


def test_after_is_inclusive_and_before_is_not(schedule, delayq):
    schedule([1, 2, 3], relayed=[2.5, 3.5])

    assert ids(delayq.tasks(after_due=FAR + 2)) == ["m2", "r2.5", "m3", "r3.5"]
    assert ids(delayq.tasks(before_due=FAR + 3)) == ["m1", "m2", "r2.5"]
    assert ids(delayq.tasks(after_due=FAR + 2, before_due=FAR + 3)) == ["m2", "r2.5"]
    assert ids(delayq.tasks(after_due=FAR + 3, before_due=FAR + 2)) == []
    assert ids(delayq.tasks(after_due=FAR + 2, before_due=FAR + 2)) == []


def test_bounds_are_exact_to_the_millisecond(app, delayq):
    for ms in range(5):
        app.send_task("t", task_id=str(ms), delayq_at=FAR + ms / 1000)

    assert ids(delayq.tasks(after_due=FAR + 0.001, before_due=FAR + 0.004)) == ["1", "2", "3"]


def test_bounds_are_times_as_everywhere(schedule, delayq):
    schedule([0, 3600])
    hour = datetime.fromtimestamp(FAR, UTC) + timedelta(hours=1)

    for bound in (hour, hour.isoformat(), hour.timestamp(), hour.replace(tzinfo=None)):
        assert ids(delayq.tasks(after_due=bound)) == ["m3600"]
        assert ids(delayq.tasks(before_due=bound)) == ["m0"]


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, 0), (1, 1), (3, 3), (99, 4), (2**63, 4), (10**30, 4), (None, 4)]
)
def test_a_limit_is_the_most_that_comes(schedule, delayq, limit, expected):
    schedule([1, 2], relayed=[3, 4])

    assert len(list(delayq.tasks(limit=limit))) == expected


@pytest.mark.parametrize("limit", [-1, 1.5, "5", True], ids=repr)
def test_a_wrong_limit_is_refused_at_the_call(delayq, limit):
    with pytest.raises(InvalidOption) as caught:
        delayq.tasks(limit=limit)

    assert str(caught.value) == f"limit is {limit!r}; expected a whole number of tasks from 0"


@pytest.mark.parametrize("bound", ["after_due", "before_due"])
@pytest.mark.parametrize("value", ["soon", True, float("nan")], ids=repr)
def test_a_wrong_bound_is_refused_at_the_call(delayq, bound, value):
    with pytest.raises(InvalidDueTime):
        delayq.tasks(**{bound: value})


def test_a_short_list_does_not_read_the_whole_store(schedule, delayq, redis):
    schedule(range(1000))
    before = redis.info("commandstats")["cmdstat_hget"]["calls"]

    assert len(list(delayq.tasks(limit=5))) == 5

    assert redis.info("commandstats")["cmdstat_hget"]["calls"] - before <= 2 * PAGE + 5


def test_a_due_task_is_listed_until_it_is_delivered(app, delayq):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert ids(delayq.tasks()) == ["a"]
    delayq.hand_over()
    assert ids(delayq.tasks()) == []


def test_a_dead_task_is_not_waiting(app, delayq, redis):
    redis.set("broken", "not a list")
    app.send_task("t", task_id="a", queue="broken", delayq_at=LONG_AGO)
    hand_over_until_dead(delayq, redis)

    assert ids(delayq.tasks()) == []
    assert delayq.counts().dead == 1


@pytest.mark.parametrize("damage", [b"", b"\x00", b"9 of a later version", b"1", b"1L9999:x"])
def test_an_entry_that_cannot_be_read_is_left_out_and_left_alone(schedule, delayq, redis, damage):
    schedule([1, 2, 3])
    redis.hset(keys_of("m2")["records"], "m2", damage)

    assert ids(delayq.tasks()) == ["m1", "m3"]
    assert redis.hget(keys_of("m2")["records"], "m2") == damage
    assert delayq.counts().scheduled == 3


def test_large_bodies_are_listed_without_holding_redis_with_one_giant_reply(app, delayq):
    for number in range(12):
        app.send_task("t", ("x" * 700_000,), task_id=str(number), delayq_at=FAR + number)

    assert [len(task.args[0]) for task in delayq.tasks()] == [700_000] * 12


def test_a_loop_that_puts_off_what_it_lists_ends(schedule, delayq):
    schedule([1, 2, 3], relayed=[4])
    put_off = []

    for task in delayq.tasks(limit=99):
        put_off.append(task.id)
        delayq.reschedule(task.id, by=timedelta(hours=1))

    assert put_off == ["m1", "m2", "m3", "r4"]
    assert [task.due.timestamp() - FAR for task in delayq.tasks()] == [3601, 3602, 3603, 3604]


def test_a_list_goes_on_behind_a_cursor_that_was_stored(schedule, delayq):
    schedule([1, 2, 3, 5], relayed=[4, 6])
    first = [*delayq.tasks(limit=2)]
    stored = str(first[-1].cursor)

    assert ids(delayq.tasks(cursor=stored, limit=3)) == ["m3", "r4", "m5"]
    delayq.cancel("m2")
    assert ids(delayq.tasks(cursor=stored, before_due=FAR + 5)) == ["m3", "r4"]


@with_one_shard
def test_a_thousand_of_one_due_time_are_paged_by_fifties(app, delayq):
    expected = [str(number) for number in range(1000)]
    delayq.schedule_many(app.signature("t"), [((), {}, FAR, one) for one in expected])
    listed, cursor = [], None

    while page := ids_and_cursors(delayq.tasks(cursor=cursor, limit=50)):
        listed += [task_id for task_id, _ in page]
        cursor = page[-1][1]

    assert listed == expected


def ids_and_cursors(tasks):
    return [(task.id, task.cursor) for task in tasks]


@pytest.mark.parametrize("cursor", ["", "x", 5, b"", "ab:0:1:1", "ab:63:1:1"])
def test_a_value_that_is_no_cursor_of_this_store_is_an_error_at_the_call(schedule, delayq, cursor):
    schedule([1])
    with pytest.raises(InvalidOption) as caught:
        delayq.tasks(cursor=cursor)
    assert str(caught.value).endswith("; expected the cursor of a task in a list of this store")


def test_a_task_tells_its_key_and_tags(app, delayq):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k", delayq_tags=["x", "y"])

    [listed] = delayq.tasks()
    for task in (listed, delayq.get("a")):
        assert (task.key, task.tags) == ("k", ("x", "y"))


def test_a_paused_task_is_listed(app, delayq):
    delayq.pause(queue="celery")
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    app.send_task("t", task_id="b", delayq_at=FAR)
    delayq.hand_over()

    assert [(task.id, task.state.value) for task in delayq.tasks()] == [
        ("a", "PAUSED"),
        ("b", "SCHEDULED"),
    ]

"""`delayq.tasks()`: its bounds, limit and cursor; `tests/store/test_listing.py` has the order."""

from datetime import datetime, timedelta, timezone

import pytest
from kombu import Exchange, Queue

from celery_delayq.core.store.listing import PAGE
from celery_delayq.errors import InvalidDueTime, InvalidOption
from tests.app.support import FAR

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
    schedule([3, 1, 4], relayed=[2])

    assert ids(delayq.tasks()) == ["m1", "r2", "m3", "m4"]


def test_after_is_inclusive_and_before_is_not_to_the_millisecond(app, delayq):
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


def test_a_list_goes_on_behind_a_cursor_that_was_stored(schedule, delayq):
    schedule([1, 2, 3, 5], relayed=[4, 6])
    first = [*delayq.tasks(limit=2)]
    stored = str(first[-1].cursor)

    assert ids(delayq.tasks(cursor=stored, limit=3)) == ["m3", "r4", "m5"]
    delayq.cancel("m2")
    assert ids(delayq.tasks(cursor=stored, before_due=FAR + 5)) == ["m3", "r4"]


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

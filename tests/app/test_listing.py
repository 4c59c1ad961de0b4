"""`delayq.tasks()`: its bounds, limit and cursor; `tests/store/test_reads.py` has the order."""

from datetime import datetime, timedelta, timezone

import pytest
from kombu import Exchange, Queue

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


def test_a_list_goes_on_behind_a_cursor_that_was_stored(schedule, delayq):
    schedule([1, 2, 3, 5], relayed=[4, 6])
    first = [*delayq.tasks(limit=2)]
    stored = str(first[-1].cursor)

    assert ids(delayq.tasks(cursor=stored, limit=3)) == ["m3", "r4", "m5"]
    delayq.cancel("m2")
    assert ids(delayq.tasks(cursor=stored, before_due=FAR + 5)) == ["m3", "r4"]


def test_a_task_tells_its_key_and_tags(app, delayq):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k", delayq_tags=["x", "y"])

    [listed] = delayq.tasks()
    for task in (listed, delayq.get("a")):
        assert (task.key, task.tags) == ("k", ("x", "y"))

"""Several values in a filter, and limits: in ``select`` and in ``tasks``."""

import pytest

from celery_delayq import State
from celery_delayq.core.tasks.reading import MOST
from celery_delayq.errors import InvalidDueTime, InvalidOption
from tests.app.support import FAR, LONG_AGO
from tests.support.places import at, take
from tests.support.shards import with_one_shard

pytestmark = pytest.mark.core


@pytest.fixture
def some(app, delayq):
    """Twelve tasks: t0 to t11, of two tasks, three queues and four tags, due in that order."""
    for number in range(12):
        app.send_task(
            ("even", "odd")[number % 2],
            task_id=f"t{number}",
            queue=f"q{number % 3}",
            delayq_at=FAR + number,
            delayq_tags=["all", f"tag {number % 4}"],
        )


def numbers(tasks):
    return sorted(int(one.id[1:]) for one in tasks)


SEVERAL = [
    ({"queue": ["q0", "q2"]}, lambda n: n % 3 != 1),
    ({"queue": {"q0"}, "task": ("even", "odd", "other")}, lambda n: n % 3 == 0),
    ({"task": ["even", "even"]}, lambda n: n % 2 == 0),
    ({"tag": ["tag 1", "tag 3"]}, lambda n: n % 2),
    ({"tag": ["all", "tag 0", "none"]}, lambda _: True),
    ({"tag": ["tag 1", "tag 2"], "queue": ["q1", "q2"]}, lambda n: n % 4 in (1, 2) and n % 3),
    ({"tag": frozenset(["none", "tag"])}, lambda _: False),
    ({"tag": [f"tag {number}" for number in range(MOST)]}, lambda _: True),
    ({"task": ["other"]}, lambda _: False),
]


@pytest.mark.parametrize(("filters", "fits"), SEVERAL)
def test_any_of_the_values_is_enough_and_each_filter_holds(some, delayq, limits, filters, fits):
    limits(selection_page=3)
    expected = [number for number in range(12) if fits(number)]
    listed = [f"t{one}" for one in expected]

    assert numbers(delayq.select(**filters)) == expected
    assert delayq.select(**filters).count() == len(expected)
    assert [one.id for one in delayq.tasks(**filters)] == listed
    assert [one.id for one in delayq.tasks(**filters, newest_first=True)] == listed[::-1]
    for dry_run in (True, False):
        assert delayq.select(**filters).cancel(dry_run=dry_run) == len(expected)
    assert numbers(delayq.tasks()) == [one for one in range(12) if one not in expected]


@with_one_shard
def test_of_several_tags_each_task_is_met_once_in_the_order_of_scheduling(app, delayq, limits):
    limits(selection_page=2)
    for number in range(9):
        tags = [f"x{number % 2}", f"x{number % 3}"]
        app.send_task("t", task_id=f"t{number}", delayq_at=FAR - number, delayq_tags=tags)
    selection, met = delayq.select(tag=["x0", "x1", "x2"]), []
    for task in selection:
        met.append(task.id)
        if len(met) == 4:
            app.send_task("t", task_id="t99", delayq_at=FAR, delayq_tags=["x0"])
            break
    rest = delayq.select(tag=["x2", "x1", "x0"], cursor=selection.cursor)
    assert met + [one.id for one in rest] == [f"t{number}" for number in range(9)]


@pytest.mark.operations
def test_states_are_values_too(some, app, delayq):
    at(delayq, "dead", "t20")
    delayq.pause(queue="q1")
    for number in (1, 4):
        delayq.reschedule(f"t{number}", LONG_AGO)

    assert numbers(delayq.select(state=["DEAD", "paused"])) == [1, 4, 20]
    assert delayq.select(state=[State.DEAD, State.PAUSED]).count() == 3
    assert numbers(delayq.select(state=("dead",))) == [20]
    found = numbers(delayq.select(state=["dead", "scheduled"], task=["t", "even"], tag="all"))
    assert found == [0, 2, 6, 8, 10]
    assert delayq.select(state=["dead", "paused"]).cancel() == 3


def test_tasks_are_picked_by_the_task_itself(app, delayq, add):
    add.delay_until(FAR, 1)
    app.send_task("other", delayq_at=FAR)

    assert [one.args for one in delayq.tasks(task=add)] == [(1,)]
    assert [one.args for one in delayq.select(task=[add, "none"])] == [(1,)]


# Limits.


BOUNDED = [
    {"tag": "all"},
    {"all": True},
    {"queue": ["q0", "q1", "q2"]},
    {"tag": "all", "queue": "q2"},  # not each that is looked at matches
]


@pytest.mark.parametrize("by", BOUNDED, ids=repr)
@pytest.mark.parametrize("limit", [0, 1, 5, 12, 10**20])
def test_a_limit_is_the_most_that_a_selection_has(some, delayq, limits, by, limit):
    limits(selection_page=2)
    first = [one.id for one in delayq.select(**by)][: min(limit, 12)]
    selection = delayq.select(**by, limit=limit)

    assert [one.id for one in selection] == first
    assert selection.count() == selection.cancel(dry_run=True) == len(first)
    assert selection.reschedule(by=1) == len(first)
    assert selection.cancel() == len(first)
    assert {one.id for one in delayq.tasks()} == {f"t{n}" for n in range(12)} - {*first}


def test_a_limited_selection_goes_on_behind_its_cursor(some, delayq):
    met, cursor = [], None
    while (selection := delayq.select(tag="all", limit=5, cursor=cursor)).reschedule(by=60):
        met.append(len(list(selection)))
        cursor = selection.cursor
    assert met == [5, 5, 2]
    assert numbers(delayq.tasks(after_due=FAR + 60)) == list(range(12))


@pytest.mark.operations
def test_a_limit_counts_tasks_that_the_operation_leaves(some, delayq):
    assert delayq.select(tag="all", limit=4).retry() == 0
    assert delayq.select(tag="all", limit=4).release() == 4
    assert delayq.counts().scheduled == 12


def test_of_dead_tasks_a_few_are_retried(app, delayq):
    at(delayq, "dead", *"abcde")

    for dry_run in (True, False):
        assert delayq.select(state="dead", limit=2).retry(dry_run=dry_run) == 2
    assert delayq.counts().dead == 3


# Bad input.


ONE_OR_MORE = "expected one value, or a list of 1 to 100"
TAG = "expected text of 1 to 255 bytes, without NUL"
LIMIT = "expected a whole number of tasks from 0"


@pytest.mark.parametrize("many", ["select", "tasks"])
@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"tag": []}, f"tag is []; {ONE_OR_MORE}"),
        ({"queue": ()}, f"queue is (); {ONE_OR_MORE}"),
        ({"queue": [str(n) for n in range(MOST + 1)]}, ONE_OR_MORE),
        ({"task": ["a", ""]}, "task is ''; expected a task, or a task's name"),
        ({"queue": ["a", 1]}, "queue is 1; expected a queue's name"),
        ({"tag": ["a", "x\0y"]}, TAG),
        ({"tag": [["a"]]}, f"tag is ['a']; {TAG}"),
        ({"tag": {"a": 1}}, f"tag is {{'a': 1}}; {TAG}"),
        *(({"limit": wrong}, f"limit is {wrong!r}; {LIMIT}") for wrong in (-1, True, "5")),
        ({"after_due": "soon"}, "'soon' is not a due time"),
    ],
)
def test_a_wrong_value_is_refused_at_the_call(some, delayq, many, bad, sentence):
    given = bad if many == "tasks" else {"all": True, **bad}
    with pytest.raises((InvalidOption, InvalidDueTime)) as caught:
        getattr(delayq, many)(**given)
    assert sentence in str(caught.value)
    assert delayq.counts().scheduled == 12


@pytest.mark.parametrize("given", [1, "yes", None])
def test_the_direction_of_a_list_is_true_or_false(delayq, given):
    with pytest.raises(InvalidOption, match=r"newest_first is .*; expected true or false"):
        delayq.tasks(newest_first=given)


def test_a_tag_of_too_many_is_an_error_that_names_select(some, delayq, limits):
    limits(list_most=11)
    with pytest.raises(
        InvalidOption, match=r"tag is 'all'; expected a tag of at most .*use select"
    ):
        next(delayq.tasks(tag="all"))
    assert len(list(delayq.tasks(tag="tag 1"))) == 3


def test_a_task_being_published_is_not_waiting(app, delayq):
    options = {"exchange": "x", "routing_key": "x", "delayq_tags": ["x"]}
    app.send_task("t", task_id="a", delayq_at=LONG_AGO, **options)
    app.send_task("t", task_id="b", delayq_at=FAR, **options)
    take(delayq, "leased", "a")

    assert [one.id for one in delayq.tasks(tag="x")] == ["b"]
    assert {one.id for one in delayq.select(tag="x")} == {"a", "b"}


def test_tasks_of_a_list_tell_priority_and_cursor_by_tag_too(app, delayq):
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_tags=["x"], priority=6)

    [listed], [tagged] = delayq.tasks(), delayq.tasks(tag="x")
    assert tagged == listed
    assert (tagged.cursor, tagged.priority) == (listed.cursor, 6)
    assert list(delayq.tasks(tag="x", cursor=tagged.cursor)) == []

"""What is read of tasks: one of them, those of a filter, and as plain values."""

import base64
import copy
import dataclasses
import json
import math
import pickle
from datetime import datetime, timezone

import pytest
from pydantic import TypeAdapter

from celery_delayq import Outcome, ScheduledTask, State
from celery_delayq.core.tasks.reading import MOST
from celery_delayq.errors import InvalidDueTime, InvalidOption
from tests.app.support import FAR, LONG_AGO, redis_ms, redis_now, to_ms
from tests.support.places import at
from tests.support.shards import keys_of, with_one_shard

pytestmark = pytest.mark.core


# Reading one entry; content that must not be decoded is not decoded.


UTC = timezone.utc


class Mark:
    """Unpickling it leaves a mark."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_an_entry_has_what_was_scheduled(add, delayq, redis):
    before = redis_now(redis)
    result = add.s(1, y="ü").set(queue="mail").delay_until(FAR)

    task = delayq.get(result.id)

    assert isinstance(task, ScheduledTask)
    assert (task.id, task.task, task.queue) == (result.id, "add", "mail")
    assert (task.args, task.kwargs) == ((1,), {"y": "ü"})
    assert task.due == datetime.fromtimestamp(FAR, UTC)
    assert task.due.utcoffset().total_seconds() == task.created.utcoffset().total_seconds() == 0
    assert before <= task.created <= redis_now(redis)
    assert (task.state, task.reason) == (State.SCHEDULED, "")


@pytest.mark.parametrize("task_id", ["nobody", "*", "a" * 512])
def test_an_id_that_is_not_scheduled_gives_none(delayq, task_id):
    assert delayq.get(task_id) is delayq.state(task_id) is delayq.handed_over(task_id) is None


@pytest.mark.parametrize("compression", [None, "zlib", "bzip2"])
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_arguments_are_read_from_every_kind_of_message(delayq_app, url, compression, serializer):
    app = delayq_app(url, accept_content=["json", "pickle"])
    args, kwargs = ("ü", 2**70, [1.5, None], "x" * 3000), {"k": {"deep": True}}

    result = app.send_task(
        "t", args, kwargs, serializer=serializer, compression=compression, delayq_at=FAR
    )

    task = app.delayq.get(result.id)
    assert (task.task, task.args, task.kwargs) == ("t", args, kwargs)
    assert [(one.args, one.kwargs) for one in app.delayq.tasks()] == [(args, kwargs)]


def test_a_pickle_is_never_read_by_an_app_that_does_not_accept_it(app, delayq, tmp_path):
    mark = tmp_path / "mark"
    result = app.send_task("t", (Mark(mark),), serializer="pickle", delayq_at=FAR)

    tasks = [delayq.get(result.id), *delayq.tasks()]

    assert [(task.args, task.kwargs) for task in tasks] == [(None, None)] * 2
    assert {task.task for task in tasks} == {"t"}
    assert delayq.cancel(result.id)
    assert not mark.exists()


def test_the_mark_that_proves_it_is_left_by_an_app_that_accepts_pickles(delayq_app, url, tmp_path):
    app = delayq_app(url, accept_content=["pickle"])
    mark = tmp_path / "mark"
    result = app.send_task("t", (Mark(mark),), serializer="pickle", delayq_at=FAR)

    app.delayq.get(result.id).args[0].close()

    assert mark.exists()


def test_nothing_is_unpickled_that_somebody_else_put_into_redis(app, delayq, redis, tmp_path):
    mark = tmp_path / "mark"
    app.send_task("t", ("x" * 40,), task_id="a", serializer="pickle", delayq_at=FAR)
    record = redis.hget(keys_of("a")["records"], "a")
    message = json.loads(delayq.services.entries.find("a").message)
    evil = base64.b64encode(pickle.dumps(((Mark(mark),), {}, {}))).decode()
    forged = record.replace(message["body"].encode(), evil.encode())
    assert forged != record
    redis.hset(keys_of("a")["records"], "a", forged)

    assert delayq.get("a").args is None
    assert [task.args for task in delayq.tasks()] == [None]
    assert delayq.cancel("a")
    assert not mark.exists()


def test_arguments_do_not_show_in_the_repr(add, delayq):
    result = add.delay_until(FAR, "a secret")

    assert "a secret" not in repr(delayq.get(result.id))
    assert "a secret" not in repr(list(delayq.tasks()))


def test_a_body_that_cannot_be_decoded_hides_its_arguments_and_nothing_else(app, delayq, redis):
    for number, compression in enumerate(["zlib", "bzip2", None]):
        task_id = str(number)
        app.send_task("t", ("x" * 99,), task_id=task_id, compression=compression, delayq_at=FAR)
        body = json.loads(delayq.services.entries.find(task_id).message)["body"].encode()
        record = redis.hget(keys_of(task_id)["records"], task_id)
        redis.hset(keys_of(task_id)["records"], task_id, record.replace(body, b"A" * len(body)))

    assert [delayq.get(str(number)).args for number in range(3)] == [None] * 3
    assert [(task.task, task.args) for task in delayq.tasks()] == [("t", None)] * 3


def test_the_time_of_delivery_is_known_apart_from_the_due_time(add, delayq, redis):
    result = add.delay_until(LONG_AGO, 1)
    assert delayq.handed_over(result.id) is None
    before = math.floor(redis_ms(redis))

    delayq.hand_over()

    when = delayq.handed_over(result.id)
    assert before <= to_ms(when) <= redis_ms(redis)
    assert when.utcoffset().total_seconds() == 0


def test_a_header_that_kombu_cannot_decode_hides_no_task(add, delayq):
    broken = {"x": {"__type__": "decimal", "__value__": "none"}}
    add.apply_async((1,), task_id="first", delayq_at=FAR)
    add.apply_async((2,), task_id="broken", delayq_at=FAR, headers=broken)
    add.apply_async((3,), task_id="last", delayq_at=FAR)

    assert [task.id for task in delayq.tasks()] == ["first", "broken", "last"]
    assert delayq.get("broken").reason.startswith("its message cannot be read: ")


# Several values in a filter, and limits: in ``select`` and in ``tasks``.


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


# A task and an outcome as plain values: for JSON, for FastAPI, for comparisons.


@pytest.fixture
def task(app, delayq):
    app.send_task("t", (1,), {"y": [2]}, task_id="a", delayq_at=FAR, priority=3, queue="mail")
    return delayq.get("a")


def test_the_facts_of_a_task_are_json_values(task):
    facts = task.facts()

    assert (
        json.loads(json.dumps(facts, allow_nan=False))
        == facts
        == {
            "id": "a",
            "task": "t",
            "args": [1],
            "kwargs": {"y": [2]},
            "queue": "mail",
            "due": "2100-01-01T00:00:00+00:00",
            "created": task.created.isoformat(),
            "changed": task.created.isoformat(),
            "revision": task.revision,
            "host": task.host,
            "state": "SCHEDULED",
            "priority": 3,
        }
    )


def test_the_facts_of_a_task_and_its_copy_unpickle_nothing_and_show_nothing_hidden(
    delayq_app, url, tmp_path
):
    app, mark = delayq_app(url, accept_content=["pickle", "json"]), tmp_path / "mark"
    app.send_task("t", (Mark(mark),), task_id="a", serializer="pickle", delayq_at=FAR)
    secrets = ("s3cret",), {"k": "s3cret"}
    app.send_task("t", *secrets, task_id="b", argsrepr="***", delayq_at=FAR)
    app.send_task("t", *secrets, task_id="c", kwargsrepr="{***}", delayq_at=FAR)

    pickled, hidden, more = (app.delayq.get(one).facts() for one in "abc")

    assert copy.copy(app.delayq.get("a")).args is None
    assert not mark.exists()
    assert (pickled["args"], hidden["args"], hidden["argsrepr"]) == (None, None, "***")
    assert (more["kwargs"], more["kwargsrepr"]) == (None, "{***}")
    assert (hidden["kwargs"], more["args"]) == ({"k": "s3cret"}, ["s3cret"])
    assert json.dumps([hidden, more]).count("s3cret") == 2


def test_the_facts_of_a_dead_task_say_why(app, delayq):
    at(delayq, "dead", queue="celery")
    [dead] = delayq.select(state="DEAD")

    assert dead.facts()["reason"].startswith("celery")
    assert json.dumps(dead.facts())


def test_a_task_as_a_dictionary_has_no_app_and_no_message(task):
    values = dataclasses.asdict(task)

    assert [name for name in values if name.startswith("_")] == []
    assert values["id"] == "a"
    assert values["cursor"] == ""
    assert json.dumps(values, default=str)
    assert dataclasses.asdict(dataclasses.replace(task, queue="x"))["queue"] == "x"
    assert "Celery" not in repr(task)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))]
)
def test_a_copy_is_equal_and_has_no_app_and_so_no_password(app, delayq, task, copied):
    app.conf.a_secret = "s3cret"
    app.send_task("t", ("hidden",), task_id="b", argsrepr="***", delayq_at=FAR)
    hidden = copied(delayq.get("b"))

    assert b"s3cret" not in pickle.dumps(task)
    assert (copied(task), copied(task).args, copied(task).facts()) == (task, (1,), task.facts())
    assert (hidden.facts()["args"], hidden.args) == (None, ("hidden",))


def test_pydantic_and_so_fastapi_show_the_same(task):
    adapter = TypeAdapter(type(task))

    shown = json.loads(adapter.dump_json(task))

    assert shown.keys() == dataclasses.asdict(task).keys()
    assert adapter.validate_python(task) == task


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_its_text_and_only_done_is_true(outcome):
    assert outcome == outcome.value
    assert json.dumps({"outcome": outcome}) == f'{{"outcome": "{outcome.value}"}}'
    assert f"{outcome}" == str(outcome) == f"Outcome.{outcome.name}"
    assert {outcome.value: 1}[outcome] == 1
    assert bool(outcome) is (outcome is Outcome.DONE)
    assert outcome != outcome.name


def test_a_task_s_state_is_text_too(task):
    assert json.dumps(task.state) == '"SCHEDULED"'
    assert task.state is State.SCHEDULED

"""`delayq.edit` of queue, key and tags: the task goes to its new queue, and is found by them."""

import pytest
from celery import chain
from kombu import Exchange, Queue

from celery_delayq import Outcome
from celery_delayq.core.store.keys import shard_of
from celery_delayq.errors import AlreadyScheduled, InvalidOption, KeyHeld, NotATask
from tests.app.support import FAR, LONG_AGO, comparable

QUEUES = [
    Queue("celery"),
    Queue("mail"),
    Queue("expiring", queue_arguments={"x-expires": 60_000}),
    Queue("topics", Exchange("things", type="topic"), routing_key="a.b"),
    Queue("unsafe", Exchange("unsafe", delivery_mode="transient")),
]


def ids(selection):
    return [one.id for one in selection]


# Queue.


@pytest.mark.parametrize("queue", [one.name for one in QUEUES])
@pytest.mark.parametrize("before", ["celery", "expiring"])
def test_the_message_is_that_of_a_call_with_this_queue(delayq_app, url, before, queue):
    app = delayq_app(url, task_queues=QUEUES)

    @app.task(name="add")
    def add(x):
        return x

    add.apply_async((1,), task_id="a", queue=queue, delayq_at=FAR, priority=4)
    expected = app.delayq.services.entries.find("a")
    app.delayq.cancel("a")
    add.apply_async((1,), task_id="a", queue=before, delayq_at=FAR, priority=4)

    assert app.delayq.edit("a", queue=queue) is Outcome.DONE

    found = app.delayq.services.entries.find("a")
    assert found.record.destination == expected.record.destination
    assert found.record.is_for_list == expected.record.is_for_list
    assert found.record.labels == expected.record.labels
    assert comparable(found.message) == comparable(expected.message)
    assert ids(app.delayq.select(queue=queue)) == ["a"]
    assert not list(app.delayq.check())


def test_a_pause_of_its_new_queue_holds_an_edited_task(app, add, delayq):
    delayq.pause(queue="new")
    add.apply_async((1,), task_id="a", queue="old", delayq_at=LONG_AGO)

    assert delayq.edit("a", queue="new")

    assert delayq.hand_over() == 0
    assert delayq.get("a").paused_by == ("queue new",)


def test_the_app_s_routes_apply(delayq_app, url):
    app = delayq_app(url, task_routes={"add": {"routing_key": "a.c", "exchange": "things"}})
    app.send_task("add", task_id="a", queue="topics", delayq_at=FAR)
    expected = app.delayq.services.entries.find("a").record.destination
    app.delayq.cancel("a")
    app.send_task("add", task_id="a", exchange="", routing_key="mail", delayq_at=FAR)

    assert app.delayq.edit("a", queue="topics")

    assert app.delayq.services.entries.find("a").record.destination == expected


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "edit"),
        *(({"queue": wrong}, "queue") for wrong in ("nowhere", "", 5)),
        *(({"key": wrong}, "key") for wrong in ("", "x" * 256, "a\0b", 5)),
        *(({"add_tags": wrong}, "add_tags") for wrong in ("one", ["x" * 256], [5])),
        *(({"add_tags": [f"t{n}" for n in range(many)]}, "add_tags") for many in (16, 17)),
        *(({"remove_tags": wrong}, "remove_tags") for wrong in ("one", [""])),
    ],
    ids=repr,
)
def test_an_invalid_option_is_refused_by_its_name_and_writes_nothing(
    delayq_app, url, changes, name
):
    app = delayq_app(url, task_queues=QUEUES, task_create_missing_queues=False)
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k", delayq_tags=["one"])
    before = app.delayq.get("a")

    with pytest.raises(InvalidOption) as caught:
        app.delayq.edit("a", **changes)

    assert caught.value.name == name
    assert app.delayq.get("a") == before


def test_of_a_canvas_only_key_and_tags_change(app, add, delayq):
    delayq.schedule(chain(add.s(1), add.s(2)).set(task_id="a"), at=FAR)
    (task,) = delayq.tasks()

    before = delayq.get(task)
    message = {"args": [1]}, {"priority": 3}, {"task": "add"}, {"change": lambda *_: None}
    for changes in ({"queue": "new"}, *message):
        with pytest.raises(NotATask) as caught:
            delayq.edit(task, **changes)
        assert str(caught.value) == (
            "task_id is 'a'; expected a task; cancel a canvas and schedule it again"
        )
    assert delayq.get(task) == before
    assert delayq.edit(task, key="k", add_tags=["t"])

    assert (delayq.get(task).key, delayq.get(task).tags) == ("k", ("t",))


# Key.


def test_another_key_names_the_edited_task_and_the_old_one_is_free(add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_key="old", delayq_tags=["t"])

    assert delayq.edit("a", key="new")

    assert delayq.get(key="new").id == "a"
    assert delayq.get(key="old") is None
    add.apply_async((1,), task_id="b", delayq_at=FAR, delayq_key="old")
    with pytest.raises(AlreadyScheduled):
        add.apply_async((1,), task_id="c", delayq_at=FAR, delayq_key="new")
    assert delayq.edit("a", key=None)
    assert (delayq.get("a").key, delayq.get("a").tags) == ("", ("t",))
    assert delayq.get(key="new") is None
    assert not list(delayq.check())


@pytest.mark.parametrize(
    ("due", "error"), [(FAR, AlreadyScheduled), (LONG_AGO, KeyHeld)], ids=["waits", "runs"]
)
def test_a_key_that_another_task_has_is_refused_and_nothing_is_written(add, delayq, due, error):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_key="old")
    options = {"delayq_key": "new", "delayq_unique_until": "finished"}
    add.apply_async((1,), task_id="b", delayq_at=due, **options)
    delayq.hand_over()
    before = delayq.get("a")

    with pytest.raises(error) as caught:
        delayq.edit("a", key="new", add_tags=["t"], args=(2,))

    assert (type(caught.value), caught.value.holder) == (error, "b")
    assert delayq.get("a") == before
    assert delayq.get(key="old").id == "a"


def test_a_new_key_holds_as_long_as_the_old_one(app, add, delayq):
    options = {"delayq_key": "old", "delayq_unique_until": "finished", "delayq_unique_for": 60}
    add.apply_async((1,), task_id="a", delayq_at=LONG_AGO, **options)

    assert delayq.edit("a", key="new")

    delayq.hand_over()
    with pytest.raises(KeyHeld):
        add.apply_async((1,), delayq_at=FAR, delayq_key="new")
    add.apply_async((1,), delayq_at=FAR, delayq_key="old")


def test_a_key_of_another_shard_is_refused(delayq_app, url):
    app = delayq_app(url, delayq_url=url, delayq_shards=3)
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    here = shard_of("k", 3)
    keys = [f"key{n}" for n in range(50)]
    near = next(one for one in keys if shard_of(one, 3) == here)
    far = next(one for one in keys if shard_of(one, 3) != here)
    before = app.delayq.get("a")

    with pytest.raises(InvalidOption) as caught:
        app.delayq.edit("a", key=far)
    assert caught.value.name == "key"
    assert app.delayq.get("a") == before

    assert app.delayq.edit("a", key=near)
    assert app.delayq.get(key=near).id == "a"


# Tags.


def test_new_tags_select_an_edited_task_at_once(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_tags=["one", "two"])

    assert delayq.edit("a", add_tags=["three", "two"], remove_tags=["one", "none"])

    assert delayq.get("a").tags == ("two", "three")
    tagged = {tag: ids(delayq.select(tag=tag)) for tag in ("one", "two", "three")}
    assert tagged == {"one": [], "two": ["a"], "three": ["a"]}
    assert not list(delayq.check())


def test_sixteen_tags_are_allowed_and_a_result_takes_the_same(add, delayq):
    result = add.s(1).set(delayq_tags=["one"]).delay_until(FAR)

    tags = [f"t{n}" for n in range(16)]
    assert result.edit(queue="new", key="k", add_tags=tags, remove_tags=["one"])

    found = delayq.get(key="k")
    assert (found.id, found.queue, found.tags) == (result.id, "new", tuple(tags))

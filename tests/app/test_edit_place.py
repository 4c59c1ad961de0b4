"""`delayq.edit` of queue, key and tags: the task goes to its new queue, and is found by them."""

import pytest
from celery import chain
from kombu import Exchange, Queue

from celery_delayq import Outcome
from celery_delayq.core.store.keys import shard_of
from celery_delayq.errors import AlreadyScheduled, InvalidOption, KeyHeld, NotATask
from tests.app.support import FAR, LONG_AGO, comparable, only_message

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


def test_it_goes_to_its_new_queue(app, add, delayq, redis):
    add.apply_async((1,), task_id="a", queue="old", delayq_at=LONG_AGO)

    assert delayq.edit("a", queue="new", priority=6)

    delayq.hand_over()
    key, raw = only_message(redis)
    assert key == b"new\x06\x166"
    assert comparable(raw)["properties"]["delivery_info"]["routing_key"] == "new"


def test_it_leaves_the_pause_of_its_old_queue(app, add, delayq, redis):
    delayq.pause(queue="old")
    add.apply_async((1,), task_id="a", queue="old", delayq_at=LONG_AGO)
    delayq.hand_over()
    assert delayq.get("a").paused_by == ("queue old",)

    assert delayq.edit("a", queue="new")

    assert delayq.hand_over() == 1
    assert redis.llen("new") == 1


def test_a_pause_of_its_new_queue_holds_it(app, add, delayq):
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
        ({"queue": "nowhere"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"queue": 5}, "queue"),
        ({"key": ""}, "key"),
        ({"key": "x" * 256}, "key"),
        ({"key": "a\0b"}, "key"),
        ({"key": 5}, "key"),
        ({"add_tags": "one"}, "add_tags"),
        ({"add_tags": ["x" * 256]}, "add_tags"),
        ({"add_tags": [5]}, "add_tags"),
        ({"add_tags": [f"t{n}" for n in range(17)]}, "add_tags"),
        ({"add_tags": [f"t{n}" for n in range(16)]}, "add_tags"),  # it has one
        ({"remove_tags": "one"}, "remove_tags"),
        ({"remove_tags": [""]}, "remove_tags"),
        ({"priority": 5, "if_revision": "5"}, "if_revision"),
        ({"priority": 5, "if_revision": True}, "if_revision"),
        ({"priority": 5, "if_revision": -1}, "if_revision"),
        ({}, "edit"),
    ],
)
def test_an_invalid_option_is_refused_by_its_name_and_writes_nothing(
    delayq_app, url, redis, changes, name
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

    with pytest.raises(NotATask, match="expected a task; cancel a canvas"):
        delayq.edit(task, queue="new")
    assert delayq.edit(task, key="k", add_tags=["t"])

    assert (delayq.get(task).key, delayq.get(task).tags) == ("k", ("t",))


@pytest.mark.parametrize("how", ["handed over", "cancelled", "never"])
def test_an_edit_of_a_task_that_does_not_wait_says_so_and_writes_nothing(app, add, delayq, how):
    expected = Outcome.HANDED_OVER if how == "handed over" else Outcome.NOT_FOUND
    if how != "never":
        add.apply_async((1,), task_id="a", delayq_at=LONG_AGO, delayq_key="k")
        delayq.hand_over() if how == "handed over" else delayq.cancel("a")

    assert delayq.edit("a", queue="new", key="other", add_tags=["t"]) is expected

    assert delayq.get("a") is None
    assert delayq.get(key="other") is None
    assert not list(delayq.check())


# Key.


def test_another_key_names_it_and_the_old_one_is_free(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_key="old")

    assert delayq.edit("a", key="new")

    assert delayq.get(key="new").id == "a"
    assert delayq.get(key="old") is None
    add.apply_async((1,), task_id="b", delayq_at=FAR, delayq_key="old")
    with pytest.raises(AlreadyScheduled):
        add.apply_async((1,), task_id="c", delayq_at=FAR, delayq_key="new")
    assert delayq.cancel(key="new")
    assert delayq.get("a") is None
    assert not list(delayq.check())


def test_none_takes_its_key_away(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_key="old", delayq_tags=["t"])

    assert delayq.edit("a", key=None)

    assert (delayq.get("a").key, delayq.get("a").tags) == ("", ("t",))
    assert delayq.get(key="old") is None


def test_a_key_that_another_task_has_is_refused_and_nothing_is_written(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_key="old")
    add.apply_async((1,), task_id="b", delayq_at=FAR, delayq_key="new")
    before = delayq.get("a")

    with pytest.raises(AlreadyScheduled) as caught:
        delayq.edit("a", key="new", add_tags=["t"], args=(2,))

    assert (type(caught.value), caught.value.holder) == (AlreadyScheduled, "b")
    assert delayq.get("a") == before
    assert delayq.get(key="old").id == "a"


def test_a_key_that_a_task_holds_until_it_has_finished_is_refused(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR)
    add.apply_async(
        (1,), task_id="b", delayq_at=LONG_AGO, delayq_key="k", delayq_unique_until="finished"
    )
    delayq.hand_over()

    with pytest.raises(KeyHeld) as caught:
        delayq.edit("a", key="k")

    assert caught.value.holder == "b"
    assert delayq.get("a").key == ""


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


def test_tags_select_it_at_once(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_tags=["one", "two"])

    assert delayq.edit("a", add_tags=["three", "two"], remove_tags=["one", "none"])

    assert delayq.get("a").tags == ("two", "three")
    tagged = {tag: ids(delayq.select(tag=tag)) for tag in ("one", "two", "three")}
    assert tagged == {"one": [], "two": ["a"], "three": ["a"]}
    assert not list(delayq.check())


def test_sixteen_tags_are_allowed(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_tags=["one"])

    assert delayq.edit("a", add_tags=[f"t{n}" for n in range(16)], remove_tags=["one"])

    assert len(delayq.get("a").tags) == 16


def test_tags_change_when_the_record_grows_too(app, add, delayq):
    add.apply_async((1,), task_id="a", delayq_at=FAR, delayq_tags=["one", "two"])

    assert delayq.edit("a", args=("x" * 9000,), add_tags=["three"], remove_tags=["one"])
    assert delayq.edit("a", args=(1,), remove_tags=["two"])

    tagged = {tag: ids(delayq.select(tag=tag)) for tag in ("one", "two", "three")}
    assert tagged == {"one": [], "two": [], "three": ["a"]}
    assert not list(delayq.check())


def test_a_result_takes_the_same(app, add):
    result = add.delay_until(FAR, 1)

    assert result.edit(queue="new", key="k", add_tags=["t"])

    found = app.delayq.get(key="k")
    assert (found.id, found.queue, found.tags) == (result.id, "new", ("t",))

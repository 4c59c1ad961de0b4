"""`delayq.edit` of queue, key and tags, of one task or of many: where it goes, who finds it."""

import pytest
from celery import chain
from kombu import Exchange, Queue

from celery_delayq import Outcome
from celery_delayq.core import clock
from celery_delayq.core.store.keys import shard_of
from celery_delayq.errors import (
    AlreadyScheduled,
    InvalidOption,
    KeyHeld,
    NotATask,
    StoreUnavailable,
)
from celery_delayq.operations import selection as rewriting
from tests.app.support import FAR, LONG_AGO, Killed, comparable, lists
from tests.support.shards import each
from tests.support.waiting import PATIENCE

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


# `select(...).edit(...)`: the same edit of many tasks, in steps.


@pytest.fixture
def fill(delayq, add):
    def fill(count=120, due=FAR, queue="old", **options):
        signature = add.s(1).set(queue=queue, delayq_tags=["t"], **options)
        assert delayq.schedule_many(signature, [((), {}, due)] * count)

    return fill


def test_the_tasks_of_a_renamed_queue_go_to_the_new_one(fill, delayq, redis):
    fill(due=LONG_AGO)
    fill(3, queue="other", due=LONG_AGO)
    before = list(delayq.select(all=True))

    selection = delayq.select(queue="old")
    assert selection.edit(queue="new", add_tags=["moved"], dry_run=True) == 120
    assert list(delayq.select(all=True)) == before

    assert selection.edit(queue="new", add_tags=["moved"]) == 120
    assert delayq.select(queue="old").count() == 0
    assert delayq.select(tag="moved", queue="new").count() == 120
    assert not list(delayq.check())
    while delayq.hand_over():
        pass
    assert {key: redis.llen(key) for key in lists(redis)} == {b"new": 120, b"other": 3}


def test_tasks_whose_messages_cannot_be_read_are_counted_and_stay(fill, delayq, app, redis):
    fill(3)  # the first one has its message whole
    for templates in each("templates"):
        redis.delete(templates)
    app.send_task("t", delayq_at=FAR)

    count = delayq.select(all=True).edit(priority=3)

    assert (count, count.unreadable, count.is_complete) == (2, 2, False)
    assert delayq.select(task="t").edit(priority=3).is_complete


def test_an_edit_of_many_reports_its_steps_and_goes_on_after_a_kill_by_its_cursor(fill, delayq):
    fill(2500)
    selection, stored = delayq.select(queue="old"), []

    def store(count):
        stored.append((int(count), selection.cursor))
        if len(stored) == 20:
            raise Killed

    with pytest.raises(Killed):
        selection.edit(queue="new", progress=store)
    done, cursor = stored[-1]
    assert done == delayq.select(queue="new").count() == 20 * rewriting.STEP

    assert delayq.select(queue="old", cursor=cursor).edit(queue="new") == 2500 - done
    assert delayq.select(queue="new").count() == 2500


def test_a_task_changed_after_it_was_read_is_read_again(between, fill, delayq):
    fill(3)
    overtaken = []

    def overtake():
        if not overtaken:
            overtaken.extend(delayq.tasks())
            assert all(delayq.edit(task, add_tags=["theirs"]) for task in overtaken)

    between.before("rewrite", overtake)

    assert delayq.select(queue="old").edit(add_tags=["ours"]) == 3

    assert {one.tags for one in delayq.select(all=True)} == {("t", "theirs", "ours")}


def test_tasks_that_others_keep_changing_are_left_as_they_are(between, fill, delayq, monkeypatch):
    fill(3)
    now = clock.monotonic

    def overtake():
        # The first request is refused, as it was overtaken; the next tells what was changed.
        if between.asked["rewrite"] == 1:
            assert all(delayq.reschedule(task, by=1) for task in list(delayq.tasks()))

    def let_time_pass():
        if between.asked["rewrite"] == 2:
            monkeypatch.setattr(clock, "monotonic", lambda: now() + PATIENCE)

    between.before("rewrite", overtake)
    between.after("rewrite", let_time_pass)

    with pytest.raises(StoreUnavailable) as caught:
        delayq.select(queue="old").edit(add_tags=["ours"])

    assert "other processes keep changing the same tasks" in str(caught.value)
    assert not caught.value.may_have_run
    assert {one.tags for one in delayq.select(all=True)} == {("t",)}


def test_a_canvas_among_them_is_refused_before_anything_is_written(fill, delayq, add):
    fill(60)  # more than a step
    delayq.schedule(chain(add.s(1), add.s(2)), at=FAR, tags=["t"])

    for changes in ({"queue": "new"}, {"task": "add"}, {"change": lambda *_: None}):
        with pytest.raises(NotATask):
            delayq.select(tag="t").edit(**changes)
    assert delayq.select(queue="new").count() == 0

    assert delayq.select(tag="t").edit(add_tags=["new"]) == 61


@pytest.mark.parametrize(
    ("changes", "name"),
    [({}, "edit"), ({"key": "k"}, "key"), ({"queue": "nowhere"}, "queue")],
    ids=repr,
)
def test_an_invalid_edit_of_many_is_refused_and_changes_none(delayq_app, url, changes, name):
    app = delayq_app(url, task_queues=[Queue("old")], task_create_missing_queues=False)
    app.send_task("t", task_id="a", queue="old", delayq_at=FAR)
    before = app.delayq.get("a")

    with pytest.raises(InvalidOption) as caught:
        app.delayq.select(queue="old").edit(**changes)

    assert (caught.value.name, caught.value.so_far or 0) == (name, 0)
    assert app.delayq.get("a") == before


def test_a_task_that_would_have_too_many_tags_stops_the_edit_and_is_named(fill, delayq, add):
    add.s(1).set(task_id="full", delayq_tags=[f"t{n}" for n in range(16)]).delay_until(FAR)

    with pytest.raises(InvalidOption, match="at most 16 tags of a task; full would have 17"):
        delayq.select(all=True).edit(add_tags=["new"])


def test_tasks_that_expire_before_they_are_due_have_one_warning_a_step(fill, delayq, caplog):
    fill(3)

    assert delayq.select(all=True).edit(expires=-60) == 3

    (said,) = [one.message for one in caplog.records if "no worker will run it" in one.message]
    assert said.endswith("; the same applies to 2 more")

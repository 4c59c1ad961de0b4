"""`select(...).edit(...)`: the same edit of many tasks, in steps."""

import pytest
from celery import chain
from kombu import Queue

from celery_delayq.core import clock
from celery_delayq.errors import InvalidOption, NotATask, StoreUnavailable
from celery_delayq.operations import selection as rewriting
from tests.app.support import FAR, LONG_AGO, Killed, lists
from tests.support.shards import each
from tests.support.waiting import PATIENCE


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

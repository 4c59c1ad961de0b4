"""`delayq.history()`: the latest steps of all shards, as many as the setting keeps."""

from datetime import timezone
from threading import Thread

import pytest

from celery_delayq.core.clock import from_ms
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store import What
from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO, redis_ms
from tests.support.places import at
from tests.support.shards import each, keys_of, with_one_shard
from tests.support.waiting import eventually

LENGTH = 25


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, delayq_history=LENGTH)


def told(delayq, **options):
    return [(event.what, event.id) for event in delayq.history(**options)]


def let_time_pass(redis):
    """Let the next event be the newest: two lists have them in order by the millisecond."""
    now = redis_ms(redis)
    eventually(lambda: redis_ms(redis) > now + 1)


def tagged(app, count):
    """The ids of so many new tasks with the tag ``x``."""
    items = [((), {}, FAR, f"a{number}") for number in range(count)]
    return app.delayq.schedule_many(app.signature("t").set(delayq_tags=["x"]), items).ids


def test_the_history_has_the_newest_first_with_names_and_times(app, add, delayq):
    before = delayq.counts().now_ms
    app.send_task("add", task_id="a", delayq_at=FAR)
    app.send_task("add", task_id="b", queue="mail", delayq_at=LONG_AGO)
    delayq.cancel("a")
    delayq.hand_over()

    expected = [("handed_over", "b"), ("cancelled", "a"), ("scheduled", "b"), ("scheduled", "a")]
    assert told(delayq) == expected
    assert told(delayq, limit=2) == expected[:2]
    assert told(delayq, limit=0) == []
    event = delayq.history()[-1]
    assert (event.key, event.task, event.queue) == ("", "add", "celery")
    assert from_ms(before) <= event.when <= from_ms(delayq.counts().now_ms)
    assert event.due.timestamp() == FAR
    assert event.when.tzinfo is event.due.tzinfo is timezone.utc


def test_names_that_this_app_does_not_know_are_empty(app, delayq):
    app.send_task("nobody's", task_id="a", queue="elsewhere", delayq_at=FAR)
    delayq.cancel("a")
    app.amqp.queues.pop("elsewhere", None)

    event, _ = delayq.history()

    assert (event.id, event.task, event.queue) == ("a", "", "")


def test_a_name_that_only_other_processes_know_is_that_of_a_task_in_the_store(app, delayq):
    for task_id in ("a", "b"):
        app.send_task("nobody's", task_id=task_id, delayq_at=FAR)
    delayq.cancel("a")

    assert [(event.id, event.task) for event in delayq.history()] == [
        ("a", "nobody's"), ("b", "nobody's"), ("a", "nobody's"),
    ]  # fmt: skip


@pytest.mark.parametrize("error", [None, ImportError("no module named 'shop.tasks'")], ids=repr)
def test_a_task_of_a_module_that_only_workers_import_has_its_name_if_it_can_be_imported(
    app, delayq, found_by_workers, caplog, error
):
    found_by_workers("shop.remind", error=error)
    app.send_task("shop.remind", task_id="a", delayq_at=FAR)
    delayq.cancel("a")

    assert [event.task for event in delayq.history()] == ["" if error else "shop.remind"] * 2
    said = "not all of the app's tasks could be imported: ImportError("
    assert (said in caplog.text) == bool(error)


@pytest.mark.parametrize("by", ["waiting task", "pause"])
def test_a_queue_that_no_app_declares_has_its_name(app, delayq_app, url, by):
    app.send_task("t", task_id="a", queue="elsewhere", delayq_at=FAR)
    if by == "pause":
        app.delayq.cancel("a")
        app.delayq.pause(queue="elsewhere")
    reader = delayq_app(url, delayq_history=LENGTH)

    told = {event.queue for event in reader.delayq.history()}

    assert "elsewhere" not in reader.amqp.queues
    assert told == {"elsewhere"}


def test_no_more_is_asked_where_the_app_has_all_queues(app, delayq, between):
    app.send_task("t", queue="celery", delayq_at=FAR)

    assert [event.queue for event in delayq.history()] == ["celery"]
    assert between.asked["history"]
    assert not between.asked.keys() & {"pauses", "queues"}


def test_arguments_are_no_part_of_the_history(app, delayq, redis):
    app.send_task("t", ("a secret",), {"k": "another secret"}, delayq_at=FAR)

    assert "secret" not in repr(delayq.history())
    assert not [
        one for key in each("history") for one in redis.lrange(key, 0, -1) if b"secret" in one
    ]


CHANGES = {
    "cancelled": lambda tasks: tasks.cancel(),
    "rescheduled": lambda tasks: tasks.reschedule(by=60),
    "edited": lambda tasks: tasks.edit(priority=3),
    "run_now": lambda tasks: tasks.run_now(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_many_is_one_event_and_pushes_no_task_s_event_out(app, delayq, what):
    app.send_task("t", task_id="alone", delayq_at=FAR)
    delayq.cancel("alone")
    tagged(app, LENGTH - 2)  # so that the list of tasks is full
    before = told(delayq)
    app.conf.delayq_undo = (3600, 1000)

    with delayq.acting("ann"):
        done = CHANGES[what](delayq.select(tag="x"))
        undone = delayq.undo_all(done.bulk) if done.bulk else None

    line = delayq.history()[1 if undone else 0]
    assert (line.what, line.count, line.actor) == (what, LENGTH - 2, "ann")
    assert [one for one in told(delayq) if one[1]] == before
    lines = 2 if undone else 1
    parts = min(LENGTH, lines * (LENGTH - 2))
    assert len(delayq.history(bulk=line.bulk)) == lines + parts
    if undone:
        first = delayq.history(1)[0]
        assert (first.what, first.count, first.bulk) == ("undone", LENGTH - 2, done.bulk)


def test_changes_that_take_turns_have_an_event_each(app, delayq, limits):
    limits(selection_chunk=2)
    tagged(app, 9)
    other = delayq.select(tag="x")

    def both(_):
        further = delayq.select(tag="x", limit=1)
        further.bulk = other.bulk
        further.edit(priority=1)

    delayq.select(tag="x").reschedule(by=60, progress=both)

    found = [(event.what, event.count) for event in delayq.history(3)]
    assert sorted(found[:2]) == [("edited", 5), ("rescheduled", 9)]
    assert found[2][0] == "scheduled"


@with_one_shard
def test_what_a_receiver_does_in_between_is_no_part_of_the_change(app, delayq, redis):
    def aside(_):
        let_time_pass(redis)
        app.send_task("t", task_id="aside", delayq_at=FAR)

    tagged(app, 3)
    let_time_pass(redis)
    delayq.select(tag="x").reschedule(by=60, progress=aside)
    assert told(delayq, limit=2) == [("scheduled", "aside"), ("rescheduled", "")]


@pytest.mark.parametrize("given", [{"bulk": ""}, {"bulk": 5}, {"bulk": "x", "of": "a"}], ids=str)
def test_a_bulk_that_is_none_is_an_error(delayq, given):
    with pytest.raises(InvalidOption, match="expected the bulk of an Event"):
        delayq.history(**given)


def test_the_removal_of_an_unreadable_task_is_recorded(app, delayq, redis):
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    redis.hset(keys_of("a")["records"], "a", "9")
    delayq.hand_over()

    assert delayq.select(state="dead").remove() == 1

    assert told(delayq) == [("removed", ""), ("dead", "a"), ("scheduled", "a")]
    assert told(delayq, of="a") == [("removed", "a"), ("dead", "a"), ("scheduled", "a")]
    assert delayq.history(of="a")[0].due is None


def test_each_change_says_who_made_it(app, delayq, redis):
    redis.set("celery", "no list")
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    at(delayq, "dead", "dead", queue="celery")
    with delayq.acting("ann@support"):
        delayq.reschedule("a", by=60)
        delayq.edit("a", priority=3)
        delayq.run_now("a")
        delayq.retry("dead")
        delayq.pause(queue="mail")
        with delayq.acting("bob"):
            delayq.resume(queue="mail")
        delayq.pause(task="t")
        delayq.pause(all=True)
        delayq.cancel("a")
    app.send_task("t", task_id="b", delayq_at=FAR)

    events = [(event.what, event.id or event.queue or event.task, event.actor)
              for event in reversed(delayq.history())]  # fmt: skip
    ann = "ann@support"
    # Tasks and pauses have a list each, and a quick machine writes to both in one millisecond.
    pauses = [event for event in events if event[0] in ("paused", "resumed")]
    assert pauses == [
        ("paused", "mail", ann), ("resumed", "mail", "bob"), ("paused", "t", ann),
        ("paused", "", ann),
    ]  # fmt: skip
    assert [event for event in events if event not in pauses][3:] == [
        ("rescheduled", "a", ann), ("edited", "a", ann), ("run_now", "a", ann),
        ("retried", "dead", ann), ("cancelled", "a", ann), ("scheduled", "b", ""),
    ]  # fmt: skip
    assert {event.key for event in delayq.history(of="a")} == {"k"}


def test_a_change_of_many_that_was_cut_short_is_told_with_its_number_and_goes_on(app, delayq):
    tagged(app, 6)

    def stop(count):
        raise KeyboardInterrupt

    tasks = delayq.select(tag="x")
    with pytest.raises(KeyboardInterrupt):
        tasks.reschedule(by=60, progress=stop)
    done = sum(task.due.timestamp() > FAR for task in delayq.tasks())
    assert (delayq.history()[0].what, delayq.history()[0].count) == ("rescheduled", done)

    further = delayq.select(tag="x", cursor=tasks.cursor)
    further.bulk = tasks.bulk
    further.reschedule(by=60)
    delayq.select(tag="none").run_now()  # of none, so there is no event of it

    assert (delayq.history()[0].what, delayq.history()[0].count) == ("rescheduled", 6)


def test_the_history_of_one_task_has_its_events_alone(app, delayq):
    for task_id in ("a", "b", "a"):
        app.send_task("t", task_id=task_id, delayq_at=FAR)
        delayq.cancel(task_id)

    assert told(delayq, of="a") == [("cancelled", "a"), ("scheduled", "a")] * 2
    assert told(delayq, of="a", limit=1) == [("cancelled", "a")]


def test_without_a_history_a_change_of_many_makes_no_call_for_it(app, delayq):
    app.conf.delayq_history = 0
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_tags=["x"])
    calls = []
    delayq.services.hooks.add(Hooks(called=lambda name, _: calls.append(name)))

    delayq.select(tag="x").reschedule(by=60)
    delayq.pause(all=True)

    assert "note" not in calls


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "é" * 33, "a\nb", "a\0b", "\u202e", 7, None, b"ann", "\ud800"]
)
def test_a_name_that_is_none_is_an_error_and_nothing_is_done(delayq, name):
    with pytest.raises(InvalidOption) as caught, delayq.acting(name):
        pytest.fail("it began")
    assert "; expected text of 1 to 64 bytes" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_name_holds_in_its_own_thread_alone(app, delayq):
    with delayq.acting("ann"):
        thread = Thread(target=app.send_task, args=("t",), kwargs={"delayq_at": FAR})
        thread.start()
        thread.join()
        app.send_task("t", task_id="mine", delayq_at=FAR)

    assert [event.actor for event in delayq.history()] == ["ann", ""]


def test_successive_equal_events_of_two_people_are_both_told(app, delayq):
    app.conf.delayq_history_repeats = False
    app.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
    for name in ("ann", "ann", "bob"):
        with delayq.acting(name):
            delayq.reschedule("a", by=60)

    assert [event.actor for event in delayq.history() if event.what == "rescheduled"] == [
        "bob", "ann",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [-1, 1.0, True, "1"])
def test_a_limit_that_is_none_is_an_error(delayq, limit):
    with pytest.raises(InvalidOption) as caught:
        delayq.history(limit)
    assert str(caught.value) == f"limit is {limit!r}; expected a whole number of events from 0"


# Filters.


@pytest.fixture
def mixed(app, delayq, redis):
    """Events of two tasks' names, two authors, keys, a pause and a change of many."""

    app.send_task("shop.mail", task_id="order-1", delayq_at=FAR, delayq_key="cart:1")
    app.send_task("shop.sync", task_id="order-2", delayq_at=FAR)
    app.send_task("shop.mail", task_id="other", delayq_at=FAR, delayq_tags=["x"])
    with delayq.acting("Maria"):
        delayq.cancel("order-1")
        let_time_pass(redis)
        delayq.pause(task="shop.mail")
        let_time_pass(redis)
        delayq.select(tag="x").cancel()
    with delayq.acting("ann"):
        delayq.cancel("order-2")


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (
            {"task": "shop.mail"},
            [("cancelled", "other"), ("paused", ""), ("cancelled", "order-1"),
             ("scheduled", "other"), ("scheduled", "order-1")],
        ),
        ({"by": "maria"}, [("cancelled", ""), ("paused", ""), ("cancelled", "order-1")]),
        ({"by": "n", "what": "cancelled"}, [("cancelled", "order-2")]),
        ({"what": What.PAUSED}, [("paused", "")]),
        ({"text": "CART:"}, [("cancelled", "order-1"), ("scheduled", "order-1")]),
        ({"text": "der-2", "what": "scheduled"}, [("scheduled", "order-2")]),
        ({"of": "other", "by": "ann"}, []),
        ({"task": "nobody"}, []),
    ],
    ids=str,
)  # fmt: skip
def test_events_are_picked_by_task_author_kind_and_text(delayq, filters, found):
    assert told(delayq, **filters) == found
    assert told(delayq, limit=1, **filters) == found[:1]


@pytest.mark.usefixtures("mixed")
def test_events_of_a_task_that_only_others_know_are_found_with_its_name(delayq):
    delayq.cancel("other")
    assert {event.task for event in delayq.history(task="shop.sync")} == {"shop.sync"}


@pytest.mark.parametrize("filters", [{}, {"what": "scheduled"}, {"text": "a"}], ids=str)
def test_the_next_page_begins_behind_the_last_event_whatever_comes(app, delayq, filters):
    tagged(app, 6)
    delayq.select(tag="x").cancel()
    for number in range(3):
        app.send_task("t", task_id=f"b-a{number}", delayq_at=FAR)
    whole, pages, cursor = delayq.history(**filters), [], None
    while page := delayq.history(3, cursor=cursor, **filters):
        pages += page
        cursor = page[-1].cursor
        app.send_task("t", task_id=f"a later {len(pages)}", delayq_at=FAR)

    assert [(each.what, each.id, each.when) for each in pages] == [
        (each.what, each.id, each.when) for each in whole
    ]
    assert len(whole) > 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("what", "moved"), ("cursor", "x"), ("cursor", "1:-2")),
        *(("by", 3), ("task", b"t"), ("text", 1)),
    ],
)
def test_a_filter_that_is_none_is_an_error(delayq, name, value):
    with pytest.raises(InvalidOption, match=f"^{name} is {value!r}; expected "):
        delayq.history(**{name: value})

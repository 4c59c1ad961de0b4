"""Key, tags and late policy: from a call, or its task's attributes, to the entry."""

import pytest
from celery import Celery, chord, group

from celery_delayq.errors import InvalidOption
from tests.app.support import FAR, LONG_AGO, comparable, envelope, only_message
from tests.app.test_adoption import Consumer

WORDS = {
    "delayq_key": "k",
    "delayq_tags": ["a", "b"],
    "delayq_late": "skip",
    "delayq_grace": 60,
}
TERMS = ("k", ("a", "b"), 60_000)


def terms(delayq, task_id=None):
    """Key, tags and grace in ms of the only entry."""
    if task_id is None:
        [waiting] = delayq.tasks()
        task_id = waiting.id
    extras = delayq.services.entries.find(task_id).extras
    return extras.key, extras.tags, extras.grace_ms


WAYS = {
    "apply_async": lambda add, said: add.apply_async((1,), delayq_at=FAR, **said),
    "send_task": lambda add, said: add.app.send_task("add", delayq_at=FAR, **said),
    "signature": lambda add, said: add.s(1).set(**said).delay_until(FAR),
    "set": lambda add, said: add.s(1).set(**said, delayq_at=FAR).apply_async(),
    "schedule": lambda add, said: add.app.delayq.schedule(
        add.s(1), at=FAR, **{name.removeprefix("delayq_"): one for name, one in said.items()}
    ),
    "capture": lambda add, said: add.apply_async((1,), countdown=3600, **said),
    "group": lambda add, said: group([add.s(1)]).set(**said).delay_until(FAR),
    "chord": lambda add, said: chord([add.s(1)], add.s()).set(**said).delay_until(FAR),
    "chain": lambda add, said: (add.s(1) | add.s(2)).set(**said).delay_until(FAR),
    "chunks": lambda add, said: add.chunks([(1,)], 1).set(**said).delay_until(FAR),
}


@pytest.fixture
def app(app_with_results):
    """A chord needs results."""
    return app_with_results


@pytest.mark.parametrize("way", WAYS)
def test_they_are_the_entry_s_and_not_the_message_s_whatever_the_way(app, add, delayq, way):
    app.conf.delayq_capture_eta = True

    WAYS[way](add, WORDS)

    assert terms(delayq) == TERMS
    [waiting] = delayq.tasks()

    text = f"{envelope(delayq, waiting.id).raw} {delayq.get(waiting.id).args}"
    assert [name for name in WORDS if name in text] == []


def test_a_message_arrives_as_without_them(add, delayq, redis):
    add.apply_async((1,), {"y": 2}, task_id="a", delayq_at=LONG_AGO)
    delayq.hand_over()
    plain = comparable(only_message(redis)[1])
    redis.flushall()

    words = {**WORDS, "delayq_grace": 5 * 10**9}
    add.apply_async((1,), {"y": 2}, task_id="a", delayq_at=LONG_AGO, **words)
    delayq.hand_over()

    assert comparable(only_message(redis)[1]) == plain


def test_options_of_schedule_override_those_of_the_signature(add, delayq):
    signature = add.s(1).set(delayq_key="other", delayq_tags=["other"])

    delayq.schedule(signature, at=FAR, key="k", tags=["a"])

    assert terms(delayq) == ("k", ("a",), None)


# tests/unit/test_terms.py tries many more; here, one of each kind, end to end.
WRONG = [
    ({"key": "a\0b"}, "delayq_key", "a\0b", "text of 1 to 255 bytes without NUL"),
    ({"max_wait": 5}, "delayq_max_wait", 5, "delayq_conflict='debounce' beside it"),
    ({"tags": "a"}, "delayq_tags", "a", "a list of tags, like ['a']"),
    ({"late": "skip"}, "delayq_late", "skip", "delayq_late='skip' and delayq_grace together"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: ascii(wrong[0])[:40])
def test_a_wrong_option_is_refused_before_anything_is_written(add, delayq, redis, wrong):
    said, *facts = wrong
    options = {f"delayq_{one}": given for one, given in said.items()}
    calls = [
        lambda: delayq.schedule(add.s(1), at=FAR, **said),
        lambda: delayq.schedule(group(add.s(1), add.s(2)), at=FAR, **said),
        lambda: add.apply_async((1,), delayq_at=FAR, **options),
        lambda: add.s(1).set(**options).delay_for(60),
    ]
    for call in calls:
        with pytest.raises(InvalidOption) as caught:
            call()
        assert [caught.value.name, caught.value.value, caught.value.expected] == facts
    assert redis.keys() == []


def test_wrong_ones_are_refused_where_tasks_are_always_eager(app, add, delayq):
    app.conf.task_always_eager = True

    with pytest.raises(InvalidOption):
        delayq.schedule(add.s(1), at=FAR, tags="a")

    result = delayq.schedule(add.s(1), at=FAR, key="k", tags=["a"])
    assert (result.get(), result.existed) == (1, False)


@pytest.mark.parametrize("option", ["delayq_key", "delayq_conflict", "delayq_late"])
def test_without_a_due_time_they_are_refused_and_nothing_is_sent(add, redis, option):
    with pytest.raises(InvalidOption) as caught:
        add.apply_async((1,), **{option: "x"})

    assert str(caught.value) == (
        f"{option} is 'x'; expected a due time beside it: delayq_at or delayq_after"
    )
    assert redis.keys() == []


def test_with_them_an_eta_is_captured_however_near_it_is(app, add, delayq, redis):
    app.conf.update(delayq_capture_eta=True, delayq_min_delay=100)

    add.apply_async((1,), countdown=1, delayq_key="k")

    assert terms(delayq) == ("k", (), None)
    assert redis.llen("celery") == 0


def test_a_stamp_or_a_header_of_the_same_name_is_none_of_them(add, delayq, redis):
    stamped = {"delayq_key": "stamp", "stamped_headers": ["delayq_key"]}

    add.apply_async((1,), **stamped)
    held = add.apply_async((1,), delayq_at=FAR, headers={"delayq_tags": ["mine"]}, **stamped)

    assert redis.llen("celery") == 1
    assert terms(delayq, held.id) == ("", (), None)
    assert envelope(delayq, held.id).headers["stamps"] == {"delayq_key": "stamp"}
    assert envelope(delayq, held.id).headers["delayq_tags"] == ["mine"]


# Attributes of the task.


@pytest.fixture
def tagged(app):
    @app.task(name="tagged", delayq_tags=["a", "b"], delayq_late="skip", delayq_grace=60)
    def tagged():
        pass

    return tagged


@pytest.mark.parametrize(
    "call",
    [
        lambda task: task.delay_until(FAR),
        lambda task: task.apply_async(delayq_at=FAR),
        lambda task: task.app.send_task("tagged", delayq_at=FAR),
        lambda task: task.app.delayq.schedule(task, at=FAR),
        lambda task: task.apply_async(countdown=3600),
    ],
)
def test_a_task_s_attributes_hold_for_its_calls(app, tagged, delayq, call):
    app.conf.delayq_capture_eta = True

    call(tagged)

    assert terms(delayq) == ("", ("a", "b"), 60_000)


def test_a_call_s_options_go_before_them(tagged, delayq):
    other = delayq.schedule(tagged, at=FAR, tags=["c"], grace=5)
    none = delayq.schedule(tagged, at=FAR, tags=[], late="run")

    assert terms(delayq, other.id) == ("", ("c",), 5000)
    assert terms(delayq, none.id) == ("", (), None)


def test_another_policy_leaves_the_task_s_max_wait_behind(app, delayq):
    @app.task(name="calm", delayq_conflict="debounce", delayq_max_wait=60)
    def calm():
        pass

    first = delayq.schedule(calm, at=FAR, key="k")
    second = delayq.schedule(calm, at=FAR, key="k", conflict="keep")

    assert second.id == first.id


def test_a_call_that_is_not_scheduled_does_not_ask_for_them(app, redis):
    @app.task(name="odd", delayq_tags="no list", delayq_key="k")
    def odd():
        pass

    odd.delay()

    assert redis.llen("celery") == 1


def test_a_task_has_no_key(app, redis):
    @app.task(name="odd", delayq_key="k")
    def odd():
        pass

    with pytest.raises(InvalidOption) as caught:
        odd.delay_for(60)

    assert str(caught.value) == (
        "delayq_key is 'k'; expected a key in each call; a task's would be that of them all"
    )
    assert redis.keys() == []


# Messages of processes without DelayQ.


@pytest.fixture
def consumer(app):
    return Consumer(app)


@pytest.fixture
def stranger(url):
    with Celery("stranger", broker=url, set_as_current=False) as app:
        yield app


@pytest.mark.parametrize("protocol", [1, 2])
def test_they_are_honoured_of_a_message_that_is_scheduled_on_arrival(
    stranger, consumer, delayq, protocol
):
    stranger.conf.task_protocol = protocol

    stranger.send_task("t", (1,), delayq_at=FAR, **WORDS)
    consumer.receive()

    assert terms(delayq) == TERMS
    [waiting] = delayq.tasks()
    assert "delayq_key" not in str(envelope(delayq, waiting.id).raw)


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_task_s_attributes_hold_for_such_a_message(stranger, app, delayq, protocol):
    stranger.conf.task_protocol = protocol

    @app.task(name="t", delayq_tags=["a"])
    def t():
        pass

    stranger.send_task("t", delayq_at=FAR)
    Consumer(app).receive()

    assert terms(delayq) == ("", ("a",), None)


def test_a_task_with_a_key_and_no_due_time_runs_at_once(stranger, consumer, redis, caplog):
    stranger.send_task("t", delayq_key="k")

    consumer.receive()

    assert len(consumer.ran) == 1
    assert "expected a due time beside it: delayq_at or delayq_after" in caplog.text


def test_a_task_whose_key_is_taken_is_dropped(stranger, consumer, add, delayq, caplog):
    holder = delayq.schedule(add.s(1), at=FAR, key="k")
    stranger.send_task("t", task_id="late", delayq_at=FAR, delayq_key="k")

    consumer.receive()

    assert (consumer.acked, consumer.ran) == (["late"], [])
    assert caplog.messages == [f"task late: dropped, as task {holder.id} has its key"]
    assert [task.id for task in delayq.tasks()] == [holder.id]


def test_a_task_that_is_delivered_twice_waits_once(stranger, consumer, delayq, caplog):
    for _ in range(2):
        stranger.send_task("t", task_id="a", delayq_at=FAR, delayq_key="k")
        consumer.receive()

    assert consumer.acked == ["a", "a"]
    assert caplog.messages[1:] == ["task a: dropped this copy, as the task is already waiting"]
    assert terms(delayq) == ("k", (), None)

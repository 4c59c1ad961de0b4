"""Key, tags and late policy: from a call, or its task's attributes, to the entry."""

import pytest
from celery import chord, group

from celery_delayq.errors import InvalidOption
from tests.app.conftest import app_with_results as app
from tests.app.support import (
    ALL_WAYS,
    FAR,
    LONG_AGO,
    WAYS,
    comparable,
    envelope,
    noop,
    only_message,
)

__all__ = ["app"]

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


CANVASES = {
    "group": lambda add, *_, **said: group([add.s(1)]).set(**said).delay_until(FAR),
    "chord": lambda add, *_, **said: chord([add.s(1)], add.s()).set(**said).delay_until(FAR),
    "chain": lambda add, *_, **said: (add.s(1) | add.s(2)).set(**said).delay_until(FAR),
    "chunks": lambda add, *_, **said: add.chunks([(1,)], 1).set(**said).delay_until(FAR),
}
KINDS = {
    **WAYS,
    **CANVASES,
    "schedule by name": lambda add, *_, delayq_once, **said: add.app.delayq.schedule(
        add.s(1).set(delayq_once=delayq_once),
        at=FAR,
        **{name.removeprefix("delayq_"): one for name, one in said.items()},
    ),
    "capture": lambda add, *_, **said: add.apply_async((1,), countdown=3600, **said),
}


@pytest.mark.parametrize("way", KINDS)
def test_options_of_ours_are_the_entry_s_and_once_is_a_header_whatever_the_way(
    app, add, delayq, way
):
    app.conf.delayq_capture_eta = True

    KINDS[way](add, 1, **WORDS, delayq_unique_for=5, delayq_once=True)

    assert terms(delayq) == TERMS
    [waiting] = delayq.tasks()
    assert delayq.services.entries.find(waiting.id).extras.hold == "w5000"
    assert envelope(delayq, waiting.id).headers["delayq_once"] is True
    text = f"{envelope(delayq, waiting.id).raw} {delayq.get(waiting.id).args}"
    assert [name for name in (*WORDS, "delayq_unique_for") if name in text] == []


def test_a_message_arrives_as_without_options_of_ours(add, delayq, redis):
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


# tests/unit/test_keys.py tries every bad value; here, one of them in each kind of call.
def test_a_wrong_option_is_refused_before_anything_is_written(add, delayq, redis):
    calls = [
        lambda: delayq.schedule(add.s(1), at=FAR, key="a\0b"),
        lambda: delayq.schedule(group(add.s(1), add.s(2)), at=FAR, key="a\0b"),
        lambda: add.apply_async((1,), delayq_at=FAR, delayq_key="a\0b"),
        lambda: add.s(1).set(delayq_key="a\0b").delay_for(60),
    ]
    for call in calls:
        with pytest.raises(InvalidOption) as caught:
            call()
        facts = [caught.value.name, caught.value.value, caught.value.expected]
        assert facts == ["delayq_key", "a\0b", "text of 1 to 255 bytes without NUL"]
    assert redis.keys() == []


def test_wrong_options_are_refused_where_tasks_are_always_eager(app, add, delayq):
    app.conf.task_always_eager = True

    with pytest.raises(InvalidOption):
        delayq.schedule(add.s(1), at=FAR, tags="a")

    result = delayq.schedule(add.s(1), at=FAR, key="k", tags=["a"])
    assert (result.get(), result.existed) == (1, False)


@pytest.mark.parametrize("option", ["delayq_key", "delayq_conflict", "delayq_late"])
def test_options_of_ours_without_a_due_time_are_refused_and_nothing_is_sent(add, redis, option):
    with pytest.raises(InvalidOption) as caught:
        add.apply_async((1,), **{option: "x"})

    assert str(caught.value) == (
        f"{option} is 'x'; expected a due time beside it: delayq_at or delayq_after"
    )
    assert redis.keys() == []


def test_an_eta_with_options_of_ours_is_captured_however_near_it_is(app, add, delayq, redis):
    app.conf.update(delayq_capture_eta=True, delayq_min_delay=100)

    add.apply_async((1,), countdown=1, delayq_key="k")

    assert terms(delayq) == ("k", (), None)
    assert redis.llen("celery") == 0


@pytest.mark.parametrize("name", ["delayq_key", "delay_reason"])
def test_a_stamp_or_a_header_of_an_option_s_name_is_no_option(add, delayq, redis, name):
    stamped = {name: "stamp", "stamped_headers": [name]}

    add.apply_async((1,), **stamped)
    held = add.apply_async((1,), delayq_at=FAR, headers={"delayq_tags": ["mine"]}, **stamped)

    assert redis.llen("celery") == 1
    assert terms(delayq, held.id) == ("", (), None)
    assert envelope(delayq, held.id).headers["stamps"] == {name: "stamp"}
    assert envelope(delayq, held.id).headers["delayq_tags"] == ["mine"]


# Attributes of the task.


@pytest.fixture
def task(app):
    """Make a task with attributes of ours: ``task(delayq_tags=["a"])``."""
    return lambda **attributes: app.task(name="t", **attributes)(noop)


@pytest.fixture
def tagged(task):
    return task(delayq_tags=["a", "b"], delayq_late="skip", delayq_grace=60)


CALLS = {**ALL_WAYS, "capture": lambda task: task.apply_async(countdown=3600)}


@pytest.mark.parametrize("way", CALLS)
def test_a_task_s_attributes_hold_for_its_calls(app, tagged, delayq, way):
    app.conf.delayq_capture_eta = True

    CALLS[way](tagged)

    assert terms(delayq) == ("", ("a", "b"), 60_000)


def test_a_call_s_options_go_before_its_task_s(tagged, delayq):
    other = delayq.schedule(tagged, at=FAR, tags=["c"], grace=5)
    none = delayq.schedule(tagged, at=FAR, tags=[], late="run")

    assert terms(delayq, other.id) == ("", ("c",), 5000)
    assert terms(delayq, none.id) == ("", (), None)


def test_a_call_that_is_not_scheduled_does_not_ask_for_its_task_s_options(task, redis):
    task(delayq_tags="no list", delayq_key="k").delay()

    assert redis.llen("celery") == 1

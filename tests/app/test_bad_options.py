"""Options that cannot be honoured are refused at the call, before anything is written."""

import pytest

from celery_delayq import AlreadyScheduled, DelayQError, InvalidDueTime
from celery_delayq.errors import InvalidOption
from tests.app.support import LONG_AGO, envelope

FAR_AWAY = 4_000_000_000


@pytest.mark.parametrize(
    "name",
    ["delayq_AT", "delay", "delay_until"],
)
def test_an_unknown_option_is_an_error_that_names_it(add, redis, name):
    with pytest.raises(InvalidOption) as caught:
        add.apply_async((1,), **{name: 5})

    assert str(caught.value) == (
        f"{name} is 5; expected no such option; there are delayq_at, delayq_after, delayq_once, "
        "delayq_capture, delayq_key, delayq_conflict, delayq_max_wait, delayq_tags, "
        "delayq_late, delayq_grace, delayq_unique_until and delayq_unique_for"
    )
    assert redis.keys() == []


def test_a_stamp_may_have_any_name(add, delayq, redis):
    stamped = {"delay_reason": "rain", "stamped_headers": ["delay_reason"]}

    add.apply_async((1,), **stamped)
    held = add.apply_async((1,), delayq_after=60, **stamped)

    assert redis.llen("celery") == 1
    assert envelope(delayq, held.id).headers["stamps"] == {"delay_reason": "rain"}


def test_a_typo_beside_a_right_option_is_an_error_too(add, redis):
    with pytest.raises(InvalidOption):
        add.apply_async((1,), delayq_after=60, delayq_tag="x")
    assert redis.keys() == []


def test_both_times_at_once_are_an_error(add, redis):
    with pytest.raises(InvalidOption):
        add.apply_async((1,), delayq_after=60, delayq_at=FAR_AWAY)
    assert redis.keys() == []


@pytest.mark.parametrize("option", ["delayq_at", "delayq_after"])
def test_a_wrong_time_in_an_option_is_refused(add, redis, option):
    with pytest.raises(InvalidDueTime):
        add.apply_async((1,), **{option: "nonsense"})
    assert redis.keys() == []


@pytest.mark.parametrize("option", ["delayq_at", "delayq_after"])
def test_none_is_as_if_the_option_was_not_given(add, delayq, redis, option):
    result = add.apply_async((1,), **{option: None})

    assert delayq.get(result.id) is None
    assert redis.llen("celery") == 1


def test_a_second_entry_with_the_same_id_is_a_conflict_and_the_first_is_untouched(add, delayq):
    first = add.s(1).set(task_id="a").delay_until(FAR_AWAY)
    before = delayq.get("a")

    with pytest.raises(AlreadyScheduled) as caught:
        add.s(2).set(task_id="a").delay_until(FAR_AWAY + 60)

    assert caught.value.task_id == "a"
    assert str(caught.value) == (
        "task 'a' is already scheduled; cancel it first, pass another task_id, or set "
        "delayq_conflict to choose which one stays"
    )
    assert isinstance(caught.value, (DelayQError, ValueError))
    assert delayq.get("a") == before
    assert delayq.get("a").due == first.due
    assert delayq.counts().scheduled == 1


def test_an_id_that_was_handed_over_can_be_scheduled_again(add, delayq):
    add.s(1).set(task_id="a").delay_until(LONG_AGO)
    delayq.hand_over()

    add.s(2).set(task_id="a").delay_until(FAR_AWAY)

    assert delayq.get("a").args == (2,)


@pytest.mark.parametrize("task_id", [5, "é" * 257], ids=repr)
def test_an_id_that_cannot_be_one_is_refused(app, redis, task_id):
    with pytest.raises(InvalidOption, match="expected text of 1 to 512 bytes"):
        app.send_task("add", (1,), task_id=task_id, delayq_after=60)
    assert redis.keys() == []


@pytest.mark.parametrize("task_id", ["ü" * 256, " "])
def test_an_id_may_be_any_text_of_up_to_512_bytes(app, delayq, task_id):
    app.send_task("add", (1,), task_id=task_id, delayq_after=60)

    assert delayq.get(task_id).id == task_id
    assert [task.id for task in delayq.tasks()] == [task_id]
    assert delayq.cancel(task_id)


def test_an_id_with_a_lone_surrogate_is_refused_with_a_typed_error(app, redis):
    with pytest.raises(ValueError, match="task_id"):
        app.send_task("add", (1,), task_id="\ud800", delayq_after=60)
    assert redis.keys() == []


def test_arguments_that_cannot_be_encoded_are_refused_as_celery_refuses_them(add, redis):
    with pytest.raises(Exception, match="JSON serializable") as held:
        add.delay_for(60, object())
    with pytest.raises(Exception, match="JSON serializable") as plain:
        add.delay(object())

    assert type(held.value) is type(plain.value)
    assert redis.keys() == []


def test_an_unknown_serializer_is_refused_as_celery_refuses_it(add, redis):
    for options in ({"serializer": "nope"}, {"compression": "nope"}):
        with pytest.raises(Exception, match="nope") as held:
            add.s(1).set(**options).delay_for(60)
        with pytest.raises(type(held.value)):
            add.apply_async((1,), **options)
    assert redis.keys() == []


def test_a_priority_that_is_no_number_is_scheduled_as_kombu_takes_it(add, delayq, redis):
    add.s(1).set(priority="high").delay_until(LONG_AGO)

    delayq.hand_over()

    assert redis.llen("celery") == 1

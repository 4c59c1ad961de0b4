"""Calls that are refused: each error is one sentence that names the right way."""

from datetime import datetime, timedelta, timezone

import pytest
from kombu import Queue

from celery_delayq import AlreadyScheduled, DelayQ
from celery_delayq.errors import DelayQError, InvalidDueTime, InvalidOption, NotADueTime, NotATask
from tests.app.support import FAR, LONG_AGO, lists, only_message

MOMENT = datetime(2100, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
TIME = "expected an aware datetime, Unix time in seconds, or ISO 8601 text, before 2255-06-05"
DELAY = "expected a timedelta or a number of seconds that ends before 2255-06-05"
IS_A_DELAY = f"is not a due time; {TIME}; a delay goes to delay_for, or after="
IS_A_TIME = f"is not a due time; {DELAY}; a time goes to delay_until, or at="
ONLY_ONE = "expected none beside the time that the task is scheduled for"
NAMES = "expected text of 1 to 512 bytes, a UUID, a result or a ScheduledTask"
SIGNATURE = "expected a signature, or a task"
CHOOSE = "set delayq_conflict to choose which one stays"
OPTIONS = (
    "delayq_at, delayq_after, delayq_once, delayq_capture, delayq_key, delayq_conflict, "
    "delayq_max_wait, delayq_tags, delayq_late, delayq_grace, delayq_unique_until and "
    "delayq_unique_for"
)

# By error and end of its sentence, the mistakes, with the task `add`, the DelayQ and a result.
MISTAKES = {
    InvalidDueTime: {
        f"5 {IS_A_DELAY}": {"a delay as a time": lambda add, *_: add.delay_until(5)},
        f"'nonsense' is not a due time; {TIME}": {
            "no time as an option": lambda add, *_: add.apply_async((1,), delayq_at="nonsense")
        },
        f"'nonsense' {IS_A_TIME}": {
            "no delay as an option": lambda add, *_: add.apply_async((1,), delayq_after="nonsense")
        },
        f"'tomorrow' is not a due time; {TIME}": {
            "a wrong time and no arguments": lambda add, *_: add.delay_until("tomorrow")
        },
        f"60 {IS_A_DELAY}": {
            "a new time that is a number": lambda _add, _delayq, result: result.reschedule(60)
        },
        f"3600 {IS_A_DELAY}": {"from now on": lambda _, delayq, __: delayq.select(before_due=3600)},
    },
    NotADueTime: {
        f"{MOMENT.isoformat()} {IS_A_TIME}": {
            "a time as a delay": lambda add, *_: add.delay_for(MOMENT)
        },
        f"1 minute {IS_A_DELAY}": {
            "a new time that is a delay": lambda _, delayq, result: delayq.reschedule(
                result.id, MINUTE
            ),
        },
    },
    InvalidOption: {
        f"countdown is 5; {ONLY_ONE}": {
            "countdown beside delayq_after": lambda add, *_: add.apply_async(
                (1,), countdown=5, delayq_after=60
            ),
            "a signature with a countdown": lambda add, *_: add.s(1).set(countdown=5).delay_for(60),
            "a bulk of a signature with a countdown": lambda add, delayq, _: delayq.schedule_many(
                add.s().set(countdown=5), [((1,), {})], after=60
            ),
            "send_task with both": lambda _, delayq, __: delayq.app.send_task(
                "add", countdown=5, delayq_after=60
            ),
        },
        f"eta is {MOMENT.isoformat()}; {ONLY_ONE}": {
            "eta beside delayq_at": lambda add, *_: add.apply_async(
                (1,), eta=MOMENT, delayq_at=FAR
            ),
        },
        "expected only one of delayq_at and delayq_after": {
            "two due times": lambda add, *_: add.apply_async((1,), delayq_after=60, delayq_at=FAR)
        },
        f"delayq_AT is 5; expected no such option; there are {OPTIONS}": {
            "an option in capitals": lambda add, *_: add.apply_async((1,), delayq_AT=5)
        },
        f"delay is 5; expected no such option; there are {OPTIONS}": {
            "an option without our prefix": lambda add, *_: add.apply_async((1,), delay=5)
        },
        f"delay_until is 5; expected no such option; there are {OPTIONS}": {
            "a method as an option": lambda add, *_: add.apply_async((1,), delay_until=5)
        },
        f"delayq_tag is 'x'; expected no such option; there are {OPTIONS}": {
            "a typo beside a right option": lambda add, *_: add.apply_async(
                (1,), delayq_after=60, delayq_tag="x"
            ),
        },
        "task_id is 5; expected text of 1 to 512 bytes": {
            "a number as an id": lambda add, *_: add.apply_async((1,), task_id=5, delayq_after=60)
        },
        "; expected text of 1 to 512 bytes": {
            "too long an id": lambda add, *_: add.apply_async(
                (1,), task_id="é" * 257, delayq_after=60
            ),
        },
        "task_id is '\\ud800'; expected text of 1 to 512 bytes": {
            "an id that is no UTF-8": lambda add, *_: add.apply_async(
                (1,), task_id="\ud800", delayq_after=60
            ),
        },
        "delayq_unique_until and delayq_unique_for": {
            "Celery's word with our prefix": lambda add, *_: add.apply_async(
                (1,), delayq_countdown=60
            ),
        },
        "time is None; expected exactly one of at, after": {
            "no time": lambda add, delayq, _: delayq.schedule(add.s(1)),
            "a time of none": lambda add, delayq, _: delayq.schedule(add.s(1), at=None),
        },
        f"time is {{'at': {FAR!r}, 'after': 60}}; expected exactly one of at, after": {
            "two times": lambda add, delayq, _: delayq.schedule(add.s(1), at=FAR, after=60)
        },
        "time is None; expected at, after or spread; or a time in each item": {
            "no time for many": lambda add, delayq, _: delayq.schedule_many(add, [((1,), {})])
        },
        "time is None; expected exactly one of at, after, by": {
            "no new time": lambda _, delayq, result: delayq.reschedule(result)
        },
        "arguments is ((5,), {}); expected none: those of a canvas are its tasks'": {
            "a canvas with more arguments": lambda add, *_: (add.s(1) | add.s(2)).delay_for(60, 5)
        },
        f"{NAMES}; pass one at a time, or use select(...)": {
            "cancel of many": lambda _, delayq, result: delayq.cancel([result])
        },
        f"{NAMES}; for all calls of a task, use select(task=...)": {
            "cancel of a task's calls": lambda add, delayq, _: delayq.cancel(add)
        },
        "expected self.request, in a bound task; for a result, use .due": {
            "due_of a result": lambda _, delayq, result: delayq.due_of(result)
        },
        "request is 'a'; expected self.request, in a bound task": {
            "due_of an id": lambda _, delayq, __: delayq.due_of("a")
        },
        "tag is []; expected one value, or a list of 1 to 100": {
            "no tags": lambda _, delayq, __: delayq.select(tag=[])
        },
        "or before_due=, which pick tasks, or all=True for every task": {
            "nothing selected": lambda _, delayq, __: delayq.select()
        },
        "expected a State, or one of SCHEDULED, PAUSED, IN_FLIGHT, DEAD, UNKNOWN": {
            "a state of Celery's": lambda _, delayq, __: delayq.select(state="PENDING")
        },
    },
    AlreadyScheduled: {
        f"cancel it first, pass another task_id, or {CHOOSE}": {
            "an id that waits": lambda add, _, result: (
                add.s(2).set(task_id=result.id).delay_until(FAR + 60)
            ),
        },
    },
    NotATask: {
        f"{SIGNATURE}; this task was already sent: pass task.s(...), which sends nothing": {
            "a call that is sent": lambda _, delayq, result: delayq.schedule(result, after=60)
        },
        f"{SIGNATURE}, like task.s(...)": {
            "a method": lambda add, delayq, _: delayq.schedule(add.delay, after=60)
        },
        f"signature is 'add'; {SIGNATURE}; for a task's name, pass app.signature(name)": {
            "a task's name": lambda _, delayq, __: delayq.schedule("add", after=60)
        },
        **{
            f"signature is {what!r}; {SIGNATURE}, like task.s(...)": {
                f"a signature that is {what!r}": lambda _, delayq, __, what=what: delayq.schedule(
                    what, after=60
                )
            }
            for what in (None, 5, print)
        },
        f"signature is [add(1)]; {SIGNATURE}; schedule many one by one, or as a group": {
            "a list of signatures": lambda add, delayq, _: delayq.schedule([add.s(1)], after=60)
        },
        "as cancel is for one task; for many, use select(tag='user:7').cancel()": {
            "cancel by tag": lambda _, delayq, __: delayq.cancel(tag="user:7")
        },
        "for many, use select(queue='mail').reschedule(...)": {
            "reschedule a queue": lambda _, delayq, __: delayq.reschedule(queue="mail", after=60)
        },
        "for many, use select(tag='user:7').edit(...)": {
            "edit by tag": lambda _, delayq, __: delayq.edit(tag="user:7", priority=3)
        },
        "as get is for one task; for many, use select(tag='user:7')": {
            "get by tag": lambda _, delayq, __: delayq.get(tag="user:7")
        },
        "expected it in the signature, schedule(task.s(42), ...), or by its name, as after=42": {
            "a task's argument": lambda add, delayq, __: delayq.schedule(add, 42)
        },
    },
    TypeError: {
        **{
            f"DelayQ takes a Celery app, DelayQ(app); got {what!r}": {
                f"an app that is {what!r}": lambda *_, what=what: DelayQ(what)
            }
            for what in ("shop", None)
        },
    },
}


ROWS = [
    pytest.param(kind, words, do, id=name)
    for kind, sentences in MISTAKES.items()
    for words, calls in sentences.items()
    for name, do in calls.items()
]


@pytest.mark.parametrize(("kind", "words", "do"), ROWS)
def test_a_mistake_is_told_in_one_sentence_before_anything_is_written(
    add, delayq, redis, *, kind, words, do
):
    result = add.delay_until(FAR, 1)
    before = redis.dump("{delayq:0}:records"), redis.keys("celery*")

    with pytest.raises(kind) as caught:
        do(add, delayq, result)

    sentence = str(caught.value)
    assert sentence.endswith(words)
    assert "\n" not in sentence
    assert isinstance(caught.value, DelayQError) or kind is TypeError
    assert (redis.dump("{delayq:0}:records"), redis.keys("celery*")) == before


# Refused with the error of Celery itself.
CELERYS = {
    "arguments": {"args": (object(),)},
    "serializer": {"serializer": "nope"},
    "compression": {"compression": "nope"},
}


@pytest.mark.parametrize("what", CELERYS)
def test_a_call_that_celery_refuses_is_refused_as_by_celery(add, redis, what):
    options = {"args": (1,), **CELERYS[what]}

    with pytest.raises(Exception, match=r"JSON serializable|nope") as held:
        add.apply_async(delayq_after=60, **options)
    with pytest.raises(type(held.value)):
        add.apply_async(**options)
    assert redis.keys() == []


@pytest.mark.parametrize("option", ["delayq_at", "delayq_after"])
def test_none_is_as_if_the_option_was_not_given(add, delayq, redis, option):
    result = add.apply_async((1,), **{option: None})

    assert delayq.get(result.id) is None
    assert redis.llen("celery") == 1


def test_a_running_task_stands_for_its_request(app, delayq, redis):
    @app.task(name="t", bind=True)
    def t(self):
        return delayq.due_of(self)

    assert t() is None
    t.push_request(delayq_due=FAR * 1000)
    assert delayq.due_of(t) == delayq.due_of(t.request) == MOMENT


@pytest.mark.parametrize("method", ["delay_until", "delay_for"])
def test_a_signature_takes_more_arguments_as_delay_does(add, delayq, redis, method):
    signature = add.s(y=2)
    result = getattr(signature, method)(FAR if method == "delay_until" else 3600, 1)
    task = delayq.get(result)
    assert (task.args, task.kwargs) == ((1,), {"y": 2})
    assert signature == add.s(y=2)
    add.s(y=2).delay(1)
    assert b"W1sxXSwgeyJ5IjogMn0" in only_message(redis)[1]


def test_a_retry_brings_its_countdown_along(app, delayq, redis):
    @app.task(name="t", bind=True)
    def t(self):
        raise self.retry(delayq_after=60)

    t.push_request(id="r", args=(), kwargs={}, retries=0, called_directly=False)
    with pytest.raises(Exception, match="Retry"):
        t.run()
    assert delayq.get("r") is not None


# A queue, exchange or routing key that is not text is refused, with any priority.


@pytest.mark.parametrize(
    ("queue", "priority"), [(5, None), (5.5, 3), (b"mail", 9), (True, 0), ((1,), None)], ids=repr
)
def test_a_queue_that_is_no_text_is_refused_as_by_celery(app, make_app, redis, queue, priority):
    with pytest.raises((AttributeError, TypeError)):
        make_app(app.conf.broker_url).send_task("t", queue=queue, priority=priority)

    with pytest.raises(InvalidOption) as caught:
        app.send_task("t", queue=queue, priority=priority, delayq_at=LONG_AGO)

    assert str(caught.value) == f"queue is {queue!r}; expected text, or a Queue whose name is"
    assert not redis.exists("{delayq:0}:records")
    assert app.delayq.hand_over() == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": Queue(5)}, "queue is 5; expected text"),
        ({"exchange": "x", "routing_key": 5}, "routing_key is 5; expected text"),
        ({"exchange": 5, "routing_key": "k"}, "exchange is 5; expected text"),
    ],
    ids=repr,
)
def test_a_name_of_a_queue_an_exchange_or_a_key_that_is_no_text_is_refused(app, options, says):
    with pytest.raises(InvalidOption) as caught:
        app.send_task("t", **options, priority=3, delayq_at=LONG_AGO)

    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("options", [{"routing_key": 5}, {"exchange": 5}])
def test_options_that_celery_leaves_out_for_a_plain_queue_do_not_matter(app, redis, options):
    app.send_task("t", **options, delayq_at=LONG_AGO)

    assert app.delayq.hand_over() == 1
    assert [*lists(redis)] == [b"celery"]

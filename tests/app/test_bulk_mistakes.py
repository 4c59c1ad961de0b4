"""`schedule_many`: calls that are wrong as a whole, log lines, and errors that end a call early."""

import pytest
from celery.exceptions import QueueNotFound, SoftTimeLimitExceeded
from kombu.exceptions import SerializerNotInstalled

from celery_delayq.core.store import Entries
from celery_delayq.errors import InvalidOption, ItemsRefused
from tests.app.bulk import plain_task
from tests.app.support import FAR


@pytest.fixture
def remind(app):
    return plain_task(app)


def numbered(count):
    return (((number,), {}) for number in range(count))


@pytest.mark.parametrize(
    ("items", "options", "words"),
    [
        ([((1,), {}), ((2,), {})], {}, "time is None; expected at, after or spread; or a time in"),
        ([(1,), (2,)], {"at": FAR}, "item is (1,); expected (args, kwargs), such as ((1,), {})"),
        ([((1,), {}), (2,)], {}, "time is None"),
        ("ab", {"at": FAR}, "item is 'a'; expected (args, kwargs)"),
        ([{"x": 1}] * 450, {"at": FAR}, "item is {'x': 1}; expected"),
    ],
    ids=["forgotten time", "bare arguments", "both", "text", "mappings"],
)
def test_a_call_of_which_every_item_has_a_wrong_shape_is_refused(
    remind, delayq, redis, *, items, options, words
):
    with pytest.raises(InvalidOption) as caught:
        delayq.schedule_many(remind, items, **options)

    assert str(caught.value).startswith(words)
    assert redis.keys() == []


WRONG = {
    "serializer": ({"serializer": "nope"}, SerializerNotInstalled, "No encoder installed for nope"),
    "option of ours": ({"delayq_nope": 1}, InvalidOption, "delayq_nope is 1; expected no such"),
    "value of ours": ({"delayq_once": "x"}, InvalidOption, "delayq_once is 'x'; expected true or"),
    "two times": ({"delayq_after": 5}, InvalidOption, "expected only one of delayq_at and delayq_"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_option_for_all_that_none_can_have_is_raised_as_by_a_single_call(
    remind, delayq, redis, name
):
    options, error, words = WRONG[name]

    with pytest.raises(error, match=words) as caught:
        delayq.schedule_many(remind.s().set(**options), numbered(450), at=FAR)

    assert (caught.value.so_far.scheduled, len(caught.value.so_far.refused)) == (0, 450)
    assert redis.keys() == []


def test_a_queue_that_is_missing_is_raised_as_by_a_single_call(delayq_app, url):
    app = delayq_app(url, task_create_missing_queues=False)

    with pytest.raises(QueueNotFound):
        app.delayq.schedule_many(plain_task(app).s().set(queue="nope"), numbered(3), at=FAR)


@pytest.mark.parametrize(
    "item",
    [
        ((object(),), {}),
        ((1, 2, 3), {}),
        ((1,), {}, "soon"),
        ((1,), {}, None, ""),
        ((1,), {}, None, "held"),
        (("x" * 2_000_000,), {}),
    ],
    ids=["no JSON", "too many arguments", "no time", "no id", "id is held", "too large"],
)
def test_a_call_does_not_fail_if_each_item_is_wrong_by_itself(remind, delayq, item):
    delayq.schedule(remind.s().set(task_id="held"), at=FAR)

    bulk = delayq.schedule_many(remind, [item, item], at=FAR)

    assert (bulk.scheduled, [*bulk.refused]) == (0, [0, 1])


def test_no_items_at_all_are_no_mistake(remind, delayq):
    bulk = delayq.schedule_many(remind, [])
    assert bulk.scheduled == 0
    assert bulk


def test_a_bulk_is_true_where_all_of_it_is_scheduled(remind, delayq):
    assert delayq.schedule_many(remind, numbered(250), at=FAR)
    assert not delayq.schedule_many(remind, [*numbered(250), ((1,), {}, "soon")], at=FAR)


def test_a_bulk_says_in_one_error_what_was_refused(remind, delayq):
    items = [*numbered(210), ((1,), {}, "soon"), ((2,), {}, None, 5)]

    bulk = delayq.schedule_many(remind, items, at=FAR)

    with pytest.raises(ItemsRefused) as caught:
        bulk.raise_for_refused()
    error = caught.value
    assert str(error).startswith(
        "2 of 212 items were refused; the first is number 210: 'soon' is not a due time; expected "
    )
    assert error.so_far is bulk
    assert error.__cause__ is bulk.refused[210]
    assert delayq.counts().scheduled == 210


def test_a_bulk_of_which_all_is_scheduled_raises_nothing(remind, delayq):
    assert delayq.schedule_many(remind, numbered(3), at=FAR).raise_for_refused() is None


def test_refused_items_have_one_log_line_without_their_arguments(remind, delayq, caplog):
    items = [*numbered(250), ("s3cret",), (("s3cret",), {}, "soon")]

    delayq.schedule_many(remind, items, at=FAR)

    [line] = caplog.messages
    assert line == (
        f"2 of 252 items of a bulk of {remind.name} were refused; the first is number 250, with "
        "InvalidOption"
    )


def test_nothing_is_said_of_a_bulk_of_which_all_is_scheduled(remind, delayq, caplog):
    delayq.schedule_many(remind, numbered(3), at=FAR)

    assert caplog.messages == []


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("items", ValueError),
        ("items", GeneratorExit),
        ("progress", SystemExit),
        ("progress", SoftTimeLimitExceeded),
        ("the call of Redis", KeyboardInterrupt),
    ],
)
def test_an_error_that_ends_a_bulk_carries_its_results_so_far(
    remind, delayq, monkeypatch, error, where
):
    def items():
        yield from numbered(250)
        yield None
        yield from numbered(249)
        if where == "items":
            raise error
        yield from numbered(200)

    def progress(so_far):
        if where == "progress" and len(so_far.ids) == 400:
            raise error

    def schedule(self, *given, real=Entries.schedule, **options):
        if where == "the call of Redis" and delayq.counts().scheduled == 399:
            raise error
        return real(self, *given, **options)

    monkeypatch.setattr(Entries, "schedule", schedule)

    with pytest.raises(error) as caught:
        delayq.schedule_many(remind, items(), at=FAR, progress=progress)

    so_far = caught.value.so_far
    assert (len(so_far.ids), [*so_far.refused], so_far.scheduled) == (400, [250], 399)
    assert delayq.counts().scheduled == 399

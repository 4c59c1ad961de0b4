"""`schedule_many`: calls that are wrong as a whole, what the log says, what ends one half-way."""

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celery_delayq.errors import InvalidOption
from celery_delayq.store import Entries
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
        ([(1,), (2,)], {"at": FAR}, "item is (1,); expected (args, kwargs), and behind them"),
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


def test_no_items_at_all_are_no_mistake(remind, delayq):
    assert delayq.schedule_many(remind, []).scheduled == 0


def test_what_was_refused_is_a_line_of_the_log_without_its_arguments(remind, delayq, caplog):
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
    "error", [KeyboardInterrupt, SoftTimeLimitExceeded, SystemExit, ValueError, GeneratorExit]
)
@pytest.mark.parametrize("where", ["items", "progress", "the call of Redis"])
def test_whatever_ends_a_bulk_brings_along_what_is_scheduled_already(
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

"""Times as a user types them: the meaning of each, and the error for an invalid one."""

from datetime import datetime, timedelta, timezone

import click
import pytest

from celery_delayq.operations.cli.input import TimeParam
from celery_delayq.operations.typed_times import GivenTime

UTC = timezone.utc
ISO, UNIX = "2030-01-31T09:00", "Unix time in seconds"
FIRST = f"{ISO}, tomorrow 9:00, +1h30m from now (s m h d)"


SECOND = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
INSTANTS = {
    "2031-05-06T07:08:09Z": SECOND,
    "2031-05-06T09:08:09.250+02:00": SECOND.replace(microsecond=250_000),
    "2031-05-06": datetime(2031, 5, 6),  # noqa: DTZ001
    "2031-05-06T07:08": datetime(2031, 5, 6, 7, 8),  # noqa: DTZ001
    "1936000000": 1_936_000_000,
    "1936000000.5": 1_936_000_000.5,
    "0": 0,
}
SPANS = {
    "0": 0,
    "90": 90,
    "90s": 90,
    "5m": 300,
    "2h": 7200,
    "1d": 86_400,
    "1.5h": 5400,
    "0.25s": 0.25,
    "1h30m": 5400,
    "1d2h3m4.5s": 93_784.5,
}  # fmt: skip


@pytest.mark.parametrize(("text", "instant"), INSTANTS.items())
def test_an_instant_is_iso_text_or_unix_time(text, instant):
    assert TimeParam().read(text) == GivenTime("at", instant)


@pytest.mark.parametrize(("text", "seconds"), SPANS.items())
def test_a_span_is_from_now_ago_or_from_the_due_time(text, seconds):
    span = timedelta(seconds=seconds)
    assert TimeParam().read(f"+{text}") == GivenTime("after", span)
    assert TimeParam(ago=True).read(f"-{text}") == GivenTime("after", -span)
    assert TimeParam(due=True).read(f"by:+{text}") == GivenTime("by", span)
    assert TimeParam(due=True).read(f"by:-{text}") == GivenTime("by", -span)


def test_never_is_taken_where_it_is_asked_for():
    assert TimeParam(never=True).read("never") == GivenTime("never", None)


NONE_AT_ALL = [
    *("soon", "", "nan", "inf", "1e300", "2031-13-01", "25:00", "2031-05", "9999-12-31", "9" * 400),
    *("+", "+m", "+5w", "+5 m", "+-5", "+1e3", "+1m1h", "+1h30", "+5m5m"),
    *("+99999999999d", "+9" * 50, "+" + "9" * 400),
]
NO_MOVE = ["by:", "by:5m", "by:+", "by:soon", "by:+99999999999d", "by:+" + "9" * 400]


def refused(when, text, expected):
    with pytest.raises(click.BadParameter) as caught:
        when.convert(text, None, None)
    assert caught.value.message == f"{text[:60]!r} is not a time; expected {expected}"


@pytest.mark.parametrize("text", [*NONE_AT_ALL, *NO_MOVE], ids=lambda text: text[:20])
def test_a_word_that_is_not_a_time_is_named_beside_examples(text):
    from_due = f"{FIRST}, {UNIX}, or by:+30m from its due time"
    refused(TimeParam(due=True), text, f"one before 2255-06-05: {from_due}")


@pytest.mark.parametrize(
    ("when", "text", "forms"),
    [
        *((TimeParam(), text, f"{FIRST}, or {UNIX}") for text in ("-10m", "by:+30m", "never")),
        (TimeParam(ago=True), "soon", f"{FIRST}, {UNIX}, or -10m for ago"),
        (TimeParam(due=True, never=True), "soon",
         f"{FIRST}, {UNIX}, by:+30m from its due time, or never"),
    ],
)  # fmt: skip
def test_each_kind_is_taken_only_where_it_is_asked_for(when, text, forms):
    refused(when, text, f"one before 2255-06-05: {forms}")


@pytest.mark.parametrize("text", ["90", "5m", "1.5"])
def test_a_delay_without_its_sign_is_told_how_it_is_written(text):
    for when, more in ((TimeParam(), ""), (TimeParam(due=True), f", by:+{text} from its due time")):
        refused(when, text, f"+{text} from now{more}, or a time such as {ISO}")

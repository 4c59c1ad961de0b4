"""Times as people type them: the instant of each, in a zone at a moment, and the refused ones."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from celery_delayq.operations.typed_times import TypedTimeError, read, told

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 26, 21, tzinfo=BERLIN)  # a Thursday


def moment(text, now=NOW, zone=BERLIN, **forms):
    return read(text, **forms).moment(lambda: now, lambda: zone)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


INSTANTS = {
    "9:00": "2026-11-27T09:00", "22:00": "2026-11-26T22:00",  # today's 9:00 is over
    "22:00:30": "2026-11-26T22:00:30", "9 pm": "2026-11-27T21:00",
    "9:30PM": "2026-11-26T21:30", "12 am": "2026-11-27T00:00", "12 pm": "2026-11-27T12:00",
    # At once, and the answer says so.
    "today 9:00": "2026-11-26T09:00", "today 22:00": "2026-11-26T22:00",
    "Tomorrow  9:00": "2026-11-27T09:00", "mon 9:00": "2026-11-30T09:00",
    "monday 9:00": "2026-11-30T09:00", "thu 9:00": "2026-12-03T09:00",
    "26.11. 22:30": "2026-11-26T22:30", "26. 11. 22:30": "2026-11-26T22:30",
    "26.11.2026 09:00": "2026-11-26T09:00", "1.2.27 9:00": "2027-02-01T09:00",
    "11/28 9:00": "2026-11-28T09:00", "28/11/2026 9:00": "2026-11-28T09:00",
    "12/12 9:00": "2026-12-12T09:00", "29 Nov 9:00": "2026-11-29T09:00",
    "nov 29 2026 9:00": "2026-11-29T09:00", "2026-12-1 9:00": "2026-12-01T09:00",
    "29.2.2028 9:00": "2028-02-29T09:00",
}  # fmt: skip


@pytest.mark.parametrize(("text", "instant"), INSTANTS.items())
def test_a_day_and_a_time_of_day_are_the_next_ones_in_the_zone(text, instant):
    assert moment(text) == at(instant)


SPANS = {
    "now": 0, "in 2 h": 2, "In 2 Hours 30 min": 2.5, "in 2h30m": 2.5,
    "in 1.5 days": 36, "in 2 weeks": 14 * 24,
}  # fmt: skip


@pytest.mark.parametrize(("text", "hours"), SPANS.items())
def test_a_span_in_words_is_from_now(text, hours):
    assert moment(text) == NOW + timedelta(hours=hours)


OVER = {
    "9:00": "2026-11-26T09:00", "thu 22:00": "2026-11-26T22:00",
    "26.11. 9:00": "2026-11-26T09:00", "2 h ago": "2026-11-26T19:00",
    "yesterday 9:00": "2026-11-25T09:00",
}  # fmt: skip


@pytest.mark.parametrize(("text", "instant"), OVER.items())
def test_in_a_filter_a_time_that_is_over_is_no_other_day_s(text, instant):
    assert moment(text, ago=True) == at(instant)


@pytest.mark.parametrize(
    ("text", "filters", "either"),
    [
        ("thu 22:00", False, ["2026-11-26T22:00:00+01:00", "2026-12-03T22:00:00+01:00"]),
        ("mon 9:00", True, ["2026-11-23T09:00:00+01:00", "2026-11-30T09:00:00+01:00"]),
        ("26.11. 9:00", False, ["2026-11-26T09:00:00+01:00", "2027-11-26T09:00:00+01:00"]),
        ("3/4/2027 9:00", False, ["2027-04-03T09:00:00+02:00", "2027-03-04T09:00:00+01:00"]),
        ("31.10.2027 2:30", False, ["2027-10-31T02:30:00+02:00", "2027-10-31T02:30:00+01:00"]),
    ],
)
def test_text_that_can_mean_two_times_is_refused_with_both(text, filters, either):
    with pytest.raises(TypedTimeError) as caught:
        moment(text, ago=filters)
    assert str(caught.value) == f"{text!r} can mean two times; type {' or '.join(either)}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tomorrow", "has no time of day; type tomorrow 9:00"),
        ("26.11.2026", "has no time of day; type 26.11.2026 9:00"),
        ("31.2.2027 9:00", "is not a time: there is no such day"),
        ("Fri 26 Nov 2026, 22:00", "is not a time: there is no such day"),
    ],
)
def test_a_day_that_is_none_or_not_whole_is_refused_with_the_reason(text, reason):
    with pytest.raises(TypedTimeError) as caught:
        moment(text)
    assert str(caught.value) == f"{text!r} {reason}"


@pytest.mark.parametrize(
    "text",
    ["25:00", "9:60", "13 pm", "0 am", "tomorrow 9", "noon", "in a while", "in 5 months", "m 9:00",
     "in", "26.11 9:00", "13/13 9:00 x", "2 h ago"],
)  # fmt: skip
def test_other_words_are_no_time(text):
    with pytest.raises(TypedTimeError, match="is not a time; expected one before 2255-06-05: "):
        moment(text)


def test_a_zone_that_is_typed_counts_before_the_reader_s():
    assert moment("9:00 UTC") == datetime(2026, 11, 27, 9, tzinfo=timezone.utc)
    assert moment("tomorrow 9:00 Europe/Berlin", zone=timezone.utc) == at("2026-11-27T09:00")
    with pytest.raises(TypedTimeError, match="this machine knows no time zone 'Mars/Base'"):
        moment("9:00 Mars/Base")


def test_today_is_the_zone_s():
    late = datetime(2026, 11, 26, 23, 30, tzinfo=timezone.utc)  # Friday in Berlin
    assert moment("today 9:00", late) == at("2026-11-27T09:00")
    assert moment("today 9:00", late, timezone.utc) == datetime(
        2026, 11, 26, 9, tzinfo=timezone.utc
    )


def test_the_time_and_the_zone_are_looked_up_only_if_the_text_needs_them():
    def never():
        raise AssertionError

    assert read("2030-01-31T09:00").moment(never, lambda: BERLIN) == at("2030-01-31T09:00")
    assert read("2030-01-31T09:00Z").moment(never, never).isoformat() == "2030-01-31T09:00:00+00:00"


@pytest.mark.parametrize("text", ["2026-11-30T09:00", "2026-11-26T21:00:07"])
def test_a_printed_time_is_read_as_the_same_time(text):
    assert moment(told(at(text), BERLIN, "Europe/Berlin"), zone=timezone.utc) == at(text)


def test_a_time_is_told_back_with_its_weekday_and_zone():
    assert told(at("2026-11-30T09:00"), BERLIN, "Europe/Berlin") == (
        "Mon 30 Nov 2026, 09:00 Europe/Berlin"
    )

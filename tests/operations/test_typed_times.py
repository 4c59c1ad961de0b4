"""Times as people type them: the instant of each, in a zone at a moment, and the refused ones."""

from datetime import datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from celery_delayq.operations.typed_times import (
    FILTERS,
    FORMS,
    MOVES,
    SPANS,
    GivenTime,
    TypedTimeError,
    read,
    read_span,
    told,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 26, 21, tzinfo=BERLIN)  # a Thursday


def moment(text, now=NOW, zone=BERLIN, **forms):
    return read(text, **forms).moment(lambda: now, lambda: zone)


READERS = {
    "": read,
    MOVES: partial(read, due=True),
    FILTERS: partial(read, ago=True, days=True),
    SPANS: read_span,
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.examples[0])
def test_each_form_that_is_shown_is_read_for_its_purpose_alone(form):
    for text in form.examples:
        assert READERS[form.only_for](text)
        if form.only_for:
            with pytest.raises(TypedTimeError):
                read(text)


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


DELAYS = {
    "now": 0, "in 2 h": 2, "In 2 Hours 30 min": 2.5, "in 2h30m": 2.5,
    "in 1.5 days": 36, "in 2 weeks": 14 * 24,
}  # fmt: skip


@pytest.mark.parametrize(("text", "hours"), DELAYS.items())
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


UNIX, FIRST = "Unix time in seconds", "2030-01-31T09:00, tomorrow 9:00, +1h30m from now (s m h d)"
SECOND = datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
GIVEN = {
    "2031-05-06T07:08:09Z": SECOND,
    "2031-05-06T09:08:09.250+02:00": SECOND.replace(microsecond=250_000),
    "2031-05-06": datetime(2031, 5, 6),  # noqa: DTZ001
    "2031-05-06T07:08": datetime(2031, 5, 6, 7, 8),  # noqa: DTZ001
    "1936000000": 1_936_000_000, "1936000000.5": 1_936_000_000.5, "0": 0,
}  # fmt: skip


@pytest.mark.parametrize(("text", "instant"), GIVEN.items())
def test_an_instant_is_iso_text_or_unix_time(text, instant):
    assert read(text) == GivenTime("at", instant)


SECONDS = {
    "0": 0, "90": 90, "90s": 90, "5m": 300, "2h": 7200, "1d": 86_400, "1.5h": 5400,
    "0.25s": 0.25, "1h30m": 5400, "1d2h3m4.5s": 93_784.5,
}  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), SECONDS.items())
def test_a_span_is_from_now_ago_or_from_the_due_time(text, seconds):
    span = timedelta(seconds=seconds)
    assert read(f"+{text}") == GivenTime("after", span)
    assert read(f"-{text}", ago=True) == GivenTime("after", -span)
    assert read(f"by:+{text}", due=True) == GivenTime("by", span)
    assert read(f"by:-{text}", due=True) == GivenTime("by", -span)


def test_never_is_taken_where_it_is_asked_for():
    assert read("never", never=True) == GivenTime("never", None)


def refused(text, expected, **forms):
    with pytest.raises(TypedTimeError) as caught:
        read(text, **forms)
    assert str(caught.value) == f"{text[:60]!r} is not a time; expected {expected}"


NONE_AT_ALL = [
    *("soon", "", "nan", "inf", "1e300", "2031-13-01", "2031-05", "9999-12-31", "9" * 400),
    *("+", "+m", "+5w", "+5 m", "+-5", "+1e3", "+1m1h", "+1h30", "+5m5m"),
    *("+99999999999d", "+9" * 50, "+" + "9" * 400),
    *("25:00", "9:60", "13 pm", "0 am", "tomorrow 9", "24:00", "in a while", "in 5 months"),
    *("m 9:00", "in", "26.11 9:00", "13/13 9:00 x", "2 h ago"),
    *("by:", "by:5m", "by:+", "by:soon", "by:+99999999999d", "by:+" + "9" * 400),
]


@pytest.mark.parametrize("text", NONE_AT_ALL, ids=lambda text: text[:20])
def test_a_word_that_is_not_a_time_is_named_beside_examples(text):
    from_due = f"{FIRST}, {UNIX}, or by:+30m from its due time"
    refused(text, f"one before 2255-06-05: {from_due}", due=True)


@pytest.mark.parametrize(
    ("forms", "text", "shown"),
    [
        *(({}, text, f"{FIRST}, or {UNIX}") for text in ("-10m", "by:+30m", "never")),
        ({"ago": True}, "soon", f"{FIRST}, {UNIX}, or -10m for ago"),
        ({"due": True, "never": True}, "soon",
         f"{FIRST}, {UNIX}, by:+30m from its due time, or never"),
    ],
)  # fmt: skip
def test_each_kind_is_taken_only_where_it_is_asked_for(forms, text, shown):
    refused(text, f"one before 2255-06-05: {shown}", **forms)


@pytest.mark.parametrize("text", ["90", "5m", "1.5"])
def test_a_delay_without_its_sign_is_told_how_it_is_written(text):
    for forms, more in (({}, ""), ({"due": True}, f", by:+{text} from its due time")):
        refused(text, f"+{text} from now{more}, or a time such as 2030-01-31T09:00", **forms)


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


def ends(text, now=NOW, zone=BERLIN):
    return read_span(text).ends(lambda: now, lambda: zone)


# The first and the last day of each; the end is the midnight behind that.
DAYS_OF = {
    "today": ("26 Nov 2026", "26 Nov 2026"), "Tomorrow": ("27 Nov 2026", "27 Nov 2026"),
    "thu": ("26 Nov 2026", "26 Nov 2026"), "wednesday": ("2 Dec 2026", "2 Dec 2026"),
    # Of a date without a year, the nearest one.
    "25 Nov": ("25 Nov 2026", "25 Nov 2026"), "2 Jan": ("2 Jan 2027", "2 Jan 2027"),
    "29.11.": ("29 Nov 2026", "29 Nov 2026"), "Sun, 29 Nov": ("29 Nov 2026", "29 Nov 2026"),
    "2026-11-29": ("29 Nov 2026", "29 Nov 2026"), "29 nov 2027": ("29 Nov 2027", "29 Nov 2027"),
    "this week": ("23 Nov 2026", "29 Nov 2026"), "next week": ("30 Nov 2026", "6 Dec 2026"),
    "fri..sun": ("27 Nov 2026", "29 Nov 2026"), "today .. 28.11.": ("26 Nov 2026", "28 Nov 2026"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "days"), DAYS_OF.items())
def test_a_day_in_a_filter_is_from_its_midnight_to_the_next(text, days):
    first, last = (datetime.strptime(day, "%d %b %Y").replace(tzinfo=BERLIN) for day in days)
    assert ends(text) == (first, last + timedelta(days=1))


OPEN = {
    "noon": (None, "2026-11-26T12:00"), "+2h": (None, "2026-11-26T23:00"),
    "-10m": (None, "2026-11-26T20:50"), "..now": (None, "2026-11-26T21:00"),
    "..tomorrow": (None, "2026-11-28T00:00"), "tomorrow..": ("2026-11-27T00:00", None),
    "now..": ("2026-11-26T21:00", None), "9:00..noon": ("2026-11-26T09:00", "2026-11-26T12:00"),
    "now..tomorrow": ("2026-11-26T21:00", "2026-11-28T00:00"),
    "2026-11-30T09:00..": ("2026-11-30T09:00", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "given"), OPEN.items())
def test_a_span_is_open_where_nothing_is_typed_and_a_time_alone_is_its_end(text, given):
    assert ends(text) == tuple(each and at(each) for each in given)


@pytest.mark.parametrize(
    ("zone", "today", "begin", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", "2026-10-25T00:00:00+02:00", 25),
        ("Europe/Berlin", "2027-03-28", "2027-03-28T00:00:00+01:00", 23),
        ("Africa/Cairo", "2026-04-24", "2026-04-24T01:00:00+03:00", 23),  # has no midnight
        ("America/Havana", "2026-11-01", "2026-11-01T00:00:00-04:00", 25),  # has two
    ],
)
def test_a_day_is_whole_when_clocks_change(zone, today, begin, hours):
    there = ZoneInfo(zone)
    first, end = ends(
        "today", datetime.fromisoformat(f"{today}T12:00").replace(tzinfo=there), there
    )
    utc = [each.astimezone(timezone.utc) for each in (first, end)]
    assert (first.astimezone(there).isoformat(), utc[1] - utc[0]) == (begin, timedelta(hours=hours))


EITHER = "2027-03-02T00:00:00+01:00 or 2027-02-03T00:00:00+01:00"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sun..fri", "ends before it begins; type dates, such as 2030-01-28..2030-01-31"),
        ("noon..9:00", "ends before it begins; type dates, such as 2030-01-28..2030-01-31"),
        ("..", "is not a time; expected a day such as tomorrow, or a span such as mon..fri"),
        ("31 Apr", "is not a time: there is no such day"),
        ("2/3/27", f"can mean two times; type {EITHER}"),
        ("tomorow", "is not a time; did you mean tomorrow?"),
        ("wensday", "is not a time; did you mean wednesday?"),
        ("29 Novmber", "is not a time; did you mean 29 november?"),
    ],
)  # fmt: skip
def test_a_span_that_is_none_is_refused_with_the_reason(text, reason):
    with pytest.raises(TypedTimeError) as caught:
        ends(text)
    assert str(caught.value) == f"{text!r} {reason}"


def test_a_day_is_its_begin_where_one_time_is_asked_for_and_noon_is_one():
    assert moment("tomorrow", ago=True, days=True) == at("2026-11-27T00:00")
    assert moment("tomorrow noon") == at("2026-11-27T12:00")
    assert moment("noon") == at("2026-11-27T12:00")  # today's is over

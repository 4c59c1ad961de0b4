"""Times as users give them: the meaning of each, and the refused ones."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from celery_delayq.core.clock import MAX_DUE_MS, When, after, at, by, from_ms
from celery_delayq.errors import InvalidDueTime, NotADueTime

pytestmark = pytest.mark.core

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR_MS = 1_798_761_600_000  # 2027-01-01T00:00:00Z

TIME = "an aware datetime, Unix time in seconds, or ISO 8601 text, before 2255-06-05"
DELAY = "a timedelta or a number of seconds that ends before 2255-06-05"


@pytest.mark.parametrize(
    "value",
    [
        datetime(2027, 1, 1, tzinfo=UTC),
        datetime(2027, 1, 1, 1, tzinfo=BERLIN),
        datetime(2027, 1, 1, 1),  # noqa: DTZ001
        NEW_YEAR_MS // 1000,
        NEW_YEAR_MS / 1000,
        "2027-01-01T00:00:00Z",
        "2027-01-01T01:00:00+01:00",
        "2027-01-01T01:00",
        "20270101T010000",
        "2027-01-01T01",
        "2027-01-01 01:00",
        "20270101 0100",
    ],
    ids=repr,
)
def test_one_instant_can_be_given_in_many_ways(value):
    assert at(value, BERLIN) == When("at", NEW_YEAR_MS)


def test_iso_text_without_a_time_of_day_is_midnight_in_the_zone():
    assert at("2027-01-01", BERLIN) == at(datetime(2027, 1, 1, tzinfo=BERLIN), UTC)


# 2026-10-25 in Berlin: 02:00 to 03:00 happens twice. 2026-03-29: 02:00 to 03:00 does not happen.
@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(
    "wall",
    [
        datetime(2026, 10, 25, 2, 30),  # noqa: DTZ001
        datetime(2026, 3, 29, 2, 30),  # noqa: DTZ001
        datetime(2026, 3, 29, 1, 59, 59),  # noqa: DTZ001
        datetime(2026, 3, 29, 3),  # noqa: DTZ001
    ],
    ids=["ambiguous", "missing", "before", "behind"],
)
def test_around_a_clock_change_naive_and_aware_are_what_zoneinfo_says(wall, fold):
    wall = wall.replace(fold=fold)
    aware = wall.replace(tzinfo=BERLIN)
    expected = When("at", round(aware.timestamp() * 1000))
    assert at(wall, BERLIN) == expected
    assert at(aware, UTC) == expected


def test_the_fold_of_an_ambiguous_hour_is_one_hour():
    first = datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001
    assert at(first.replace(fold=1), BERLIN).ms - at(first, BERLIN).ms == 3_600_000


def test_a_relative_delay_counts_seconds_not_wall_time():
    assert after(timedelta(days=1)) == after(86_400) == after(86_400.0) == When("after", 86_400_000)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (datetime(2027, 1, 1, 0, 0, 0, 1, tzinfo=UTC), NEW_YEAR_MS + 1),
        (datetime(2027, 1, 1, 0, 0, 0, 999, tzinfo=UTC), NEW_YEAR_MS + 1),
        (datetime(2027, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), NEW_YEAR_MS + 1),
        (datetime(2027, 1, 1, 0, 0, 0, 1001, tzinfo=UTC), NEW_YEAR_MS + 2),
        ("2027-01-01T00:00:00.000001Z", NEW_YEAR_MS + 1),
        (1700000000.001, 1_700_000_000_001),
        (1700000000.0011, 1_700_000_000_002),
    ],
)
def test_a_due_time_is_rounded_up_to_the_millisecond(value, ms):
    assert at(value, UTC).ms == ms


@pytest.mark.parametrize(
    ("delay", "ms"), [(0.0001, 1), (0.001, 1), (timedelta(microseconds=1), 1), (1.5, 1500)]
)
def test_a_delay_is_rounded_up_to_the_millisecond(delay, ms):
    assert after(delay) == When("after", ms)
    assert by(delay) == When("by", ms)


def test_an_earlier_time_by_a_fraction_is_rounded_up_as_well():
    assert by(-0.0011) == When("by", -1)
    assert by(timedelta(microseconds=-1100)) == When("by", -1)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        -1.5,
        -(10**11),
        "1969-12-31T23:59:59Z",
        datetime(1600, 1, 1, tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
    ],
    ids=repr,
)
def test_the_past_however_distant_means_at_once(value):
    assert at(value, UTC) == When("at", 0)


@pytest.mark.parametrize("delay", [0, -1, -0.5, timedelta(0), timedelta(days=-1), timedelta.min])
def test_no_delay_or_a_negative_one_means_at_once(delay):
    assert after(delay) == When("after", 0)


@pytest.mark.parametrize("years", [1 / 12, 1, 10, 200])
def test_a_month_to_two_centuries_ahead_are_accepted(years):
    seconds = round(years * 365.25 * 86_400)
    assert after(timedelta(seconds=seconds)) == When("after", seconds * 1000)


def test_the_last_possible_due_time_is_accepted_and_the_next_is_not():
    last = from_ms(MAX_DUE_MS)
    assert at(last, UTC) == When("at", MAX_DUE_MS)
    with pytest.raises(InvalidDueTime):
        at(last + timedelta(microseconds=1), UTC)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        1e300,
        10**400,
        9.1e9,
        "12:30",
        "1e9",
        datetime(2256, 1, 1, tzinfo=UTC),
        datetime.max,  # noqa: DTZ901
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        "2256-01-01",
        "9999-12-31T24:00",
        "",
        "tomorrow",
        "2027-13-01",
        "2027-01-01T25:00",
        "1700000000",
        "２０２７-01-01",  # noqa: RUF001
        "2027-01-01\x00",
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_impossible_time_is_refused_by_value(value):
    with pytest.raises(InvalidDueTime) as caught:
        at(value, UTC)
    assert str(caught.value) == str(InvalidDueTime(value, TIME))
    assert not isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        b"2027-01-01",
        Decimal(1),
        Fraction(1),
        1j,
        object,
    ],
    ids=repr,
)
def test_a_value_that_is_no_time_at_all_is_refused_by_type(value):
    with pytest.raises(NotADueTime) as caught:
        at(value, UTC)
    assert str(caught.value) == f"{value!r} is not a due time; expected {TIME}"
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("relative", [after, by])
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 1e300, 10**400, timedelta.max, timedelta(days=150_000)],
    ids=lambda value: repr(value)[:30],
)
def test_an_impossible_delay_is_refused_by_value(relative, value):
    with pytest.raises(InvalidDueTime) as caught:
        relative(value)
    assert str(caught.value) == str(InvalidDueTime(value, DELAY))
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("relative", [after, by])
@pytest.mark.parametrize(
    "value",
    [None, True, b"1", 1j, "5", "5m", Decimal(1)],
    ids=repr,
)
def test_a_value_that_is_no_delay_is_refused_by_type(relative, value):
    with pytest.raises(NotADueTime) as caught:
        relative(value)
    assert str(caught.value) == f"{value!r} is not a due time; expected {DELAY}"


IS_A_DELAY = "a delay goes to delay_for, or after="
MILLISECONDS = "milliseconds are divided by 1000"
ARGUMENTS = "the time comes first, then the task's arguments"
A_DATE = "text begins with a whole date, such as 2030-01-31T09:00"
# dateutil reads them all: as years, months, days of a year, weeks, dates, and as 23:00.
NO_DATES = [
    *("1530", "0930", "2030", "2030-01", "2030123", "2030-123", "2030-W05-2", "2030W052"),
    *("20300101", "203001011230", "20300101123000", "2030-01-01x09:00"),
]


@pytest.mark.parametrize(
    ("value", "error", "hint"),
    [
        (5, InvalidDueTime, IS_A_DELAY),
        (315_532_799.0, InvalidDueTime, IS_A_DELAY),
        ("5m", InvalidDueTime, IS_A_DELAY),
        (timedelta(1), NotADueTime, IS_A_DELAY),
        (NEW_YEAR_MS, InvalidDueTime, MILLISECONDS),
        (
            date(2027, 1, 1),
            NotADueTime,
            "a date has no time of day: make it a datetime",
        ),
        ((1, 2), NotADueTime, ARGUMENTS),
        *((text, InvalidDueTime, A_DATE) for text in NO_DATES),
    ],
    ids=str,
)
def test_the_error_for_a_value_that_is_no_time_says_what_to_do(value, error, hint):
    with pytest.raises(error) as caught:
        at(value, UTC)
    assert str(caught.value) == str(InvalidDueTime(value, f"{TIME}; {hint}"))


@pytest.mark.parametrize("relative", [after, by])
@pytest.mark.parametrize(
    ("value", "error", "hint"),
    [(NEW_YEAR_MS, InvalidDueTime, MILLISECONDS), ((1, 2), NotADueTime, ARGUMENTS)],
    ids=str,
)
def test_the_error_for_a_value_that_is_no_delay_says_what_to_do(relative, value, error, hint):
    with pytest.raises(error) as caught:
        relative(value)
    assert str(caught.value) == str(InvalidDueTime(value, f"{DELAY}; {hint}"))


def test_unix_time_as_a_delay_is_told_where_it_belongs():
    with pytest.raises(InvalidDueTime) as caught:
        after(10**9 + 1)
    assert str(caught.value).endswith(f"{DELAY}; a time goes to delay_until, or at=")


def test_no_delay_and_one_of_years_are_meant_as_they_are():
    assert at(0, UTC) == When("at", 0)
    assert at(315_532_800, UTC) == When("at", 315_532_800_000)
    assert after(10**9) == When("after", 10**12)
    assert after(timedelta(days=40 * 365)) == When("after", 40 * 365 * 86_400_000)


@pytest.mark.parametrize("relative", [after, by])
@pytest.mark.parametrize("value", ["", "2027-01-01", datetime(2027, 1, 1, tzinfo=UTC)], ids=repr)
def test_a_time_in_place_of_a_delay_is_told_where_it_belongs(relative, value):
    with pytest.raises(NotADueTime) as caught:
        relative(value)
    expected = InvalidDueTime(value, f"{DELAY}; a time goes to delay_until, or at=")
    assert str(caught.value) == str(expected)

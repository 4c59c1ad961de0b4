"""Times as users give them: their meaning and properties, and the refused ones."""

import math
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from celery_delayq.core.clock import MAX_DUE_MS, When, after, at, by, from_ms, to_ms
from celery_delayq.errors import InvalidDueTime, NotADueTime

pytestmark = pytest.mark.core


UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR_MS = 1_798_761_600_000  # 2027-01-01T00:00:00Z

TIME = "an aware datetime, Unix time in seconds, or ISO 8601 text, before 2255-06-05"
DELAY = "a timedelta or a number of seconds that ends before 2255-06-05"


NEW_YEARS = [
    *(datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, 1, tzinfo=BERLIN)),
    datetime(2027, 1, 1, 1),  # noqa: DTZ001
    *(NEW_YEAR_MS // 1000, NEW_YEAR_MS / 1000, "2027-01-01T00:00:00Z"),
    *("2027-01-01T01:00:00+01:00", "2027-01-01T01:00", "20270101T010000", "2027-01-01T01"),
    *("2027-01-01 01:00", "20270101 0100"),
]


@pytest.mark.parametrize("value", NEW_YEARS, ids=repr)
def test_one_instant_can_be_given_in_many_ways(value):
    assert at(value, BERLIN) == When("at", NEW_YEAR_MS)


def test_iso_text_without_a_time_of_day_is_midnight_in_the_zone():
    assert at("2027-01-01", BERLIN) == at(datetime(2027, 1, 1, tzinfo=BERLIN), UTC)


def test_a_relative_delay_counts_seconds_not_wall_time():
    assert after(timedelta(days=1)) == after(86_400) == after(86_400.0) == When("after", 86_400_000)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        *((datetime(2027, 1, 1, 0, 0, 0, n, tzinfo=UTC), NEW_YEAR_MS + 1) for n in (1, 999, 1000)),
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
    assert (after(delay), by(delay)) == (When("after", ms), When("by", ms))


def test_an_earlier_time_by_a_fraction_is_rounded_up_as_well():
    assert by(-0.0011) == by(timedelta(microseconds=-1100)) == When("by", -1)


PAST = [
    *(0, -1, -1.5, -(10**11), "1969-12-31T23:59:59Z"),
    *(datetime(1600, 1, 1, tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
]


@pytest.mark.parametrize("value", PAST, ids=repr)
def test_the_past_however_distant_means_at_once(value):
    assert at(value, UTC) == When("at", 0)


@pytest.mark.parametrize("delay", [0, -1, -0.5, timedelta(0), timedelta(days=-1), timedelta.min])
def test_no_delay_or_a_negative_one_means_at_once(delay):
    assert after(delay) == When("after", 0)


def test_the_last_possible_due_time_is_accepted_and_the_next_is_not():
    last = from_ms(MAX_DUE_MS)
    assert at(last, UTC) == When("at", MAX_DUE_MS)
    with pytest.raises(InvalidDueTime):
        at(last + timedelta(microseconds=1), UTC)


def refused(call, value, error, hint):
    """The call refuses *value* with its sentence: one that is no time at all as a wrong type."""
    expected = DELAY if call in (after, by) else TIME
    with pytest.raises(error) as caught:
        call(value)
    more = f"; {hint}" if hint else ""
    assert str(caught.value) == str(InvalidDueTime(value, f"{expected}{more}"))
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError) is (error is NotADueTime)


IS_A_DELAY = "a delay goes to delay_for, or after="
MILLISECONDS = "milliseconds are divided by 1000"
ARGUMENTS = "the time comes first, then the task's arguments"
A_DATE = "text begins with a whole date, such as 2030-01-31T09:00"
IS_A_TIME = "a time goes to delay_until, or at="
IMPOSSIBLE = [
    *(float("nan"), float("inf"), float("-inf"), 1e300, 10**400, 9.1e9, "12:30", "1e9"),
    datetime(2256, 1, 1, tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    datetime.max,  # noqa: DTZ901
    *("2256-01-01", "9999-12-31T24:00", "", "tomorrow", "2027-13-01", "2027-01-01T25:00"),
    *("1700000000", "２０２７-01-01", "2027-01-01\x00"),  # noqa: RUF001
]
# dateutil reads them all: as years, months, days of a year, weeks, dates, and as 23:00.
NO_DATES = [
    *("1530", "0930", "2030", "2030-01", "2030123", "2030-123", "2030-W05-2", "2030W052"),
    *("20300101", "203001011230", "20300101123000", "2030-01-01x09:00"),
]
NO_TIMES = [None, True, False, b"2027-01-01", Decimal(1), Fraction(1), 1j, object]


@pytest.mark.parametrize(
    ("value", "error", "hint"),
    [
        *((value, InvalidDueTime, "") for value in IMPOSSIBLE),
        *((text, InvalidDueTime, A_DATE) for text in NO_DATES),
        *((value, NotADueTime, "") for value in NO_TIMES),
        *((value, InvalidDueTime, IS_A_DELAY) for value in (5, 315_532_799.0, "5m")),
        (timedelta(1), NotADueTime, IS_A_DELAY),
        *((value, InvalidDueTime, MILLISECONDS) for value in (NEW_YEAR_MS, MAX_DUE_MS)),
        (MAX_DUE_MS + 1, InvalidDueTime, ""),
        (date(2027, 1, 1), NotADueTime, "a date has no time of day: make it a datetime"),
        ((1, 2), NotADueTime, ARGUMENTS),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_that_is_no_time_is_refused_with_what_to_do(value, error, hint):
    refused(lambda value: at(value, UTC), value, error, hint)


@pytest.mark.parametrize("relative", [after, by])
@pytest.mark.parametrize(
    ("value", "error", "hint"),
    [
        *((number, InvalidDueTime, "") for number in (float("nan"), float("inf"), 1e300, 10**400)),
        *((span, InvalidDueTime, "") for span in (timedelta.max, timedelta(days=150_000))),
        *((value, NotADueTime, "") for value in (None, True, b"1", 1j, "5", "5m", Decimal(1))),
        (NEW_YEAR_MS, InvalidDueTime, MILLISECONDS),
        ((1, 2), NotADueTime, ARGUMENTS),
        *((text, NotADueTime, IS_A_TIME) for text in ("", "2027-01-01")),
        (datetime(2027, 1, 1, tzinfo=UTC), NotADueTime, IS_A_TIME),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_that_is_no_delay_is_refused_with_what_to_do(relative, value, error, hint):
    refused(relative, value, error, hint)


def test_unix_time_as_a_delay_is_told_where_it_belongs():
    refused(after, 10**9 + 1, InvalidDueTime, IS_A_TIME)


def test_no_delay_and_one_of_years_are_meant_as_they_are():
    assert at(0, UTC) == When("at", 0)
    assert at(315_532_800, UTC) == When("at", 315_532_800_000)
    assert after(10**9) == When("after", 10**12)
    assert after(timedelta(days=40 * 365)) == When("after", 40 * 365 * 86_400_000)


# Properties of every time: never early, less than a millisecond late, read in one way only.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# Zones whose clocks jump by an hour, by half an hour, by a whole day; and one without jumps.
ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata")

# Bounds of st.datetimes must be naive.
bounds = {"min_value": datetime(1970, 1, 3), "max_value": datetime(2255, 1, 1)}  # noqa: DTZ001
naive = st.datetimes(**bounds)
instants = st.datetimes(**bounds, timezones=st.just(UTC))
zones = st.sampled_from(ZONES).map(ZoneInfo)


@st.composite
def seconds_near_a_millisecond(draw) -> float:
    """Doubles a few steps away from a whole millisecond: rounding is most likely to fail there."""
    seconds = draw(st.integers(10**11, 9 * 10**12)) / 1000
    towards = draw(st.sampled_from((-math.inf, math.inf)))
    for _ in range(draw(st.integers(0, 5))):
        seconds = math.nextafter(seconds, towards)
    return seconds


seconds = st.one_of(st.floats(0, 9 * 10**9), seconds_near_a_millisecond())


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


@given(instants)
def test_a_datetime_is_never_early_and_less_than_a_millisecond_late(moment):
    late = to_ms(moment, UTC) * 1000 - microseconds(moment)
    assert 0 <= late < 1000


@given(seconds)
def test_seconds_are_never_early_beyond_their_own_rounding_to_microseconds(value):
    late = to_ms(value, UTC) * 1000 - Fraction(value) * 1_000_000
    assert Fraction(-1, 2) <= late < 1000 + Fraction(1, 2)


@given(seconds)
@example(2723891368.4570007)
def test_seconds_mean_what_fromtimestamp_says(value):
    assert to_ms(value, UTC) == to_ms(datetime.fromtimestamp(value, UTC), UTC)


@given(st.floats(0, 10**9))
@example(0.0005000001)
def test_a_delay_in_seconds_is_the_timedelta_of_so_many_seconds(value):
    assert after(value) == after(timedelta(seconds=value))


@given(st.integers(0, 9 * 10**12))
def test_whole_milliseconds_survive_every_form(ms):
    moment = from_ms(ms)
    assert to_ms(moment, UTC) == ms
    assert to_ms(moment.isoformat(), UTC) == ms
    # From 2242 on a double's steps are larger than a microsecond.
    if ms < 2**33 * 1000:
        assert to_ms(ms / 1000, UTC) == ms


# 2026-10-25 in Berlin: 02:00 to 03:00 happens twice. 2026-03-29: 02:00 to 03:00 does not happen.
TWICE, NEVER = datetime(2026, 10, 25, 2, 30), datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001


@given(naive, zones, st.integers(0, 1))
@example(TWICE, ZoneInfo("Europe/Berlin"), 0)
@example(TWICE, ZoneInfo("Europe/Berlin"), 1)
@example(NEVER, ZoneInfo("Europe/Berlin"), 0)
@example(NEVER, ZoneInfo("Europe/Berlin"), 1)
def test_naive_wall_time_is_what_zoneinfo_makes_of_it(wall, zone: tzinfo, fold):
    wall = wall.replace(fold=fold)
    aware = wall.replace(tzinfo=zone)
    assert at(wall, zone) == at(aware, UTC) == at(aware.astimezone(UTC), zone)


@given(instants, zones)
def test_the_zone_of_an_aware_datetime_does_not_matter(moment, zone):
    assert at(moment.astimezone(zone), UTC) == at(moment, zone) == at(moment.isoformat(), zone)


@given(st.text(max_size=30))
def test_text_is_a_time_or_is_refused_with_its_value(text):
    try:
        at(text, UTC)
    except InvalidDueTime as error:
        refused = error
    else:
        return
    assert refused.value == text

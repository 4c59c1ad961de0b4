"""Properties of every time: never early, less than a millisecond late, read in one way only."""

import math
from datetime import datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from celery_delayq.core.clock import after, at, from_ms, to_ms
from celery_delayq.errors import InvalidDueTime

pytestmark = pytest.mark.core

UTC = timezone.utc
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

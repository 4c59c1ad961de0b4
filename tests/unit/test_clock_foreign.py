"""Times of other libraries' classes: pendulum's and pandas' have their own arithmetic."""

from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq.clock import When, after, at, by
from celery_delayq.errors import InvalidDueTime, NotADueTime

UTC = timezone.utc
NEW_YEAR_MS = 1_798_761_600_000  # 2027-01-01T00:00:00Z


class Duration(timedelta):
    """As pendulum's: its arithmetic accepts only its own class."""

    def __divmod__(self, other):
        return divmod(self._to_microseconds(), other._to_microseconds())


class DateTime(datetime):
    """As pendulum's: a difference is a Duration."""

    def __sub__(self, other):
        return Duration(seconds=super().__sub__(other).total_seconds())


class Timestamp(datetime):
    """As pandas', which counts nanoseconds as well."""

    nanosecond = 0


class NaT(datetime):
    """As pandas' "not a time", which is a datetime."""

    def utcoffset(self):
        raise ValueError("NaTType does not support utcoffset")


class NaTWithoutOffset(datetime):
    """The same, as another version may have it."""

    year = month = day = hour = minute = second = microsecond = float("nan")

    def utcoffset(self):
        return None


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45)), None], ids=str)
@pytest.mark.parametrize("kind", [DateTime, Timestamp])
def test_a_datetime_of_another_class_is_the_instant_that_it_says(kind, zone):
    local = datetime.fromtimestamp(NEW_YEAR_MS / 1000, zone or UTC).replace(tzinfo=zone)
    value = kind(local.year, local.month, local.day, local.hour, local.minute, tzinfo=zone)
    assert at(value, UTC) == When("at", NEW_YEAR_MS)


def test_a_timedelta_of_another_class_is_as_long_as_it_says():
    assert after(Duration(minutes=5)) == When("after", 300_000)
    assert by(Duration(microseconds=-1100)) == When("by", -1)


def test_a_nanosecond_is_rounded_up():
    value = Timestamp(2027, 1, 1, tzinfo=UTC)
    value.nanosecond = 1
    assert at(value, UTC).ms == NEW_YEAR_MS + 1


@pytest.mark.parametrize("kind", [NaT, NaTWithoutOffset])
def test_a_datetime_that_is_not_a_time_is_refused(kind):
    with pytest.raises(InvalidDueTime, match="not a due time"):
        at(kind(1, 1, 1), UTC)
    with pytest.raises(NotADueTime):
        after(kind(1, 1, 1))

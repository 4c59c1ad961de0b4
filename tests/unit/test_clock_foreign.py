"""Times of other libraries' classes: pendulum's and pandas' have their own arithmetic.

Zones of other libraries: pytz, dateutil and Celery have their own rules for a wall time.
"""

import time
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
import pytz
from celery.utils import time as celerys
from dateutil import tz

from celery_delayq.core.clock import When, after, at, by, instant, local
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


# The hours that they leave out, those that come twice, and a day that Samoa left out.
CHANGES = [
    ("Europe/Berlin", "2030-03-31T02:30"),
    ("Europe/Berlin", "2030-10-27T02:30"),
    ("America/New_York", "2030-03-10T02:30"),
    ("America/New_York", "2030-11-03T01:30"),
    ("Europe/Dublin", "2030-10-27T01:30"),
    ("Pacific/Apia", "2011-12-30T12:00"),
]


@pytest.fixture
def this_machine_in(monkeypatch):
    """Put this machine into a zone, of which Celery knows no name, as in 5.4."""

    def put(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()
        monkeypatch.setitem(vars(celerys.timezone), "local", celerys.LocalTimezone())
        return local()

    yield put
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("kind", ["pytz", "dateutil", "local"])
@pytest.mark.parametrize(("name", "text"), CHANGES)
def test_a_wall_time_around_a_change_of_clocks_is_what_zoneinfo_says(
    this_machine_in, kind, name, text
):
    made = {"pytz": pytz.timezone, "dateutil": tz.gettz, "local": this_machine_in}
    zone, own = made[kind](name), ZoneInfo(name)
    middle = datetime.fromisoformat(text)

    for hours in (-24, -1, 0, 1, 24):
        for fold in (0, 1):
            wall = (middle + timedelta(hours=hours)).replace(fold=fold)
            assert at(wall, zone) == at(wall.replace(tzinfo=own), UTC)


def test_the_zone_of_this_machine_west_of_greenwich_shows_its_time(this_machine_in):
    zone = this_machine_in("America/New_York")
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert noon.astimezone(zone).isoformat() == "2030-01-01T07:00:00-05:00"
    assert instant(datetime(2030, 1, 1, 7), zone) == noon  # noqa: DTZ001

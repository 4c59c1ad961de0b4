"""Wall times in time zones: one rule for the hours that clocks repeat or leave out.

It is zoneinfo's rule. In an hour that comes twice, a wall time is the first one, or with ``fold=1``
the second one. In an hour that the clocks leave out, the offset from before the change counts, or
with ``fold=1`` the one from after it.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from celery.utils.time import LocalTimezone
from celery.utils.time import timezone as celerys

__all__ = ["LocalTime", "instant", "local"]

_A_DAY = timedelta(days=1)


def instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return the aware time at which the clocks of *zone* show the naive time *wall*."""
    if isinstance(zone, (ZoneInfo, timezone)):
        return wall.replace(tzinfo=zone)
    # Zones of other libraries may know neither the offset of a wall time (pytz) nor this rule
    # (dateutil), but each of them knows what its clocks show at a moment.
    as_utc = wall.replace(fold=0)
    offsets = [_offset(as_utc - _A_DAY, zone), _offset(as_utc + _A_DAY, zone)]
    moments = [as_utc - offset for offset in offsets]
    shown = [at for at, offset in zip(moments, offsets, strict=True) if _offset(at, zone) == offset]
    moment = shown[0] if len(shown) == 1 else moments[wall.fold]
    return moment.replace(tzinfo=timezone.utc)


def _offset(utc: datetime, zone: tzinfo) -> timedelta:
    """Return how far ahead a zone's clocks are at a moment, in UTC without ``tzinfo``."""
    return zone.fromutc(utc.replace(tzinfo=zone)).replace(tzinfo=None) - utc


class LocalTime(tzinfo):
    """This machine's time zone.

    That of Celery 5.4 is a day off west of Greenwich, where it converts from UTC.
    """

    key = "local"

    def fromutc(self, when: datetime) -> datetime:
        return when.replace(tzinfo=timezone.utc).astimezone().replace(tzinfo=self)

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        if when is None:
            return None
        wall = when.replace(tzinfo=None)
        return wall - instant(wall, self).replace(tzinfo=None)

    def dst(self, when: datetime | None) -> None:
        """Unknown."""

    def tzname(self, when: datetime | None) -> str:  # noqa: ARG002
        return self.key


def local() -> tzinfo:
    """Return this machine's time zone; by its name, if Celery finds that."""
    zone: tzinfo = celerys.local
    return LocalTime() if isinstance(zone, LocalTimezone) else zone

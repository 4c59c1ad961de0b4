"""Reads what a user typed or clicked: times, zones, filters.

    after=-10m&queue=mail&zone=Europe/Berlin --> the arguments of DelayQ.tasks and DelayQ.select

Times have the forms of the command line, ``operations/typed_times.py``. A time without an offset
is in the zone that the browser's script reports, or else in the app's own.
"""

from __future__ import annotations

from datetime import datetime, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from werkzeug.exceptions import BadRequest

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...operations.typed_times import GivenTime, TypedTimeError, read
from .visit import Visit

#: The filters of ``select``, as they stand in a URL, with the names that ``select`` has for them.
FILTERS = {
    "tag": "tag",
    "task": "task",
    "queue": "queue",
    "state": "state",
    "after": "after_due",
    "before": "before_due",
}
_TIMES = ("after", "before")
_ZONE = "a time zone that this machine knows, such as Europe/Berlin, or a time with its offset"


def time_of(text: str, **forms: bool) -> GivenTime:
    """Read a time; *forms* are those of :func:`read`.

    Raises:
        BadRequest: it is none; the sentence has examples.
    """
    try:
        return read(text, **forms)
    except TypedTimeError as error:
        raise BadRequest(str(error)) from None


def moment_of(visit: Visit, given: GivenTime) -> datetime:
    """Return the instant of a time that is not ``by`` a task's own; now is by Redis's clock.

    Raises:
        BadRequest: it can mean two times.
    """
    try:
        moment = given.moment(lambda: from_ms(visit.delayq.counts().now_ms), lambda: zone_of(visit))
    except TypedTimeError as error:
        raise BadRequest(str(error)) from None
    return from_ms(clock.to_ms(moment, timezone.utc))


def zone_of(visit: Visit) -> tzinfo:
    """Return the zone of naive times.

    Raises:
        InvalidOption: this machine knows no such zone.
    """
    name = visit.request.values.get("zone", "")
    if not name:
        return visit.delayq.services.timezone
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidOption("zone", name, _ZONE) from None


def in_url(visit: Visit) -> dict[str, Any]:
    """Return the filters as they stand in the URL, without empty ones."""
    args = visit.request.args
    given = {name: [value for value in args.getlist(name) if value] for name in (*FILTERS, "zone")}
    return {name: some for name, some in given.items() if some}


def picked(visit: Visit) -> dict[str, Any]:
    """Return the filters as arguments of ``DelayQ.select``.

    Raises:
        BadRequest: a time is none.
        InvalidOption: a time is given twice, or the zone is none.
    """
    found: dict[str, Any] = {}
    for name, some in in_url(visit).items():
        if name in _TIMES:
            if len(some) > 1:
                raise InvalidOption(name, some, "one time")
            found[FILTERS[name]] = moment_of(visit, time_of(some[0], ago=True))
        elif name in FILTERS:
            found[FILTERS[name]] = some
    return found


def moved(visit: Visit, text: str) -> dict[str, Any]:
    """Return the arguments of a reschedule: ``at``, ``after`` or ``by``.

    Raises:
        BadRequest: it is no time.
    """
    given = time_of(text, due=True)
    if given.kind in ("after", "by"):
        return {given.kind: given.value}
    return {"at": moment_of(visit, given)}


def moved_or_why(visit: Visit, text: str) -> tuple[dict[str, Any], str]:
    """Return the same, and the reason why it is no time; the latter is empty if it is one."""
    try:
        return moved(visit, text), ""
    except (BadRequest, InvalidOption) as error:
        return {}, error.description or "" if isinstance(error, BadRequest) else str(error)


def instant_of(options: dict[str, Any], due: datetime, now: datetime) -> int:
    """Return the ms since 1970 that the arguments of a reschedule mean for a task, now."""
    if "by" in options:
        return clock.to_ms(due + options["by"], timezone.utc)
    return clock.to_ms(options["at"] if "at" in options else now + options["after"], timezone.utc)

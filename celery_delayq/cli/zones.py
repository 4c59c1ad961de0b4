"""The time zone of what is typed and printed: the app's own, or ``--utc``, or ``--local``.

In tables the heading says which one it is, in sentences the time itself.
JSON is always in UTC, with the offset.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone, tzinfo
from typing import Any

import click
from celery.utils.time import LocalTimezone
from celery.utils.time import timezone as zones

from ..logs import lasting
from .common import delayq_of
from .looks import CeleryOption

_CHOSEN = "celery_delayq.zone"  # in a context's meta
_STAMP = len("2030-01-31 09:00:00.000")


def zoned(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--utc`` and ``--local``; what it was told is in :func:`zone_of`."""
    for name, text in (
        ("--local", "Times in this machine's time zone, typed and printed."),
        ("--utc", "Times in UTC. By default they are in the app's own zone."),
    ):
        command = click.option(
            name, is_flag=True, cls=CeleryOption, help_group="Times", help=text,
            expose_value=False, callback=_choose,
        )(command)  # fmt: skip
    return command


def _choose(ctx: click.Context, option: click.Parameter, is_given: bool) -> None:
    if is_given:
        if _CHOSEN in ctx.meta:
            raise click.UsageError("--utc and --local exclude each other.", ctx)
        ctx.meta[_CHOSEN] = timezone.utc if option.name == "utc" else zones.local


def zone_of(ctx: click.Context) -> tzinfo:
    """The zone that a command was told; by default that of the app's naive times."""
    chosen: tzinfo | None = ctx.meta.get(_CHOSEN)
    return delayq_of(ctx).services.timezone if chosen is None else chosen


def name_of(zone: tzinfo) -> str:
    """What a zone is called in a heading."""
    if isinstance(zone, LocalTimezone):
        return "local"
    # `key` is zoneinfo's, `zone` pytz's.
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name if isinstance(name, str) else str(zone)


def stamp(time: datetime, zone: tzinfo) -> str:
    """A time as tables have it, whose heading says the zone; without a fraction of zero."""
    return time.astimezone(zone).isoformat(" ", "milliseconds")[:_STAMP].removesuffix(".000")


def with_zone(time: datetime, zone: tzinfo) -> str:
    """A time as in tables, for a sentence: with the zone."""
    return f"{stamp(time, zone)} {name_of(zone)}"


def until(time: datetime, now: datetime) -> str:
    """How far off a time is: ``19 min``, ``now``, or ``21 s ago``."""
    seconds = (time - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return lasting(seconds) if seconds > 0 else f"{lasting(-seconds)} ago"


def soon(time: datetime, now: datetime) -> str:
    """The same within a sentence: ``in 19 min``, ``21 s ago``."""
    span = lasting(abs((time - now).total_seconds()))
    return f"in {span}" if time > now else f"{span} ago"


def relative(time: datetime, now: datetime, zone: tzinfo) -> str:
    """A time as people read it: ``in 19 min (2030-01-31 09:00:00 UTC)``, or so long ago."""
    return f"{soon(time, now)} ({with_zone(time, zone)})"

"""The time zone of times that you type and read: the app's, or ``--utc``, or ``--local``.

Tables name the zone in the heading, sentences after the time. JSON is always in UTC, with the
offset.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone, tzinfo
from typing import Any

import click

from ...core.clock import local
from ...core.text import lasting
from .common import delayq_of
from .looks import CeleryOption

_CHOSEN = "celery_delayq.zone"  # in a context's meta
_STAMP = len("2030-01-31 09:00:00.000")


def zoned(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--utc`` and ``--local`` to a command; :func:`zone_of` returns the choice."""
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
        ctx.meta[_CHOSEN] = timezone.utc if option.name == "utc" else local()


def zone_of(ctx: click.Context) -> tzinfo:
    """Return the chosen zone; by default that of the app's naive times."""
    chosen: tzinfo | None = ctx.meta.get(_CHOSEN)
    return delayq_of(ctx).services.timezone if chosen is None else chosen


def name_of(zone: tzinfo) -> str:
    """Return a zone's name for a heading."""
    # zoneinfo has `key`, pytz has `zone`.
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name if isinstance(name, str) else str(zone)


def stamp(time: datetime, zone: tzinfo) -> str:
    """Return a time for a table, whose heading names the zone; without a zero fraction."""
    return time.astimezone(zone).isoformat(" ", "milliseconds")[:_STAMP].removesuffix(".000")


def with_zone(time: datetime, zone: tzinfo) -> str:
    """Return a time for a sentence, with its zone."""
    return f"{stamp(time, zone)} {name_of(zone)}"


def until(time: datetime, now: datetime) -> str:
    """Return the distance to a time: ``19 min``, ``now``, or ``21 s ago``."""
    seconds = (time - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return lasting(seconds) if seconds > 0 else f"{lasting(-seconds)} ago"


def soon(time: datetime, now: datetime) -> str:
    """Return the same for a sentence: ``in 19 min``, ``21 s ago``."""
    span = lasting(abs((time - now).total_seconds()))
    return f"in {span}" if time > now else f"{span} ago"


def relative(time: datetime, now: datetime, zone: tzinfo) -> str:
    """Return a time for people: ``in 19 min (2030-01-31 09:00:00 UTC)``, or ``21 s ago (…)``."""
    return f"{soon(time, now)} ({with_zone(time, zone)})"

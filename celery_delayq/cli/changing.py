"""The commands that change what is scheduled: cancel, reschedule, run-now, retry, remove."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..errors import InvalidDueTime
from ..operations.selection import Selection
from .common import Said, time_of
from .selecting import Meant, meaning

_RELATIVE = re.compile(r"\+(\d+(?:\.\d+)?)([smhd]?)")
_BARE = re.compile(r"[1-9]\d{0,7}(?:\.\d+)?[smhd]?")  # no time since 1980 is written so
_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_NOT_DEAD = "task {} is not dead; nothing was changed"


@click.command(cls=CeleryCommand)
@meaning
@click.option(
    "--revoke", is_flag=True, cls=CeleryOption, help_group="Tasks",
    help="Tell the workers to drop what has left already; by id only.",
)  # fmt: skip
def cancel(meant: Meant, revoke: bool, **_: Any) -> None:
    """Cancel scheduled tasks."""
    meant.change(
        "cancel",
        "cancelled",
        lambda **one: meant.delayq.cancel(**one, revoke=revoke),
        Selection.cancel,
    )


@click.command(cls=CeleryCommand)
@meaning
@click.argument("when")
@click.option(
    "--only", type=click.Choice(["earlier", "later"]), cls=CeleryOption, help_group="Moves",
    help="Move none the other way.",
)  # fmt: skip
@click.option(
    "--if-due", cls=CeleryOption, help_group="Moves", help="Move only what is due at this time."
)
def reschedule(meant: Meant, when: str, only: str | None, if_due: str | None, **_: Any) -> None:
    """Give scheduled tasks another due time.

    WHEN is ISO 8601 text, Unix time in seconds, or from now: +90, +90s, +5m, +2h, +1d.
    """
    with Said():
        relative = _RELATIVE.fullmatch(when)
        if _BARE.fullmatch(when):
            raise InvalidDueTime(when, f"a time, or from now: +{when}")
        time = {"after": _span(relative)} if relative else {"at": time_of(when)}
    how: dict[str, Any] = {**time, "only": only, "if_due": time_of(if_due)}
    meant.change(
        "reschedule",
        "rescheduled",
        lambda **one: meant.delayq.reschedule(**one, **how),
        lambda selection, **more: selection.reschedule(**how, **more),
    )


@click.command("run-now", cls=CeleryCommand)
@meaning
def run_now(meant: Meant, **_: Any) -> None:
    """Let tasks go at once, also where they are paused, or dead."""
    meant.change("run", "due now", meant.delayq.run_now, Selection.run_now)


@click.command(cls=CeleryCommand)
@meaning
def retry(meant: Meant, **_: Any) -> None:
    """Try the hand-over of dead tasks again."""
    meant.change("retry", "due now", meant.delayq.retry, Selection.retry, _NOT_DEAD)


@click.command(cls=CeleryCommand)
@meaning
def remove(meant: Meant, **_: Any) -> None:
    """Delete dead tasks, also those that cannot be read."""
    meant.change("remove", "removed", meant.delayq.remove, Selection.remove, _NOT_DEAD)


def _span(relative: re.Match[str]) -> timedelta:
    number, unit = relative.groups()
    try:
        return timedelta(**{_UNITS[unit]: float(number)})
    except OverflowError:
        raise InvalidDueTime(relative.group(), "a shorter delay") from None

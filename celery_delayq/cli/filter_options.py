"""Options by which a command picks tasks: ``list`` and what changes many share them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from .. import clock
from ..store import State
from .looks import CeleryOption
from .when import GivenTime, When, now_of
from .zones import zone_of

_PICKS = ("tag", "task", "queue", "state")
_TIMES = ("after_due", "before_due")
_WHEN = When(ago=True)
_FORMS = "WHEN is ISO 8601 text, Unix time in seconds, +1h30m from now, or -10m: so long ago."
_STATES = [one.value.lower() for one in State]


def picks(group: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options by which tasks are picked; :func:`picked` reads them.

    Args:
        group: Under what they stand in the help.
    """
    options = (
        (("--tag",), {"help": "With this tag."}),
        (("--task",), {"help": "Of the task of this name."}),
        (("--queue",), {"help": "Sent with this queue."}),
        (
            ("--state",),
            {"type": click.Choice(_STATES, case_sensitive=False), "help": "In this state."},
        ),
        (("--dead", "state"), {"flag_value": "dead", "help": "The same as --state dead."}),
        (("--overdue",), {"is_flag": True, "help": "Due by now, waiting, and not paused."}),
        (("--after-due",), {"type": _WHEN, "help": f"Due at this time or later. {_FORMS}"}),
        (("--before-due",), {"type": _WHEN, "help": "Due before this time."}),
    )

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        for names, how in reversed(options):
            command = click.option(*names, cls=CeleryOption, help_group=group, **how)(command)
        return command

    return give


def named_in(given: dict[str, Any]) -> set[str]:
    """The names of the options of :func:`picks` that were given."""
    names = (*_PICKS, *_TIMES, "overdue")
    return {name for name in names if given[name] not in (None, False)}


def picked(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """What ``select`` takes; it is taken out of the options *given*.

    Times are instants. What is overdue is due by now, by Redis's clock.
    """
    picking = {name: given.pop(name) for name in _PICKS}
    picking["state"] = picking["state"] and picking["state"].upper()
    times: dict[str, GivenTime | None] = {name: given.pop(name) for name in _TIMES}
    picking |= {name: one and one.moment(ctx) for name, one in times.items()}
    if given.pop("overdue"):
        if picking["state"]:
            raise click.UsageError("--overdue is of what waits; it takes no --state.", ctx)
        picking["state"] = State.SCHEDULED.value
        picking["before_due"] = _earlier(ctx, picking["before_due"])
    # What is given and empty is no filter that is missing: `select` refuses it.
    return {name: value for name, value in picking.items() if value is not None}


def _earlier(ctx: click.Context, before: datetime | float | None) -> datetime | float:
    # Due now is overdue: a time is before the millisecond that follows it.
    end_ms = clock.to_ms(now_of(ctx), zone_of(ctx)) + 1
    if before is not None:
        end_ms = min(end_ms, clock.to_ms(before, zone_of(ctx)))
    return clock.from_ms(end_ms)

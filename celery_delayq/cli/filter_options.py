"""Options that select tasks, shared by ``list`` and the commands that change many tasks."""

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
_FORMS = "WHEN is ISO 8601 text, Unix time in seconds, +1h30m from now, or -10m, ten minutes ago."
_AGAIN = "This and the next three can be given more than once: any of the values is enough."
_STATES = [one.value.lower() for one in State]


def picks(group: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the filter options to a command; :func:`picked` reads them.

    Args:
        group: Their heading in the help.
    """
    states = click.Choice(_STATES, case_sensitive=False)
    options = (
        (("--tag",), {"multiple": True, "help": f"With this tag. {_AGAIN}"}),
        (("--task",), {"multiple": True, "help": "Calls of the task of this name."}),
        (("--queue",), {"multiple": True, "help": "Sent with this queue."}),
        (("--state",), {"multiple": True, "type": states, "help": "In this state."}),
        (("--dead",), {"is_flag": True, "help": "The same as --state dead."}),
        (("--overdue",), {"is_flag": True, "help": "Due by now, waiting, and not paused."}),
        (
            ("--due-from", "after_due"),
            {"type": _WHEN, "help": f"Due at this time or later. {_FORMS}"},
        ),
        (("--due-before", "before_due"), {"type": _WHEN, "help": "Due before this time."}),
    )

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        for names, how in reversed(options):
            command = click.option(*names, cls=CeleryOption, help_group=group, **how)(command)
        return command

    return give


def named_in(given: dict[str, Any]) -> set[str]:
    """Return the names of the given options of :func:`picks`."""
    names = (*_PICKS, *_TIMES, "overdue")
    given_names = {name for name in names if given[name] not in (None, False, ())}
    return given_names | ({"state"} if given["dead"] else set())


def picked(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for ``select``, and remove them from *given*.

    Times are instants. An overdue task is due by now, by Redis's clock.
    """
    picking: dict[str, Any] = {name: list(given.pop(name)) or None for name in _PICKS}
    states = [one.upper() for one in picking["state"] or ()]
    picking["state"] = [*states, *[State.DEAD.value] * given.pop("dead")] or None
    times: dict[str, GivenTime | None] = {name: given.pop(name) for name in _TIMES}
    picking |= {name: one and one.moment(ctx) for name, one in times.items()}
    if given.pop("overdue"):
        if picking["state"]:
            raise click.UsageError("--overdue selects waiting tasks; it takes no --state.", ctx)
        picking["state"] = [State.SCHEDULED.value]
        picking["before_due"] = _earlier(ctx, picking["before_due"])
    # An empty value is not a missing filter: keep it, so that `select` refuses it.
    return {name: value for name, value in picking.items() if value is not None}


def _earlier(ctx: click.Context, before: datetime | float | None) -> datetime | float:
    # A task that is due now is overdue, so the end is the next millisecond.
    end_ms = clock.to_ms(now_of(ctx), zone_of(ctx)) + 1
    if before is not None:
        end_ms = min(end_ms, clock.to_ms(before, zone_of(ctx)))
    return clock.from_ms(end_ms)

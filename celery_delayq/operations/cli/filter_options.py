"""Options that select tasks, shared by ``list`` and the commands that change many tasks.

options --> Filters, as typed --> Picks, whose times are instants --> RewritableSelection
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

import click

from ...core import clock
from ...core.store import State
from ...core.tasks.reading import Picks
from ..typed_times import GivenTime
from .looks import CeleryOption
from .when import TimeParam, moment_of, now_of
from .zones import zone_of

_WHEN = TimeParam(ago=True)
_FORMS = "WHEN is ISO 8601 text, Unix time in seconds, +1h30m from now, or -10m, ten minutes ago."
_AGAIN = "This and the next three can be given more than once: any of the values is enough."
_STATES = [known.value.lower() for known in State]


Options = TypeVar("Options")


def taken(kind: type[Options], given: dict[str, Any]) -> Options:
    """Take a command's options that are the fields of a dataclass; return them as one."""
    names = [each.name for each in fields(kind) if each.name in given]  # type: ignore[arg-type]
    return kind(**{name: given.pop(name) for name in names})


@dataclass(frozen=True)
class Filters:
    """The filter options, as they were typed."""

    tag: tuple[str, ...]
    task: tuple[str, ...]
    queue: tuple[str, ...]
    state: tuple[str, ...]
    dead: bool
    overdue: bool
    after_due: GivenTime | None
    before_due: GivenTime | None

    @property
    def named(self) -> set[str]:
        """The names of those that were given; ``--dead`` is a state."""
        given = {name for name, value in vars(self).items() if value not in (None, False, ())}
        return {"state" if name == "dead" else name for name in given}

    def picked(self, ctx: click.Context) -> Picks:
        """Return their tasks.

        Times are instants. An overdue task is due by now, by Redis's clock.
        """
        states = [name.upper() for name in self.state] + [State.DEAD.value] * self.dead
        after = None if self.after_due is None else moment_of(ctx, self.after_due)
        before = None if self.before_due is None else moment_of(ctx, self.before_due)
        if self.overdue:
            if states:
                raise click.UsageError("--overdue selects waiting tasks; it takes no --state.", ctx)
            states, before = [State.SCHEDULED.value], _earlier(ctx, before)
        # An empty value is not a missing filter: keep it, so that the selection refuses it.
        some = (self.tag or None, self.task or None, self.queue or None, states or None)
        return Picks(*some, after, before)


def picks(group: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the filter options to a command, which gets them as ``filters``.

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
        @wraps(command)
        def filtered(*context: click.Context, **given: Any) -> None:
            given["filters"] = taken(Filters, given)
            command(*context, **given)

        decorated: Callable[..., Any] = filtered
        for names, how in reversed(options):
            decorated = click.option(*names, cls=CeleryOption, help_group=group, **how)(decorated)
        return decorated

    return give


def _earlier(ctx: click.Context, before: datetime | float | None) -> datetime | float:
    # A task that is due now is overdue, so the end is the next millisecond.
    end_ms = clock.to_ms(now_of(ctx), zone_of(ctx)) + 1
    if before is not None:
        end_ms = min(end_ms, clock.to_ms(before, zone_of(ctx)))
    return clock.from_ms(end_ms)

"""The commands that change scheduled tasks: cancel, reschedule, run-now, retry, remove."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import click

from ...core.clock import from_ms, to_ms
from ...core.services import HasServices
from ...core.store import Outcome
from ...core.tasks import changing
from ...core.tasks.changing import Direction
from ...core.tasks.scheduled_task import target_of
from ...core.tasks.selection import Count
from ..selection import RewritableSelection
from ..typed_times import GivenTime, told
from .chosen_tasks import ChosenTasks, Operation, meaning
from .common import REFUSED, Argument, ErrorSentences, examples
from .looks import CeleryCommand, CeleryOption
from .when import TimeParam, earlier, misplaced, moment_of, move_of, now_of, unquoted
from .zones import name_of, soon, with_zone, zone_of

_NOT_DEAD = "task {} is not dead; nothing was changed"
_NOT_DUE = "task {} is not due at the time of --if-due; nothing was changed"
_NO_MOVE = "task {{}} would not move {0}, as --only requires; nothing was changed"
_EITHER = "task {{}} is not due at --if-due, or would not move {0}; nothing was changed"


@click.command(
    cls=CeleryCommand,
    epilog=examples(
        "cancel order-42 order-43", "cancel --tag user:7 --dry-run", "cancel - --yes < ids.txt"
    ),
)
@meaning
@click.option(
    "--revoke", is_flag=True, cls=CeleryOption, help_group="Tasks",
    help="Tell the workers to drop tasks that were already delivered; by id only.",
)  # fmt: skip
def cancel(meant: ChosenTasks, revoke: bool) -> None:
    """Cancel scheduled tasks."""

    def one(
        delayq: HasServices, task_id: str | None, /, *, key: str | None, if_revision: int | None
    ) -> Outcome:
        return changing.cancel(delayq, task_id, key=key, revoke=revoke, if_revision=if_revision)

    meant.change(Operation("cancel", "cancelled", one, RewritableSelection.cancel))


class _Moving(CeleryCommand):
    """Suggests the right command line if a time is misplaced."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)  # a copy, as parsing empties the list
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _meant(ctx, earlier(error.option_name, words)) or error from None
        except click.BadParameter as error:
            is_when = error.param is not None and error.param.name == "when"
            raise (is_when and _meant(ctx, misplaced(words))) or error from None
        hint = unquoted(ctx.params["ids"] or (), ctx.params["when"])
        if hint:
            raise click.UsageError(hint, ctx)
        return rest


def _meant(ctx: click.Context, hint: str | None) -> click.UsageError | None:
    return None if hint is None else click.UsageError(hint, ctx)


@click.command(
    cls=_Moving,
    epilog=examples(
        "reschedule order-42 +2h",
        "reschedule order-42 2030-01-31T09:00 --local",
        "reschedule --tag user:7 --only later by:+1d --yes",
    ),
)
@meaning
@click.argument("when", type=TimeParam(due=True), cls=Argument, help="The time; see above.")
@click.option(
    "--only", type=click.Choice(["earlier", "later"]), cls=CeleryOption, help_group="Moves",
    help="Move tasks only in this direction.",
)  # fmt: skip
@click.option(
    "--if-due", type=TimeParam(), cls=CeleryOption, help_group="Moves",
    help="Move only tasks that are due at this time.",
)  # fmt: skip
def reschedule(
    meant: ChosenTasks, when: GivenTime, only: Direction | None, if_due: GivenTime | None
) -> None:
    """Give scheduled tasks another due time.

    WHEN is a day and a time, 'tomorrow 9:00', 'mon 9:00', '26 Nov 9:00', or 2030-01-31T09:00; Unix
    time in seconds; a delay from now, +30m, +1h30m, +90 (seconds); or one from a task's due time,
    by:+30m, by:-1d. The units are s, m, h and d.
    """
    with ErrorSentences():
        at, after, by = move_of(meant.ctx, when)
        if_due_at = None if if_due is None else moment_of(meant.ctx, if_due)
    due: datetime | None = None

    def one(
        delayq: HasServices, task_id: str | None, /, *, key: str | None, if_revision: int | None
    ) -> Outcome:
        nonlocal due
        zone = delayq.services.timezone
        times = {"at": at, "after": after, "by": by}
        what = changing.move_of(zone, only, if_due_at, if_revision, **times)
        outcome, change = changing.move(delayq.services, target_of(task_id, key), what)
        due = None if change.due_ms is None else from_ms(change.due_ms)
        return outcome

    def many(
        selection: RewritableSelection,
        /,
        *,
        dry_run: bool,
        progress: Callable[[Count], object] | None,
    ) -> Count:
        return selection.reschedule(
            at, after=after, by=by, only=only, if_due=if_due_at, dry_run=dry_run, progress=progress
        )

    def aim() -> str:
        if by is not None:
            return ", each from its own due time"
        zone = zone_of(meant.ctx)
        moment = from_ms(to_ms(moment_of(meant.ctx, when), zone))
        return f" to {told(moment, zone, name_of(zone))}, {soon(moment, now_of(meant.ctx))}"

    meant.change(
        Operation(
            "reschedule",
            "rescheduled",
            one,
            many,
            unchanged=_unchanged(only, if_due),
            beside=lambda: f" to {with_zone(due, zone_of(meant.ctx))}" if due else "",
            aim=aim,
        )
    )


def _unchanged(only: str | None, if_due: GivenTime | None) -> str:
    """Return the sentence for a task that does not meet the conditions of a move."""
    if only is None:
        return REFUSED[Outcome.UNCHANGED] if if_due is None else _NOT_DUE
    return (_NO_MOVE if if_due is None else _EITHER).format(only)


@click.command("run-now", cls=CeleryCommand, epilog=examples("run-now order-42"))
@meaning
def run_now(meant: ChosenTasks) -> None:
    """Deliver tasks now, even if they are paused or dead."""
    meant.change(Operation("run", "due now", changing.run_now, RewritableSelection.run_now))


@click.command(cls=CeleryCommand, epilog=examples("retry order-42", "retry --dead --queue mail"))
@meaning
def retry(meant: ChosenTasks) -> None:
    """Try to deliver dead tasks again."""
    retry, many = changing.retry, RewritableSelection.retry
    meant.change(Operation("retry", "due now", retry, many, unchanged=_NOT_DEAD))


@click.command(cls=CeleryCommand, epilog=examples("remove order-42", "remove --dead --dry-run"))
@meaning
def remove(meant: ChosenTasks) -> None:
    """Delete dead tasks, even unreadable ones."""
    remove, many = changing.remove, RewritableSelection.remove
    meant.change(Operation("remove", "removed", remove, many, unchanged=_NOT_DEAD))

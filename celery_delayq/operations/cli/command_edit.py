"""The command that changes what tasks are: ``edit``."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import click

from ...core.clock import from_ms, to_ms
from ...core.errors import InvalidOption
from ...core.services import HasServices
from ...core.store import Outcome
from ...core.tasks.changing import Changes
from ...core.tasks.scheduled_task import target_of
from ...core.tasks.selection import Count
from ...core.text import plain
from .. import editing
from ..edits import KEPT, Edit
from ..selection import RewritableSelection
from ..typed_times import GivenTime
from .chosen_tasks import ChosenTasks, Operation, meaning
from .common import UsageErrors, examples
from .looks import CeleryCommand, CeleryOption
from .stdin import STDIN
from .when import TimeParam, moment_of

_ONE_ID = "--new-key takes one task, by its id."
_CHANGES = (
    *("--args", "--kwargs", "--priority", "--expires"),
    *("--new-queue", "--new-key", "--add-tag", "--remove-tag"),
)


@click.command(
    cls=CeleryCommand,
    epilog=examples(
        "edit order-42 --args '[42, \"mail\"]'",
        "edit --key topup:7 --expires by:+30m --priority 3",
        "edit --queue old --new-queue new",
    ),
)
@meaning
@click.option("--args", cls=CeleryOption, help_group="Message", help="All arguments: a JSON list.")
@click.option(
    "--kwargs", cls=CeleryOption, help_group="Message", help="All keyword arguments: a JSON object."
)
@click.option("--priority", type=int, cls=CeleryOption, help_group="Message", help="0 to 255.")
@click.option(
    "--expires", type=TimeParam(due=True, never=True), cls=CeleryOption, help_group="Message",
    help="A time, +2h from now, by:+30m from its due time, or never.",
)  # fmt: skip
@click.option(
    "--new-queue", cls=CeleryOption, help_group="Place",
    help="The queue to send it to; your task_routes apply.",
)  # fmt: skip
@click.option("--new-key", cls=CeleryOption, help_group="Place", help="Its unique key; by id only.")
@click.option(
    "--add-tag", "add_tags", multiple=True, cls=CeleryOption, help_group="Place",
    help="A tag that it gets; may be given more than once.",
)  # fmt: skip
@click.option(
    "--remove-tag", "remove_tags", multiple=True, cls=CeleryOption, help_group="Place",
    help="A tag that it loses; may be given more than once.",
)  # fmt: skip
def edit(
    meant: ChosenTasks,
    *,
    args: str | None,
    kwargs: str | None,
    priority: int | None,
    expires: GivenTime | None,
    new_queue: str | None,
    new_key: str | None,
    add_tags: tuple[str, ...],
    remove_tags: tuple[str, ...],
) -> None:
    """Edit scheduled tasks.

    Change their arguments, priority, expiry, queue, key or tags. Values that you do not pass stay.
    """
    ctx = meant.ctx
    given = (args, kwargs, priority, expires, new_queue, new_key, add_tags, remove_tags)
    if all(value in (None, ()) for value in given):
        *most, last = _CHANGES
        raise click.UsageError(f"Say what to change: {', '.join(most)} or {last}.", ctx)
    named = ctx.params
    if new_key is not None and (named["keys"] or len(named["ids"]) != 1 or STDIN in named["ids"]):
        raise click.UsageError(_ONE_ID, ctx)
    with UsageErrors():
        changes: Changes = {
            "args": _json("--args", args),
            "kwargs": _json("--kwargs", kwargs),
            "priority": KEPT if priority is None else priority,
            "expires": _expires(ctx, expires),
            "queue": KEPT if new_queue is None else new_queue,
            "add_tags": add_tags,
            "remove_tags": remove_tags,
        }
        validated = Edit(**changes, key=KEPT if new_key is None else new_key)

    def one(
        delayq: HasServices, task_id: str | None, /, *, key: str | None, if_revision: int | None
    ) -> Outcome:
        return editing.apply(delayq.services, target_of(task_id, key), validated, if_revision)

    def many(
        selection: RewritableSelection,
        /,
        *,
        dry_run: bool,
        progress: Callable[[Count], object] | None,
    ) -> Count:
        return selection.edit(dry_run=dry_run, progress=progress, **changes)

    try:
        meant.change(Operation("edit", "edited", one, many))
    except TypeError as error:  # arguments that do not fit the task
        raise click.ClickException(plain(error)) from error


def _json(name: str, text: str | None) -> Any:
    if text is None:
        return KEPT
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidOption(name, text, "JSON") from None


def _expires(ctx: click.Context, given: GivenTime | None) -> Any:
    if given is None:
        return KEPT
    if given.kind == "by":
        return given.value
    if given.kind == "never":
        return None
    moment = moment_of(ctx, given)
    # `edit` would count a number from the due time.
    return moment if isinstance(moment, datetime) else from_ms(to_ms(moment, timezone.utc))

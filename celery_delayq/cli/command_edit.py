"""The command that changes what tasks are: ``edit``."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import partial
from typing import Any

import click

from ..clock import from_ms, to_ms
from ..errors import InvalidOption
from ..logs import plain
from ..operations import editing
from ..operations.edits import KEPT, Edit
from ..operations.selection import Selection
from .chosen_tasks import ChosenTasks, meaning
from .common import UsageErrors, examples
from .looks import CeleryCommand, CeleryOption
from .stdin import STDIN
from .when import GivenTime, When

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
    "--expires", type=When(due=True, never=True), cls=CeleryOption, help_group="Message",
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
def edit(meant: ChosenTasks, **given: Any) -> None:
    """Edit scheduled tasks.

    Change their arguments, priority, expiry, queue, key or tags. Values that you do not pass stay.
    """
    ctx = meant.ctx
    if all(value in (None, ()) for value in given.values()):
        *most, last = _CHANGES
        raise click.UsageError(f"Say what to change: {', '.join(most)} or {last}.", ctx)
    named = ctx.params
    if given["new_key"] is not None and (
        named["keys"] or len(named["ids"]) != 1 or STDIN in named["ids"]
    ):
        raise click.UsageError(_ONE_ID, ctx)
    with UsageErrors():
        changes = {
            "args": _json("--args", given["args"]),
            "kwargs": _json("--kwargs", given["kwargs"]),
            "priority": KEPT if given["priority"] is None else given["priority"],
            "expires": _expires(ctx, given["expires"]),
            "queue": KEPT if given["new_queue"] is None else given["new_queue"],
            "add_tags": given["add_tags"],
            "remove_tags": given["remove_tags"],
        }
        new_key = {} if given["new_key"] is None else {"key": given["new_key"]}
        Edit(**changes, **new_key)
    try:
        meant.change(
            "edit",
            "edited",
            partial(editing.edit, **changes, **new_key),
            partial(Selection.edit, **changes),
        )
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
    moment = given.moment(ctx)
    # `edit` would count a number from the due time.
    return moment if isinstance(moment, datetime) else from_ms(to_ms(moment, timezone.utc))

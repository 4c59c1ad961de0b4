"""The command that changes a task's message: ``edit``."""

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
from ..operations.editing import KEPT, Edit
from ..store import Outcome
from .chosen_tasks import change_one
from .common import REFUSED, Argument, ErrorSentences, UsageErrors, delayq_of, examples
from .looks import CeleryCommand, CeleryOption
from .when import GivenTime, When
from .zones import zoned

_OTHER_REVISION = "task {} no longer has the revision of --if-revision; nothing was changed"
_CHANGES = ("args", "kwargs", "priority", "expires")


@click.command(
    cls=CeleryCommand,
    epilog=examples(
        "edit order-42 --args '[42, \"mail\"]'",
        "edit --key topup:7 --expires by:+30m --priority 3",
    ),
)
@click.argument("id", required=False, cls=Argument, help="The task's id.")
@click.option(
    "--key",
    cls=CeleryOption,
    help_group="Task",
    help="A unique key, instead of an id.",
)
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
    "--if-revision", type=int, cls=CeleryOption, help_group="Condition",
    help="Edit it only if `show` still has this revision.",
)  # fmt: skip
@zoned
@click.pass_context
def edit(
    ctx: click.Context, /, id: str | None, key: str | None, if_revision: int | None, **given: Any
) -> None:
    """Give a scheduled task other arguments.

    Or another priority or expiry. Values that you do not pass stay.
    """
    if (id is None) == (key is None):
        raise click.UsageError("Name one task, by its id or by --key.", ctx)
    if all(given[name] is None for name in _CHANGES):
        *most, last = (f"--{name}" for name in _CHANGES)
        raise click.UsageError(f"Say what to change: {', '.join(most)} or {last}.", ctx)
    named = {"task_id": id} if id is not None else {"key": str(key)}
    with UsageErrors():
        changes = {
            "args": _json("--args", given["args"]),
            "kwargs": _json("--kwargs", given["kwargs"]),
            "priority": KEPT if given["priority"] is None else given["priority"],
            "expires": _expires(ctx, given["expires"]),
        }
        Edit(**changes)
    with ErrorSentences():
        sentences = {**REFUSED, Outcome.UNCHANGED: _OTHER_REVISION}
        step = partial(editing.edit, delayq_of(ctx), **changes, if_revision=if_revision)
        try:
            done = change_one(ctx, "edited", step, named, sentences)
        except TypeError as error:  # arguments that do not fit the task
            raise click.ClickException(plain(error)) from error
    if not done:
        ctx.exit(1)


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

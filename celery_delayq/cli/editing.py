"""The command that gives a task another message: ``edit``."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..errors import InvalidOption
from ..logs import plain
from ..operations.editing import KEPT
from .common import Said, delayq_of, time_of
from .selecting import change_one

_NEVER = "never"


@click.command(cls=CeleryCommand)
@click.argument("id", required=False)
@click.option(
    "--key",
    cls=CeleryOption,
    help_group="Task",
    help="In place of an id: a unique key.",
)
@click.option("--args", cls=CeleryOption, help_group="Message", help="All of them: a JSON list.")
@click.option("--kwargs", cls=CeleryOption, help_group="Message", help="All of them: JSON.")
@click.option("--priority", type=int, cls=CeleryOption, help_group="Message", help="0 to 255.")
@click.option(
    "--expires", cls=CeleryOption, help_group="Message",
    help="Seconds after the due time, or a time in ISO 8601, or never.",
)  # fmt: skip
@click.option(
    "--if-revision", type=int, cls=CeleryOption, help_group="Condition",
    help="Only if it is as `show` showed it.",
)  # fmt: skip
@click.pass_context
def edit(
    ctx: click.Context, /, id: str | None, key: str | None, if_revision: int | None, **given: Any
) -> None:
    """Give a scheduled task other arguments.

    Or another priority or expiry. What is not given stays.
    """
    if (id is None) == (key is None):
        raise click.UsageError("Name one task, by its id or by --key.", ctx)
    named = {"task_id": id} if id is not None else {"key": str(key)}
    with Said():
        changes = {
            "args": _json("--args", given["args"]),
            "kwargs": _json("--kwargs", given["kwargs"]),
            "priority": KEPT if given["priority"] is None else given["priority"],
            "expires": _expires(given["expires"]),
            "if_revision": if_revision,
        }
        delayq = delayq_of(ctx)
        try:
            done = change_one(ctx, "edited", partial(delayq.edit, **changes), named)
        except TypeError as error:  # what does not fit the task
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


def _expires(text: str | None) -> Any:
    if text is None:
        return KEPT
    return None if text == _NEVER else time_of(text)

"""The command ``free``: frees a unique key that a task holds after its delivery."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

import click

from ...core.store import KeyHolder, Outcome
from ...core.text import plain
from .. import freeing
from .common import Argument, UsageErrors, confirm, delayq_of, examples
from .looks import CeleryCommand, CeleryOption
from .when import now_of
from .zones import relative, zone_of, zoned

_SAID_BY = {
    "delivery": ", as its delivery set it",
    "worker": ", as a worker's last word about its run set it",
    "": "",
}
NOBODY = "no task holds the key {!r}"
REFUSED = {
    Outcome.NOT_FOUND: f"{NOBODY} any more; nothing was changed",
    Outcome.UNCHANGED: "another task holds the key {!r} by now; nothing was changed",
    Outcome.IN_FLIGHT: "the key {!r} is held by a task that is being published this moment; "
    "try again shortly",
}


@click.command(cls=CeleryCommand, epilog=examples("free order-42", "free order-42 --yes"))
@click.argument("key", cls=Argument, help="The unique key.")
@click.option("--yes", is_flag=True, cls=CeleryOption, help="Do not ask for confirmation.")
@zoned
@click.pass_context
def free(ctx: click.Context, /, key: str, yes: bool, **_: Any) -> None:
    """Free a unique key that a delivered task still holds.

    It says which task holds the key, since when and until when, and asks. Free the key if you know
    that the task does not run any more: its worker was killed, or its message was purged. If it
    does run, it goes on, beside the next task with this key.
    """
    with UsageErrors():
        delayq = delayq_of(ctx)
        held = freeing.holder(delayq, key=key)
        if held is None:
            raise click.ClickException(plain(NOBODY.format(key)))
        sentence = plain(sentence_of(held, now_of(ctx), zone_of(ctx)))
        if held.state != "left":
            raise click.ClickException(sentence)
        ctx.obj.echo(sentence)
        if not yes:
            confirm("free it?")
        outcome = freeing.free(delayq, key=key, if_holder=held)
    if not outcome:
        raise click.ClickException(plain(REFUSED[outcome].format(key)))
    ctx.obj.echo(plain(f"key {key!r} is free"))


def sentence_of(held: KeyHolder, now: datetime, zone: tzinfo) -> str:
    """Return a sentence about the holder: since when, until when, and who says so."""
    task = f"task {held.id} holds the key {held.key!r}"
    if held.state == "waits":
        return f"{task}, and waits; cancel it to free the key"
    if held.state == "in_flight" or held.until is None:
        return f"{task}, and is being published this moment; try again shortly"
    if held.delivered is not None:
        task += f"; it was delivered {relative(held.delivered, now, zone)}"
    elif held.changed is not None:
        task += f"; it was scheduled or changed last {relative(held.changed, now, zone)}"
    until = f"until {relative(held.until, now, zone)} at the latest"
    return f"{task}, and holds it {until}{_SAID_BY[held.said_by]}"

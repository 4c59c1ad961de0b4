"""The command that adopts what waits in the broker's lists: ``adopt``."""

from __future__ import annotations

from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..integration.adopting.lists import adopt_lists
from .common import Said, delayq_of, examples
from .progress import counting

_GROUP = "Messages"


@click.command(cls=CeleryCommand, epilog=examples("adopt --dry-run", "adopt --queue mail --yes"))
@click.option(
    "--queue", "queues", multiple=True, cls=CeleryOption, help_group=_GROUP,
    help="Of this queue; may be given more than once. By default of all that the app knows.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group=_GROUP,
    help="Only say how many it would be.",
)  # fmt: skip
@click.option("--yes", is_flag=True, cls=CeleryOption, help_group=_GROUP, help="Do not ask.")
@click.pass_context
def adopt(
    ctx: click.Context, /, queues: tuple[str, ...], dry_run: bool, yes: bool, **_: Any
) -> None:
    """Take messages with a far eta into the store.

    Out of the lists of a Redis broker. Far is what is further ahead than delayq_adopt_after, or,
    without that setting, than a minute.
    """
    services = delayq_of(ctx).services
    count = None
    with Said():
        if dry_run or not yes:
            count = adopt_lists(services, queues, dry_run=True)
            if dry_run:
                click.echo(f"{_messages(count)} would be adopted")
                return
            if not count:
                click.echo(f"{_messages(count)} adopted")
                return
            click.confirm(f"adopt {_messages(count)}?", abort=True)
        with counting(ctx, "adopt", lambda done: f"{_messages(done)} adopted", count) as taken:
            count = adopt_lists(services, queues, progress=taken)
    click.echo(f"{_messages(count)} adopted")


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"

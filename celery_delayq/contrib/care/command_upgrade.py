"""The command ``upgrade``, which lets records and rules have a newer format."""

from __future__ import annotations

from typing import Any

import click

from ...core.store.record import FORMAT
from ...operations.cli.common import (
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    confirm,
    delayq_of,
    examples,
)
from .upgrading import format_of, older_scanners, told
from .upgrading import upgrade as upgrade_of


@click.command(cls=CeleryCommand, epilog=examples("upgrade"))
@click.option("--yes", is_flag=True, cls=CeleryOption, help="Do not ask for confirmation.")
@click.pass_context
def upgrade(ctx: click.Context, /, yes: bool, **_: Any) -> None:
    """Let tasks and rules be stored in the newest format.

    Run it after all processes have the new release, and once you do not want to go back to the one
    before. It asks first, as the format is never lowered: a process of an older release still
    cancels and moves the tasks, and pauses and removes the rules, and its scanner lays both aside
    for one that can read them. Changes nothing and exits with 1 if a scanner runs that cannot read
    the new format.
    """
    services = delayq_of(ctx).services
    with ErrorSentences():
        raises = "" < format_of(services.scripts) < FORMAT
        if raises and not yes and not older_scanners(services, FORMAT):
            confirm(f"store tasks and rules in format {FORMAT} from now on?")
        new = upgrade_of(services)
        old = older_scanners(services, FORMAT) if new < FORMAT else []
    ctx.obj.echo(told(new, old))
    if old:
        ctx.exit(1)

"""The command ``upgrade``, which lets records have a newer format."""

from __future__ import annotations

from typing import Any

import click

from ...core.store.record import FORMAT
from ...operations.cli.common import ErrorSentences, delayq_of, examples
from ...operations.cli.looks import CeleryCommand
from .upgrading import older_scanners, told
from .upgrading import upgrade as upgrade_of


@click.command(cls=CeleryCommand, epilog=examples("upgrade"))
@click.pass_context
def upgrade(ctx: click.Context, /, **_: Any) -> None:
    """Let tasks be stored in the newest format.

    Run it after all processes have the new release, and once you do not want to go back to the one
    before. Changes nothing and exits with 1 if a scanner runs that cannot read the new format. The
    format is never lowered: a process of an older release still cancels and moves the tasks, and
    its scanner lays them aside for one that can read them.
    """
    services = delayq_of(ctx).services
    with ErrorSentences():
        new = upgrade_of(services)
        old = older_scanners(services, FORMAT) if new < FORMAT else []
    ctx.obj.echo(told(new, old))
    if old:
        ctx.exit(1)

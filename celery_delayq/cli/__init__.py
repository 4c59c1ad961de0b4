"""``celery -A proj delayq``: look at what waits, change it, scan.

    status    status ----------------+
    health    health ----------------+
    listing   list ------------------+
    showing   show ------------------+
    editing   edit ------------------+
    changing  cancel, reschedule ----+--> operations, through the app's DelayQ
    pausing   pause, resume ---------+
    releasing release ---------------+
    running   scan ------------------+

A command that one of these files defines is found by itself. Leaves have others; each of those is
imported when it is called. What commands share:

    typed     picking (by what), when (times), zones, stdin (ids), selecting (who is meant)
    printed   facts (of a task, as JSON), tables, screen (a terminal or a pipe), progress
    both      common
"""

from __future__ import annotations

import errno
import sys
from io import TextIOWrapper
from typing import Any

import click

from .. import leaves
from . import (
    command_change,
    command_edit,
    command_health,
    command_list,
    command_pause,
    command_release,
    command_scan,
    command_show,
    command_status,
)
from .looks import handle_preload_options

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_GROUPS = {
    "Look": ("status", "list", "show", "history", "health", "doctor", "check"),
    "Change": ("cancel", "reschedule", "run-now", "edit", "retry", "remove"),
    "Operate": ("pause", "resume", "scan"),
    "Move": ("dump", "load", "release"),
}


class _Commands(click.Group):
    """The commands, also those of leaves.

    It says in a sentence that what a command prints cannot be written, as on a full disk.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *leaves.commands()])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for; what no group has stands last."""
        left = self.list_commands(ctx)
        grouped = {name for names in _GROUPS.values() for name in names}
        others = tuple(name for name in left if name not in grouped)
        for title, names in {**_GROUPS, "Others": others}.items():
            found = [(name, self.get_command(ctx, name)) for name in names if name in left]
            rows = [(name, one.get_short_help_str(100)) for name, one in found if one is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or leaves.command(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _UNWRITTEN:
                raise
            said = f"the output cannot be written: {error.strerror}"
            raise click.ClickException(said) from error


@click.group(name="delayq", cls=_Commands)
@click.pass_context
@handle_preload_options
def delayq(ctx: click.Context, /, **_: Any) -> None:  # noqa: ARG001 - Celery gives it
    """Look at scheduled tasks, cancel and reschedule them.

    Is something wrong? Begin with `doctor`. The project's runbook, celery_delayq/docs/runbook.md,
    has a section for each alert.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that a terminal's encoding does not know must not end a list.
            stream.reconfigure(errors="backslashreplace")


leaves.call(leaves.COMMAND_LINE)
# Whatever command one of these files defines.
for _module in (
    command_status,
    command_health,
    command_list,
    command_show,
    command_change,
    command_edit,
    command_pause,
    command_release,
    command_scan,
):
    for _command in vars(_module).values():
        if isinstance(_command, click.Command):
            delayq.add_command(_command)

"""``celery -A proj delayq``: commands to look at scheduled tasks, change them, and scan.

    lists     status, list, show, keys -----------------+
    change    cancel, reschedule, run-now, retry, ... --+--> operations, through the app's DelayQ
    operate   pause, resume, free, health, scan --------+

Each command in these files registers itself; ``change`` makes one of each row of ``actions``.
Leaves add others, imported when called. Commands
share ``input`` (filters, times, ids that are read), ``output`` (tables, progress) and ``common``.
"""

from __future__ import annotations

import errno
import sys
from io import TextIOWrapper
from typing import Any

import click

from ...core import leaves
from ...core.hooks import acting
from ..actions import ACTIONS
from . import change, lists, operate
from .common import CeleryOption, UsageErrors, handle_preload_options

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_GROUPS = {
    "Look": ("status", "list", "show", "keys", "history", "health", "doctor", "check", "preflight"),
    "Change": (*(one.command for one in ACTIONS.values() if one.of_one), "undo", "free"),
    "Operate": ("pause", "resume", "rules", "scan", "web"),
    "Move": ("dump", "load", "release", "reshard"),
}


class _Commands(click.Group):
    """The commands, including those of leaves.

    If a command's output cannot be written, as on a full disk, it says so in one sentence.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *leaves.commands()])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group; those without a group come last."""
        left = self.list_commands(ctx)
        grouped = {name for names in _GROUPS.values() for name in names}
        others = tuple(name for name in left if name not in grouped)
        for title, names in {**_GROUPS, "Others": others}.items():
            found = [(name, self.get_command(ctx, name)) for name in names if name in left]
            rows = [
                (name, command.get_short_help_str(100))
                for name, command in found
                if command is not None
            ]
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
            sentence = f"the output cannot be written: {error.strerror}"
            raise click.ClickException(sentence) from error


@click.group(name="delayq", cls=_Commands)
@click.option(
    "--as", "name", metavar="NAME", cls=CeleryOption, help_group="Names",
    help="Who makes the changes, for signals, the log and the history; at most 64 bytes.",
)  # fmt: skip
@click.pass_context
@handle_preload_options
def delayq(ctx: click.Context, /, name: str | None, **_: Any) -> None:
    """Look at scheduled tasks, cancel and reschedule them.

    Is something wrong? Begin with `doctor`. The project's runbook, celery_delayq/docs/runbook.md,
    has a section for each alert.
    """
    if name is not None:
        with UsageErrors():
            ctx.with_resource(acting(name))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal cannot encode must not abort a list.
            stream.reconfigure(errors="backslashreplace")


leaves.call(leaves.COMMAND_LINE)
# Every command that these files define.
for _command in (*vars(lists).values(), *change.COMMANDS, *vars(operate).values()):
    if isinstance(_command, click.Command):
        delayq.add_command(_command)

"""``celery -A proj delayq …``: look at what is scheduled, change it, scan.

    status    status ----------------+
    health    health ----------------+
    listing   list, show ------------+
    reading   history ---------------+
    editing   edit ------------------+
    changing  cancel, reschedule ----+--> operations, through the app's DelayQ
    pausing   pause, resume ---------+
    releasing release ---------------+
    running   scan ------------------+
    checking  check (repairing) -----+
    dumping   dump, load ------------+--> care, which is imported when one of these runs
    doctor    doctor ----------------+

A command that one of these files defines is found by itself. What they share:

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

# A command line asks workers for their commands, so it has to know of them.
from ..integration import panel as panel
from . import (
    changing,
    checking,
    doctor,
    dumping,
    editing,
    health,
    listing,
    pausing,
    reading,
    releasing,
    running,
    status,
)
from .looks import handle_preload_options

_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Commands(click.Group):
    """Says in a sentence that what a command prints cannot be written, as on a full disk."""

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
    """Look at scheduled tasks, cancel and reschedule them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name that a terminal's encoding does not know must not end a list.
            stream.reconfigure(errors="backslashreplace")


# Whatever command one of these files defines.
for _module in (
    *(status, health, listing, reading, checking),
    *(changing, editing, pausing, releasing, dumping, running, doctor),
):
    for _command in vars(_module).values():
        if isinstance(_command, click.Command):
            delayq.add_command(_command)

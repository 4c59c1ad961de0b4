"""``celery -A proj delayq …``: look at what is scheduled, change it, scan, measure.

    status    status ----------------+
    health    health ----------------+
    listing   list, show ------------+
    reading   history ---------------+
    checking  check -----------------+
    editing   edit ------------------+
    changing  cancel, reschedule ----+--> operations, through the app's DelayQ
    pausing   pause, resume ---------+
    releasing release ---------------+
    running   scan ------------------+
    adopting  adopt ----------------------> integration, over the broker's lists
    bench     bench ----------------------> bench

A command that one of these files defines is found by itself. What they share:

    typed     picking (by what), when (times), zones, stdin (ids), selecting (who is meant)
    printed   facts (of a task, as JSON), tables, screen (a terminal or a pipe), progress
    both      common, interrupting
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import click
from celery.bin.base import handle_preload_options

# A command line asks workers for their commands, so it has to know of them.
from ..integration import panel as panel
from . import (
    adopting,
    bench,
    changing,
    checking,
    editing,
    health,
    listing,
    pausing,
    reading,
    releasing,
    running,
    status,
)


@click.group(name="delayq")
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
    *(changing, editing, pausing, releasing, adopting, running, bench),
):
    for _command in vars(_module).values():
        if isinstance(_command, click.Command):
            delayq.add_command(_command)

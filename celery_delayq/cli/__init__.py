"""``celery -A proj delayq …``: look at what is scheduled, change it, scan, measure.

    status    status ----------------+
    health    health ----------------+
    reading   list, show, history ---+
    checking  check -----------------+
    editing   edit ------------------+
    changing  cancel, reschedule ----+--> operations, through the app's DelayQ
    pausing   pause, resume ---------+
    releasing release ---------------+
    running   scan ------------------+
    adopting  adopt ----------------------> integration, over the broker's lists
    bench     bench ----------------------> bench

A command that one of these files defines is found by itself. ``common`` has what they share.
"""

from __future__ import annotations

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
def delayq(ctx: click.Context, /, **_: Any) -> None:
    """Look at scheduled tasks, cancel and reschedule them."""


# Whatever command one of these files defines.
for _module in (
    *(status, health, listing, reading, checking),
    *(changing, editing, pausing, releasing, adopting, running, bench),
):
    for _command in vars(_module).values():
        if isinstance(_command, click.Command):
            delayq.add_command(_command)

"""The command for probes: ``health``."""

from __future__ import annotations

import json
from typing import Any

import click

from ...core.errors import StoreError
from ...core.services import HasServices
from ...core.text import counted
from ..health import MAX_DEAD, MAX_OVERDUE, MAX_PAUSED, judged, restarts_here
from ..unread import unread
from .common import ErrorSentences, advised, delayq_of, examples, json_option
from .looks import CeleryCommand, CeleryOption

_RESTARTED = "scanner {} was restarted {}, as its thread ended; the log of its process says why"
_BOUNDS = {"cls": CeleryOption, "help_group": "Bounds", "show_default": True}


@click.command(
    cls=CeleryCommand, epilog=examples("health", "health --max-overdue 300 --max-dead 10")
)
@click.option(
    "--max-overdue", type=click.FloatRange(0), default=MAX_OVERDUE, metavar="SECONDS", **_BOUNDS,
    help="How long a task may be overdue, or wait to resume after a pause.",
)  # fmt: skip
@click.option(
    "--max-dead", type=click.IntRange(0), default=MAX_DEAD, metavar="TASKS", **_BOUNDS,
    help="How many tasks may be dead, and how many refused.",
)  # fmt: skip
@click.option(
    "--max-paused", type=click.FloatRange(0), default=MAX_PAUSED, metavar="SECONDS", **_BOUNDS,
    help="How long a task may be due and paused.",
)  # fmt: skip
@click.option(
    "--here", is_flag=True, cls=CeleryOption, help_group="Bounds",
    help="Only check that a scanner on this host is alive, and tell how often it was restarted.",
)  # fmt: skip
@json_option
@click.pass_context
def health(ctx: click.Context, /, here: bool, as_json: bool, **given: Any) -> None:
    """Check that tasks are delivered in time, for a probe.

    It prints a sentence for each problem, and exits with 1 if there is one. Problems are: no
    scanner is alive, or the scanners use another broker than the app; a task has been overdue for
    too long, or due and paused for too long; too many tasks are dead or refused; tasks resume too
    slowly after a pause; no worker listens to a queue for which tasks wait, or to which they were
    delivered; a store with another prefix has tasks for the app's queues, and no scanner; Redis is
    full or nearly full, deletes waiting tasks when it is full, or cannot be read. It names a pause
    at once, and counts it as a problem after --max-paused. A paused task is not overdue. It names
    recurring rules whose task no living worker knows. If tasks wait, workers have a second to
    answer; a silent one is not a problem.
    """
    delayq = delayq_of(ctx)
    with ErrorSentences():
        bounds = {name: given[name] for name in ("max_overdue", "max_dead", "max_paused")}
        checks = judged(delayq.services, **bounds, here=here)
        problems = [check.wrong for check in checks if check.wrong]
        paused = [check.note for check in checks if check.note and check.about != "rules"]
        unknown = [check.note for check in checks if check.note and check.about == "rules"]
        restarts = restarts_here(delayq) if here and not problems else {}
        if not here:
            problems += _unread(delayq)
    if as_json:
        facts = {"healthy": not problems, "problems": problems, "paused": paused}
        facts["unknown_tasks"] = unknown
        ctx.obj.echo(json.dumps({**facts, "restarts": restarts} if here else facts))
    else:
        again = [_RESTARTED.format(host, counted(n, "time")) for host, n in restarts.items()]
        for line in [*problems, *paused, *unknown] or ["healthy", *again]:
            ctx.obj.echo(advised(line))
    if problems:
        ctx.exit(1)


def _unread(delayq: HasServices) -> list[str]:
    try:
        return unread(delayq.services)
    except StoreError:
        return []  # the other problems include this one

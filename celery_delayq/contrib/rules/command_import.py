"""The action ``import`` of the command ``rules``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from ...core.logs import plain
from ...core.services import Services
from ...operations.cli.screen import Screen
from ...operations.cli.tables import Column, table
from . import from_django, from_redbeat
from .importing import REFUSED, Step, carry_out, plan

SOURCES = {"redbeat": from_redbeat, "django-celery-beat": from_django}
_STYLES = {"new": "green", "changed": "yellow"}


def import_rules(
    ctx: click.Context, services: Services, source: str, names: tuple[str, ...],
    *, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Import the entries of a source, or those of some names; exit 1 if one is refused."""
    found = SOURCES[source]
    wanted = (each for each in found.entries(services) if not names or each.name in names)
    planned = plan(services, source, wanted)
    # All before the first line: a reader that stops, such as head, must not stop the import.
    done = [step if dry_run else carry_out(services, source, step) for step in planned]
    _show(ctx, done, as_json=as_json)
    if not done and not names:
        ctx.obj.error(plain(f"{source} has no entries: {found.place(services)} is empty"))
    missing = {*names} - {step.entry.name for step in done}
    for name in sorted(missing):
        ctx.obj.error(plain(f"{source} has no entry {name}"))
    if missing or any(step.word == REFUSED for step in done):
        ctx.exit(1)


def _show(ctx: click.Context, steps: Sequence[Step], *, as_json: bool) -> None:
    if as_json:
        for step in steps:
            ctx.obj.echo(json.dumps(_facts(step)))
        return
    columns = [Column("NAME"), Column("TASK"), Column("SCHEDULE"), Column("ZONE")]
    columns.append(Column("BECOMES", _STYLES))
    Screen(ctx).show(table(columns, (_row(step) for step in steps)))


def _row(step: Step) -> tuple[str, ...]:
    entry, timing = step.entry, step.timing
    schedule, zone = (timing.text, timing.zone) if timing else (entry.kind, entry.tz or "")
    becomes = f"{step.word}: {step.why}" if step.why else step.word
    if timing and not entry.is_enabled:
        becomes += ", paused"
    return tuple(map(plain, (entry.name, entry.task, schedule, zone, becomes)))


def _facts(step: Step) -> dict[str, Any]:
    entry, timing = step.entry, step.timing
    return {
        "name": entry.name,
        "task": entry.task,
        "schedule": timing.text if timing else None,
        "tz": timing.zone if timing else entry.tz,
        "enabled": entry.is_enabled,
        "becomes": step.word,
        "why": step.why or None,
    }

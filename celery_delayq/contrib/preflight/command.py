"""The command ``preflight``: a table, or JSON lines, and an exit status for a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from ...core.errors import DelayQError
from ...core.servers.risks import ERROR, WARNING
from ...core.text import counted, plain
from ...operations.cli.common import (
    CeleryCommand,
    ErrorSentences,
    advised,
    delayq_of,
    examples,
    json_option,
    name_of,
    stamp,
    zone_of,
    zoned,
)
from ...operations.cli.output import Column, Screen, table
from .preflight import Misfit, Preflight
from .preflight import preflight as look

_STYLES: dict[str, str] = {ERROR: "red", WARNING: "yellow"}
_NONE_FITS = "not all of the app's modules can be imported, so a worker would not start: {}"
_LEFT_OUT = "{} left out: dead tasks do not run by themselves"


@click.command(
    cls=CeleryCommand, epilog=examples("preflight", "preflight --json | jq -r .sentence")
)
@json_option
@zoned
@click.pass_context
def preflight(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Compare waiting tasks with this code, before you roll it out.

    Run it in the new image, with the store of the old one. It looks at each waiting task, canvas
    and rule, with their links: is the task registered, do the arguments bind, may the body be
    decoded? It prints a row for each task and reason, and writes nothing. It warns of queues that
    no living worker reads.

    Exits with 1 if there is a problem, other than a warning; or if it could not look, as the store
    is away or a module cannot be imported.
    """
    zone = zone_of(ctx)
    with ErrorSentences():
        try:
            found = look(delayq_of(ctx))
        except DelayQError:
            raise
        except Exception as error:  # of the user's modules
            raise click.ClickException(plain(_NONE_FITS.format(repr(error)))) from error
    if as_json:
        for misfit in found.misfits:
            ctx.obj.echo(json.dumps(facts_of(misfit)))
    else:
        if found.misfits:
            Screen(ctx).show(_lines(found, zone))
        ctx.obj.echo(_summary(found))
    if found.problems:
        ctx.exit(1)


def facts_of(misfit: Misfit) -> dict[str, Any]:
    """Return a row as JSON has it."""
    due = misfit.first_due
    return {
        "task": misfit.task,
        "reason": misfit.reason,
        "where": misfit.where,
        "level": misfit.level,
        "count": misfit.count,
        "first_due": None if due is None else due.isoformat(),
        "id": misfit.id,
        "sentence": misfit.sentence,
        "advice": advised(misfit.advice),
    }


def _lines(found: Preflight, zone: Any) -> Iterator[Any]:
    columns = [
        Column("LEVEL", _STYLES), Column("TASK"), Column("REASON"), Column("IN"),
        Column("COUNT", is_number=True), Column(f"FIRST DUE ({name_of(zone)})"),
        Column("ID", is_id=True),
    ]  # fmt: skip
    yield from table(columns, (_row(misfit, zone) for misfit in found.misfits))
    yield [("", "")]
    for misfit in found.misfits:
        yield [(f"{plain(misfit.task) or '?'}: {plain(misfit.sentence)}", "")]
        yield [(f"  -> {advised(misfit.advice)}", "")]
    yield [("", "")]


def _row(misfit: Misfit, zone: Any) -> list[str]:
    due = "" if misfit.first_due is None else stamp(misfit.first_due, zone)
    texts = misfit.level, misfit.task, misfit.reason, misfit.where, f"{misfit.count:,}"
    return [*map(plain, texts), due, plain(misfit.id)]


def _summary(found: Preflight) -> str:
    looked = f"looked at {counted(found.tasks)} and {counted(found.rules, 'rule')}"
    dead = f"; {_LEFT_OUT.format(counted(found.dead))}" if found.dead else ""
    problems = counted(len(found.problems), "problem") if found.problems else "no problem"
    warnings = len(found.misfits) - len(found.problems)
    warned = f", {counted(warnings, 'warning')}" if warnings else ""
    return f"{problems}{warned}: {looked}{dead}"

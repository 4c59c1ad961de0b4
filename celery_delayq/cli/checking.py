"""The command that looks for what does not fit together: ``check``."""

from __future__ import annotations

import json
from typing import Any

import click
from celery.bin.base import CeleryCommand

from ..logs import plain
from .common import Said, delayq_of, examples, json_option


@click.command(cls=CeleryCommand, epilog=examples("check", "check --json | jq .kind"))
@json_option
@click.pass_context
def check(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Look for what does not fit in the store.

    It changes nothing. A line for each finding, and exit status 1, or: nothing found.
    """
    clean = True
    with Said():
        for finding in delayq_of(ctx).check():
            clean = False
            facts = {"kind": finding.kind, "id": finding.id, "sentence": finding.sentence}
            ctx.obj.echo(json.dumps(facts) if as_json else plain(finding))
    if not clean:
        ctx.exit(1)
    if not as_json:
        ctx.obj.echo("nothing found")

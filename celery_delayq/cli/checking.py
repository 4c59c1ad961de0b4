"""The command that looks for what does not fit together, and mends it: ``check``."""

from __future__ import annotations

from typing import Any

import click

from .common import Said, examples, json_option
from .looks import CeleryCommand, CeleryOption


@click.command(
    cls=CeleryCommand, epilog=examples("check", "check --json | jq .kind", "check --repair")
)
@click.option(
    "--repair", is_flag=True, cls=CeleryOption, help_group="Repair",
    help="Mend what was found, once it was said and allowed.",
)  # fmt: skip
@click.option("--yes", is_flag=True, cls=CeleryOption, help_group="Repair", help="Do not ask.")
@json_option
@click.pass_context
def check(ctx: click.Context, /, repair: bool, yes: bool, as_json: bool, **_: Any) -> None:
    """Look for what does not fit in the store.

    It changes nothing. A line for each finding, and exit status 1, or: nothing found.

    With --repair it says what it found, and what it will do about each; asks; does it; looks again,
    and ends with 1 if something is left. What fits is not touched: each finding is looked at again
    in the step that mends it, while everything goes on.
    """
    if yes and not repair:
        raise click.UsageError("--yes is for --repair.", ctx)
    if as_json and repair and not yes:
        raise click.UsageError("--json --repair cannot ask: pass --yes.", ctx)
    # It leads to what is imported only when it is used.
    from .repairing import Check

    checking = Check(ctx, as_json=as_json, asks=not yes)
    with Said():
        is_clean = checking.repair() if repair else checking.look()
    if not is_clean:
        ctx.exit(1)

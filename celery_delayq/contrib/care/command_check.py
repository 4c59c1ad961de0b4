"""The command ``check``, which finds inconsistencies in the store and repairs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ...core.tasks.scheduled_task import line_of_json
from ...core.text import plain
from ...operations.cli.common import (
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    aligned,
    confirm,
    delayq_of,
    examples,
    json_option,
)
from ...operations.cli.output import counting
from .inconsistencies import KINDS, Finding, Repaired
from .mending import check as check_of
from .mending import repair_many

SHOWN = 20  # findings of a kind that are shown in full

WORDS = {
    "done": "repaired",
    "back": "repaired; the task waits again",
    "late": "repaired; the task waits again, and will be skipped, as its grace period is over",
    "dead": "repaired; the task is dead",
    "lost": "repaired; the task is lost",
    "gone": "resolved by itself meanwhile",
    "left": "left alone",
}


@click.command(
    cls=CeleryCommand, epilog=examples("check", "check --json | jq .kind", "check --repair")
)
@click.option(
    "--repair", is_flag=True, cls=CeleryOption, help_group="Repair",
    help="Repair the findings, after listing them and asking.",
)  # fmt: skip
@click.option("--yes", is_flag=True, cls=CeleryOption, help_group="Repair", help="Do not ask.")
@json_option
@click.pass_context
def check(ctx: click.Context, /, repair: bool, yes: bool, as_json: bool, **_: Any) -> None:
    """Find inconsistencies in the store.

    Prints a line for each finding and exits with 1, or prints: nothing found. Changes nothing.

    With --repair it lists the findings and their repairs, asks, repairs and checks again. It exits
    with 1 if something is left. The step that repairs a finding checks it again, so consistent data
    stays as it is, and scheduling and delivery go on meanwhile.
    """
    if yes and not repair:
        raise click.UsageError("--yes is for --repair.", ctx)
    if as_json and repair and not yes:
        raise click.UsageError("--json --repair cannot ask: pass --yes.", ctx)
    checking = Check(ctx, as_json=as_json, asks=not yes)
    with ErrorSentences():
        is_clean = checking.repair() if repair else checking.find()
    if not is_clean:
        ctx.exit(1)


class Check:
    """One run of the command.

    Args:
        ctx: The command's context.
        as_json: Whether to print everything as JSON.
        asks: Whether to ask before changing anything.
    """

    def __init__(self, ctx: click.Context, *, as_json: bool, asks: bool) -> None:
        self._ctx, self._as_json, self._asks = ctx, as_json, asks
        self._delayq = delayq_of(ctx)

    def find(self) -> bool:
        """Print all findings; return whether there are none."""
        return not self._find()

    def repair(self) -> bool:
        """Check, ask, repair, check again; return whether nothing is left."""
        found = self._find("found")
        if not found:
            return True
        self._tell_kinds(Counter(finding.kind for finding in found))
        mendable = sum(bool(finding.repair) for finding in found)
        if not mendable:
            self._say("none of these can be repaired")
            return False
        if self._asks:
            confirm(f"repair {_counted(mendable)}?")
        delayq_of(self._ctx, heard=True)
        # Only the findings that were listed.
        self._mend(found)
        self._say("checking again")
        return not self._find("left")

    def _find(self, step: str = "") -> list[Finding]:
        """Return the findings and print them: all as JSON; in a repair, the first of each kind."""
        found: list[Finding] = []
        counts: Counter[str] = Counter()
        for finding in check_of(self._delayq.services):
            found.append(finding)
            counts[finding.kind] += 1
            if self._as_json:
                self._print(({"step": step} if step else {}) | _facts_of(finding))
            elif not step or counts[finding.kind] <= SHOWN:
                self._say(plain(finding))
        for kind, count in counts.items():
            if step and count > SHOWN:
                self._say(f"and {count - SHOWN:,} more of {kind}")
        if not found:
            self._say("nothing found")
        return found

    def _tell_kinds(self, counts: Counter[str]) -> None:
        rows = [("found", "kind", "repair")]
        for kind, count in counts.items():
            does = KINDS[kind].repair or "none; it is only reported"
            rows.append((f"{count:,}", kind, does))
        self._say("")
        for line in aligned(rows):
            self._say(line)
        self._say("")

    def _mend(self, found: Sequence[Finding]) -> None:
        became: Counter[str] = Counter()
        with counting(
            self._ctx, "repair", lambda count: f"{_counted(count)} processed", len(found)
        ) as taken:
            for some in repair_many(self._delayq.services, found):
                for repaired in some:
                    became[repaired.what] += 1
                    self._tell(repaired)
                taken(became.total())
        for what, count in became.items():
            self._say(f"{count:,} {WORDS[what]}")

    def _tell(self, repaired: Repaired) -> None:
        """Print the result of a repair as JSON; otherwise only the log has lost and dead tasks."""
        if self._as_json:
            facts = {
                "kind": repaired.finding.kind,
                "id": repaired.finding.id,
                "what": repaired.what,
            }
            reason = {"reason": repaired.reason} if repaired.reason else {}
            self._print({"step": "repaired", **facts, **reason})

    def _print(self, facts: dict[str, str]) -> None:
        self._ctx.obj.echo(line_of_json(facts))

    def _say(self, line: str) -> None:
        if not self._as_json:
            self._ctx.obj.echo(line)


def _facts_of(finding: Finding) -> dict[str, str]:
    """Return a finding's fields for JSON."""
    return {
        "kind": finding.kind,
        "id": finding.id,
        **({} if finding.tag is None else {"tag": finding.tag}),
        "sentence": finding.sentence,
        "repair": finding.repair,
    }


def _counted(count: int) -> str:
    return "1 finding" if count == 1 else f"{count:,} findings"

"""The command that looks for what does not fit together, and mends it: ``check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ..cli.common import ErrorSentences, aligned, confirm, delayq_of, examples, json_option
from ..cli.looks import CeleryCommand, CeleryOption
from ..cli.progress import counting
from ..cli.task_facts import line_of_json
from ..logs import plain
from .inconsistencies import KINDS, Finding, Repaired
from .mending import check as check_of
from .mending import repair_many

SHOWN = 20  # findings of a kind that are told in full

WORDS = {
    "done": "repaired",
    "back": "repaired; the task waits again",
    "late": "repaired; the task waits again, and will be skipped: its grace is over",
    "dead": "repaired; the task is dead",
    "lost": "repaired; the task is lost",
    "gone": "gone by itself meanwhile",
    "left": "left alone",
}


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
    checking = Check(ctx, as_json=as_json, asks=not yes)
    with ErrorSentences():
        is_clean = checking.repair() if repair else checking.find()
    if not is_clean:
        ctx.exit(1)


class Check:
    """One run of the command.

    Args:
        ctx: The command's.
        as_json: Print everything as JSON.
        asks: Ask before anything is changed.
    """

    def __init__(self, ctx: click.Context, *, as_json: bool, asks: bool) -> None:
        self._ctx, self._as_json, self._asks = ctx, as_json, asks
        self._delayq = delayq_of(ctx)

    def find(self) -> bool:
        """Tell all that there is; whether that is nothing."""
        return not self._find()

    def repair(self) -> bool:
        """Look, ask, mend, look again; whether nothing is left."""
        found = self._find("found")
        if not found:
            return True
        self._tell_kinds(Counter(one.kind for one in found))
        mendable = sum(bool(one.repair) for one in found)
        if not mendable:
            self._say("nothing of that is repaired")
            return False
        if self._asks:
            confirm(f"repair {_counted(mendable)}?")
        # Those that were said, and no others.
        self._mend(found)
        self._say("looking again")
        return not self._find("left")

    def _find(self, step: str = "") -> list[Finding]:
        """What there is, told: as JSON all; of a *step* of a repair of each kind the first."""
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
        rows = [("found", "kind", "what repair does")]
        for kind, count in counts.items():
            does = KINDS[kind].repair or "nothing; it is only told"
            rows.append((f"{count:,}", kind, does))
        self._say("")
        for line in aligned(rows):
            self._say(line)
        self._say("")

    def _mend(self, found: Sequence[Finding]) -> None:
        became: Counter[str] = Counter()
        with counting(
            self._ctx, "repair", lambda count: f"{_counted(count)} dealt with", len(found)
        ) as taken:
            for some in repair_many(self._delayq.services, found):
                for one in some:
                    became[one.what] += 1
                    self._tell(one)
                taken(became.total())
        for what, count in became.items():
            self._say(f"{count:,} {WORDS[what]}")

    def _tell(self, one: Repaired) -> None:
        """What became of a finding, as JSON; else the log has the tasks that are lost, or dead."""
        if self._as_json:
            facts = {"kind": one.finding.kind, "id": one.finding.id, "what": one.what}
            reason = {"reason": one.reason} if one.reason else {}
            self._print({"step": "repaired", **facts, **reason})

    def _print(self, facts: dict[str, str]) -> None:
        self._ctx.obj.echo(line_of_json(facts))

    def _say(self, line: str) -> None:
        if not self._as_json:
            self._ctx.obj.echo(line)


def _facts_of(finding: Finding) -> dict[str, str]:
    """A finding, for JSON."""
    return {
        "kind": finding.kind,
        "id": finding.id,
        **({} if finding.tag is None else {"tag": finding.tag}),
        "sentence": finding.sentence,
        "repair": finding.repair,
    }


def _counted(count: int) -> str:
    return "1 finding" if count == 1 else f"{count:,} findings"

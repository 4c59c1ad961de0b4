"""What ``check`` does: what was found is said; with ``--repair`` mended, then looked for again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from ..care.mending import repair_many
from ..care.misfits import KINDS, Finding, Repaired
from ..logs import plain
from .common import aligned, confirm, delayq_of
from .facts import line_of_json
from .progress import counting

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

    def look(self) -> bool:
        """Tell all that there is; whether that is nothing."""
        return not self._look()

    def repair(self) -> bool:
        """Look, ask, mend, look again; whether nothing is left."""
        found = self._look("found")
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
        return not self._look("left")

    def _look(self, step: str = "") -> list[Finding]:
        """What there is, told: as JSON all; of a *step* of a repair of each kind the first."""
        found: list[Finding] = []
        counts: Counter[str] = Counter()
        for finding in self._delayq.check():
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

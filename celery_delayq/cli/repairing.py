"""``check --repair``: what was found is said, then mended, then looked for again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

import click

from ..care.misfits import KINDS, Finding, Repaired
from ..logs import plain
from ..operations.checking import repair_many
from .common import Said, aligned, confirm, delayq_of
from .facts import line_of_json
from .progress import counting

SHOWN = 20  # findings of a kind that are told in full
IN_MEMORY = 1_000_000  # bytes of findings; more are kept in a file meanwhile

WORDS = {
    "done": "repaired",
    "back": "repaired; the task waits again",
    "late": "repaired; the task waits again, and will be skipped: its grace is over",
    "dead": "repaired; the task is dead",
    "lost": "repaired; the task is lost",
    "gone": "gone by itself meanwhile",
    "left": "left alone",
}


class Repair:
    """One run of the command.

    Args:
        ctx: The command's.
        as_json: Print everything as JSON.
        asks: Ask before anything is changed.
    """

    def __init__(self, ctx: click.Context, *, as_json: bool, asks: bool) -> None:
        self._ctx, self._as_json, self._asks = ctx, as_json, asks
        self._delayq = delayq_of(ctx)

    def run(self) -> bool:
        """Look, ask, mend, look again; whether nothing is left."""
        with Said(), _Kept() as found:
            counts = self._look("found", found)
            if not counts:
                self._say("nothing found")
                return True
            if not self._as_json:
                self._tell_kinds(counts)
            mendable = sum(count for kind, count in counts.items() if KINDS[kind].repair)
            if not mendable:
                self._say("nothing of that is repaired")
                return False
            if self._asks:
                confirm(f"repair {_counted(mendable)}?")
            self._mend(found, counts.total())
            self._say("looking again")
            left = self._look("left")
            if not left:
                self._say("nothing found")
            return not left

    def _look(self, step: str, kept: _Kept | None = None) -> Counter[str]:
        """What there is, told: in full of each kind the first, as JSON all."""
        counts: Counter[str] = Counter()
        for finding in self._delayq.check():
            counts[finding.kind] += 1
            if kept is not None:
                kept.add(finding)
            if self._as_json:
                self._ctx.obj.echo(line_of_json({"step": step, **facts_of(finding)}))
            elif counts[finding.kind] <= SHOWN:
                self._say(plain(finding))
        for kind, count in counts.items():
            if count > SHOWN:
                self._say(f"and {count - SHOWN:,} more of {kind}")
        return counts

    def _tell_kinds(self, counts: Counter[str]) -> None:
        rows = [("found", "kind", "what repair does")]
        for kind, count in counts.items():
            does = KINDS[kind].repair or "nothing; it is only told"
            rows.append((f"{count:,}", kind, does))
        self._say("")
        for line in aligned(rows):
            self._say(line)
        self._say("")

    def _mend(self, found: Iterable[Finding], total: int) -> None:
        became: Counter[str] = Counter()
        with counting(
            self._ctx, "repair", lambda count: f"{_counted(count)} dealt with", total
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
            self._ctx.obj.echo(line_of_json({"step": "repaired", **facts, **reason}))

    def _say(self, line: str) -> None:
        if not self._as_json:
            self._ctx.obj.echo(line)


class _Kept:
    """Findings in their order, however many: those that were said, and no others, are mended."""

    def __init__(self) -> None:
        self._file: Any = SpooledTemporaryFile(IN_MEMORY, "w+", encoding="ascii")  # noqa: SIM115

    def __enter__(self) -> _Kept:  # noqa: PYI034 - Self is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, one: Finding) -> None:
        json.dump([one.kind, one.id, one.part, one.at.hex(), one.shard], self._file)
        self._file.write("\n")

    def __iter__(self) -> Iterator[Finding]:
        self._file.seek(0)
        for line in self._file:
            kind, task_id, part, at, shard = json.loads(line)
            yield Finding(kind, task_id, part, bytes.fromhex(at), shard)


def facts_of(finding: Finding) -> dict[str, str]:
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

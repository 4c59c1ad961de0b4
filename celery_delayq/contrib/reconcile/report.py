"""What a reconcile did, as its caller gets it; and what ``health`` and metrics tell of the last.

Reconciled --line--> the store, a line for each tag --Counts--> DRIFT, its gauges and its alert
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from ...core.servers.risks import NOTE, OK, WARNING, Line
from ...core.store import Counts
from ...core.text import counted, lasting, plain
from ...operations.health import Alert, Check, Gauge, Numbers, Sight, most

FIRST = 10  # cases of each kind that a report has
MOST_TAGS = 100  # whose last reconcile is noted
LASTS_MS = 7 * 86_400_000  # so long a line counts: its tag may be reconciled no more

# What became of a row or a task; in a dry run, what would.
SCHEDULED, CHANGED, TAGGED, CANCELLED = "scheduled", "changed", "tagged", "cancelled"
UNCHANGED, REFUSED = "unchanged", "refused"
DONE = (SCHEDULED, CHANGED, TAGGED, CANCELLED)
#: Why a row, or a task without one, was left alone.
IN_FLIGHT, HELD, DEAD, UNREADABLE = "in_flight", "held", "dead", "unreadable"
PAST_DUE, OTHER_TASK, NO_KEY, RECENT, BEYOND = (
    "past_due", "other_task", "no_key", "recent", "beyond",
)  # fmt: skip
LEFT = {
    "handed_over": "was_delivered",
    "skipped": "was_skipped",
    "cancelled": "was_cancelled",
    "uncertain": "was_uncertain",
    "held": HELD,
    "unreadable": UNREADABLE,
}
KINDS = (
    *DONE, UNCHANGED, *LEFT.values(), IN_FLIGHT, DEAD, PAST_DUE, OTHER_TASK, NO_KEY, RECENT,
    BEYOND, REFUSED,
)  # fmt: skip


class Case(NamedTuple):
    """One row, or a task without one.

    Attributes:
        key: Its key; empty, if it has none.
        why: What differs, or why it was left alone or refused; may be empty.
        place: The number of the row, from 0; ``None``: there is no row.
        id: The id of the task; empty, if none is known.
        error: The error of a row that was refused.
    """

    key: str
    why: str = ""
    place: int | None = None
    id: str = ""
    error: Exception | None = None


@dataclass
class Reconciled:
    """The result of a reconcile; it is true if the store agrees with the rows now.

    Attributes:
        tag: The tag.
        dry_run: Whether nothing was changed: the counts are then of what would be.
        remembers: How long the store knows how a task left, at least, if there are not too many.
            A row whose task left before that, and that is still among the rows, comes again.
        most: How many tasks it could change and cancel.
        counts: How many rows and tasks there were of each kind.
        first: The first ten cases of each kind.
        rows: How many rows were handled.
        is_complete: Whether all rows were.
        kept: Why no task without a row was cancelled, although that was asked; or empty.
        bulk: The name under which :meth:`DelayQ.undo_all` takes back what was cancelled and moved;
            empty if nothing is kept for that.
        warnings: What to look at.
    """

    tag: str
    dry_run: bool
    remembers: timedelta
    most: float
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[Case]] = field(default_factory=dict)
    rows: int = 0
    is_complete: bool = False
    kept: str = ""
    bulk: str = ""
    warnings: list[str] = field(default_factory=list)

    def add(self, kind: str, case: Case) -> None:
        """Count a case, and keep it if it is among the first."""
        self.counts[kind] += 1
        some = self.first.setdefault(kind, [])
        if len(some) < FIRST:
            some.append(case)

    @property
    def scheduled(self) -> int:
        """How many rows had no task, and have one now."""
        return self.counts[SCHEDULED]

    @property
    def changed(self) -> int:
        """How many tasks had another due time or other arguments than their rows."""
        return self.counts[CHANGED]

    @property
    def cancelled(self) -> int:
        """How many tasks had no row."""
        return self.counts[CANCELLED]

    @property
    def unchanged(self) -> int:
        """How many tasks agreed with their rows."""
        return self.counts[UNCHANGED]

    @property
    def refused(self) -> int:
        """How many rows were invalid."""
        return self.counts[REFUSED]

    @property
    def is_stopped(self) -> bool:
        """Whether it came to *most*, and left what it would have changed or cancelled."""
        return self.counts[BEYOND] > 0

    @property
    def drift(self) -> int:
        """How many rows and tasks did not agree."""
        return sum(self.counts[kind] for kind in (*DONE, BEYOND, OTHER_TASK, REFUSED))

    @property
    def remaining(self) -> int:
        """How many of these still do not."""
        if self.dry_run:
            return self.drift
        return sum(self.counts[kind] for kind in (BEYOND, OTHER_TASK, REFUSED))

    def __bool__(self) -> bool:
        return self.is_complete and not self.remaining

    def __repr__(self) -> str:
        kinds = ", ".join(f"{self.counts[kind]} {kind}" for kind in KINDS if kind in self.counts)
        dry = ", dry run" if self.dry_run else ""
        return f"<Reconciled {self.tag!r}: {self.rows} rows{dry}; {kinds or 'nothing'}>"

    def line(self, error: BaseException | None) -> str:
        """Return what the store notes of it; *error*: what ended it early."""
        noted = {
            "rows": self.rows,
            "drift": self.drift,
            "left": self.remaining,
            "dry": int(self.dry_run),
            "error": "" if error is None else type(error).__name__,
        }
        return json.dumps(noted)


class _Last(NamedTuple):
    """What the last reconcile of a tag noted."""

    tag: str
    when_ms: int
    rows: int
    drift: int
    left: int
    dry: bool
    error: str


def _last(counts: Counts) -> Iterator[_Last]:
    for tag, line in sorted(counts.reconciled):
        when, _, text = line.partition(" ")
        try:
            noted: dict[str, Any] = json.loads(text)
            rows, drift, left, dry = (int(noted[name]) for name in _NUMBERS)
            found = _Last(tag, int(when), rows, drift, left, bool(dry), str(noted["error"]))
        except (KeyError, TypeError, ValueError):  # another program's, or a later release's
            continue
        if counts.now_ms - found.when_ms < LASTS_MS:
            yield found


_NUMBERS = ("rows", "drift", "left", "dry")
_ENDED = Line(
    "reconcile", WARNING, "the last reconcile of tag {}, {} ago, ended after {} with {}",
    "its caller's log says why; run it again",
)  # fmt: skip
_DIFFERS = Line(
    "reconcile", WARNING, "the last reconcile of tag {}, {} ago{}, left {}",
    "its report says which; run it with dry_run=False, or with a higher most=",
)  # fmt: skip


def _look(sight: Sight) -> Iterator[Line]:
    """Tell of each tag what the last reconcile of it found."""
    for last in _last(sight.counts):
        tag = plain(last.tag)
        ago = lasting((sight.counts.now_ms - last.when_ms) / 1000)
        if last.error:
            yield _ENDED.filled(tag, ago, counted(last.rows, "row"), last.error)
        elif last.left:
            dry = ", a dry run" if last.dry else ""
            yield _DIFFERS.filled(tag, ago, dry, counted(last.left, "difference"))
        else:
            found = f"the last reconcile of tag {tag}, {ago} ago, read {counted(last.rows, 'row')}"
            mended = f", and mended {counted(last.drift, 'difference')}" if last.drift else ""
            yield Line("reconcile", NOTE if last.drift else OK, found + mended)


def _drift(seen: Numbers) -> float:
    return sum(last.drift for last in _last(seen.counts))


def _left(seen: Numbers) -> float:
    return sum(last.left or bool(last.error) for last in _last(seen.counts))


DRIFT = Check[Sight](
    "reconcile", "the differences found by the last reconcile of each tag", _look,
    "waiting tasks differ from the rows of the last reconcile, or that ended early",
    gauges=(
        Gauge(
            "drift_tasks", "rows and tasks that did not agree at the last reconcile of each tag",
            _drift,
        ),
        Gauge(
            "drift_left_tasks",
            "those of them that it left so; at least 1 for each tag whose last reconcile ended "
            "early",
            _left,
        ),
    ),
    alerts=(
        Alert(
            "DelayqDrift", f"{most('drift_left_tasks')} > 0",
            "{{ $value }} waiting tasks do not agree with the database.",
            "The last `delayq.reconcile` of a tag was a dry run, came to its bound, had rows that "
            "were refused, or ended early. `celery -A APP delayq health` says which tag.",
            "10m",
        ),
    ),
)  # fmt: skip

"""What is shown of rules, from what is stored: their next runs, their last one, what is overdue.

rows --the slots that were due last--> ids --runs.lua--> runs that wait, and what became of the ids
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from ...core.services import Services
from .. import rule_store as store
from ..rule_store import Past, Stored, Waiting
from .rule import Plan, plan_of
from .timing import Timing
from .writing import id_of

SHOWN = 3  # of the next times
OVERDUE = timedelta(seconds=30)  # so late a run may be, as a scanner may have been restarted
_UNKNOWN = "unknown"


class LastRun(NamedTuple):
    """The latest run that was due when you read the rule, whether it was left out or not.

    Attributes:
        id: Its task's id; empty if no task was made, or if it is unknown.
        due: When it was due.
        what: Its state in the store: ``scheduled``, ``paused``, ``in_flight`` or ``dead``; how it
            left: ``handed_over``, ``cancelled`` or ``uncertain``; why it was left out: ``missed``,
            no scanner was there in time; ``skipped``, by a person; ``held``, its key was; or
            ``declined``, the task's own ``apply_async`` sent nothing; or ``unknown``: the store has
            forgotten it.
    """

    id: str
    due: datetime
    what: str


@dataclass(frozen=True)
class Shown:
    """What the store has of a rule's runs.

    Attributes:
        next: When the next ones are due.
        last: The latest one that was due; ``None``: none was.
        overdue: Since when a run is overdue; ``None``: none is.
        skipped: When runs would be due that a person skipped.
        waiting: The runs that wait, in the order of their due times.
    """

    next: tuple[datetime, ...]
    last: LastRun | None
    overdue: datetime | None
    skipped: tuple[datetime, ...]
    waiting: tuple[Waiting, ...]


class _Run(NamedTuple):
    """A run that was due: of which slot, and under which revision of its rule."""

    id: str
    slot: datetime
    due: datetime
    is_now: bool  # of the revision that the rule has


def shown(services: Services, rules: Sequence[Stored]) -> list[Shown | ValueError]:
    """Return what the store has of the runs of rules; or why this version cannot read a rule."""
    pasts = [_pasts_or_error(services, rule) for rule in rules]
    asked = [
        (rule, [] if isinstance(past, ValueError) else [run.id for run in past])
        for rule, past in zip(rules, pasts, strict=True)
    ]
    answers = store.runs_of(services.entries, asked)
    found = list[Shown | ValueError]()
    for rule, past, (waiting, fates) in zip(rules, pasts, answers, strict=True):
        if isinstance(past, ValueError):
            found.append(past)
        else:
            found.append(_shown(rule, plan_of(rule), past, fates, waiting))
    return found


def _shown(
    rule: Stored,
    plan: Plan,
    pasts: Sequence[_Run],
    fates: Sequence[str],
    waiting: Iterable[Waiting],
) -> Shown:
    # Before it was cleared up, it has runs that will not come.
    runs = () if rule.is_unclear else tuple(sorted(waiting))
    ids = {run.id for run in runs}
    skipped = [slot for slot, task_id in rule.skips.items() if task_id not in ids]
    coming = [run.due for run in runs if run.due > rule.now]
    if not rule.is_paused:
        coming += [slot + rule.offset for slot in islice(slots_to_come(rule, plan), SHOWN)]
    return Shown(
        next=tuple(sorted(coming)[:SHOWN]),
        last=_last(rule, pasts, fates),
        overdue=_overdue(rule, plan, runs),
        skipped=tuple(slot + rule.offset for slot in skipped if slot + rule.offset > rule.now),
        waiting=runs,
    )


def slots_to_come(rule: Stored, plan: Plan) -> Iterator[datetime]:
    """Yield the slots whose runs are not written yet, and that nobody skips."""
    after = max(rule.last, rule.now - rule.offset)
    return (slot for slot in plan.timing.after(after) if slot not in rule.skips)


def _last(rule: Stored, pasts: Sequence[_Run], fates: Sequence[str]) -> LastRun | None:
    """Return the latest run of which something is known, or else the latest one."""
    found = [
        LastRun(run.id, run.due, _what(rule, run, fate))
        for run, fate in zip(pasts, fates, strict=True)
    ]
    known = next((run for run in found if run.what != _UNKNOWN), None)
    if known is None:
        return found[0]._replace(id="") if found else None
    return known


def _what(rule: Stored, run: _Run, fate: str) -> str:
    if fate == "skipped":
        return "missed"  # by its late policy
    if run.is_now and fate in ("cancelled", _UNKNOWN):
        if run.slot in rule.skips:
            return "skipped"
        slot, _, why = str(rule.row.get("omitted", "")).partition(" ")
        if fate == _UNKNOWN and slot == str(store.ms_of(run.slot)) and why:
            return why
    return fate


def _overdue(rule: Stored, plan: Plan, waiting: Iterable[Waiting]) -> datetime | None:
    """Return when the first run was due that is not written, or not delivered, long after that."""
    if rule.is_paused or rule.is_unclear:
        return None
    dues = [run.due for run in waiting if run.kind == "s"]
    unwritten = (slot for slot in plan.timing.after(rule.last) if slot not in rule.skips)
    dues += [slot + rule.offset for slot in islice(unwritten, 1)]
    return min((due for due in dues if due < rule.now - OVERDUE), default=None)


def _pasts_or_error(services: Services, rule: Stored) -> list[_Run] | ValueError:
    try:
        return [*_pasts(services, rule)]
    except ValueError as error:
        return error
    except Exception as error:  # another version of cronsim, or of the zones, set it
        return ValueError(str(error))


def _pasts(services: Services, rule: Stored) -> Iterator[_Run]:
    """Yield the latest run that was due of each revision of which the row tells, newest first."""
    timing = plan_of(rule).timing
    next(timing.after(rule.now), None)  # may raise
    if not rule.is_paused:
        upto = min(rule.last, rule.now - rule.offset)
        parts = timing.text, timing.zone, timing.dialect
        yield from _latest(
            services, rule, Past(rule.revision, rule.began, upto, rule.offset, parts)
        )
    for past in rule.past:
        yield from _latest(services, rule, past)


def _latest(services: Services, rule: Stored, past: Past) -> Iterator[_Run]:
    if past.upto <= past.began:
        return
    shards, is_now = services.settings.shards, past.revision == rule.revision
    for slot in Timing(*past.timing).latest(past.upto, 1, past.began):
        task_id = id_of(replace(rule, revision=past.revision), slot, shards)
        yield _Run(task_id, slot, slot + past.offset, is_now)


def slot_of(services: Services, rule: Stored, plan: Plan, run: Waiting) -> datetime | None:
    """Return the slot of a run that waits; ``None``: an earlier revision of the rule wrote it."""
    skipped = {task_id: slot for slot, task_id in rule.skips.items()}
    if run.id in skipped:
        return skipped[run.id]
    written = plan.timing.latest(rule.last, 100, max(rule.began, rule.last - timedelta(days=400)))
    slots = [run.due - rule.offset, *reversed(written)]
    shards = services.settings.shards
    return next((slot for slot in slots if id_of(rule, slot, shards) == run.id), None)

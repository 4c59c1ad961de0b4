"""The runs of a rule: what is shown of them, and what a person does with one of them.

shown   rows --the slots that were due last--> ids --runs.lua--> runs that wait, and the fates
skip    it waits --> cancelled, and noted in the row; it is not written --> noted only
run     its key is free --> one more task; its next run has the key --> that, and its slot again
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from celery.result import AsyncResult

from ...core.errors import InvalidOption
from ...core.scheduling.options import AFTER, TAGS
from ...core.services import Services
from ...core.tasks.changing import cancel, reschedule, withdraw
from ...core.tasks.reading import get
from .. import rule_store as store
from ..rule_store import Past, Stored, Waiting, ms_of, tag_of
from .plan import Plan, Timing, plan_of
from .writing import id_of

SHOWN = 3  # of the next times
OVERDUE = timedelta(seconds=30)  # so late a run may be, as a scanner may have been restarted
_UNKNOWN = "unknown"
_TRIES = 5
_EXPECTED = "the name of a rule that nobody else changes meanwhile"
_FULL = "the name of a rule with fewer than 100 skips; unskip brings these runs back"


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


class Skipped(NamedTuple):
    """What a skip left out.

    Attributes:
        id: The id of the task that was cancelled; empty if the run was not written yet.
        due: When it would be due.
    """

    id: str
    due: datetime


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
        coming += [slot + rule.offset for slot in islice(_slots_to_come(rule, plan), SHOWN)]
    return Shown(
        next=tuple(sorted(coming)[:SHOWN]),
        last=_last(rule, pasts, fates),
        overdue=_overdue(rule, plan, runs),
        skipped=tuple(slot + rule.offset for slot in skipped if slot + rule.offset > rule.now),
        waiting=runs,
    )


def _slots_to_come(rule: Stored, plan: Plan) -> Iterator[datetime]:
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


def skip(services: Services, name: str) -> Skipped | None:
    """Leave out the run of a rule that comes next; see :meth:`Rule.skip`."""
    for _ in range(_TRIES):
        rule = store.find(services.entries, name)
        if rule is None or rule.is_removed:
            return None
        [found] = shown(services, [rule])
        if isinstance(found, ValueError):
            raise InvalidOption("name", name, str(found))
        skipped, is_done = _skip(services, rule, plan_of(rule), found)
        if is_done:
            return skipped
    raise InvalidOption("name", name, _EXPECTED)


def _skip(
    services: Services, rule: Stored, plan: Plan, found: Shown
) -> tuple[Skipped | None, bool]:
    """Return what is left out, and whether nobody was quicker."""
    run = next(iter(found.waiting), None)
    slot = None if rule.is_paused else next(_slots_to_come(rule, plan), None)
    if run is not None and (slot is None or run.due <= slot + rule.offset):
        if not cancel(services.app.delayq, run.id):
            return None, False
        own = slot_of(services, rule, plan, run)
        if own is not None:
            _note(services, rule, own, run.id)
        return Skipped(run.id, run.due), True
    if slot is None:
        return None, True
    task_id = id_of(rule, slot, services.settings.shards)
    answer = _note(services, rule, slot, task_id)
    # A writer may have written it just now.
    is_done = answer == "done" or (
        answer == "written" and bool(cancel(services.app.delayq, task_id))
    )
    return Skipped(task_id if answer == "written" else "", slot + rule.offset), is_done


def _note(services: Services, rule: Stored, slot: datetime, task_id: str) -> str:
    """Note in the row that a slot is skipped; return the answer of ``rule.lua``."""
    given = f"{rule.revision} {ms_of(slot):013}:{task_id}"
    answer = store.change(services.entries.unasked_shards[rule.shard], rule.name, "skip", given)
    if answer == "full":
        raise InvalidOption("name", rule.name, _FULL)
    return answer


def withdraw_undone(services: Services, name: str) -> None:
    """Cancel the runs of a rule that were skipped, and that an undo brought back."""
    rule = store.find(services.entries, name)
    for task_id in filter(None, rule.skips.values() if rule else ()):
        if task := get(services.app.delayq, task_id):
            withdraw(services, task_id, if_revision=task.revision)


def run(services: Services, rule: Stored) -> AsyncResult[Any]:
    """Run the task of a rule now, beside the schedule; see :meth:`Rule.run`."""
    plan = plan_of(rule)
    if plan.key and (made := _sent_ahead(services, rule.name)) is not None:
        return made
    options: dict[str, Any] = {AFTER: 0, TAGS: [*plan.tags, tag_of(rule.name)]}
    result: AsyncResult[Any] = plan.signature_of(services.app).apply_async(**options)
    return result


def _sent_ahead(services: Services, name: str) -> AsyncResult[Any] | None:
    """Send the next run of a keyed rule now, and write its slot anew.

    ``None``: that does not wait under the key, or is not as the rule wrote it.
    """
    rule = store.find(services.entries, name)
    if rule is None or not (key := plan_of(rule).key):
        return None
    holder, [found] = services.entries.holder(key), shown(services, [rule])
    if holder is None or isinstance(found, ValueError):
        return None
    own = next((run for run in found.waiting if run.id == holder.id), None)
    if own is None or not _is_as_written(services, rule, own):
        return None
    task, delayq = get(services.app.delayq, own.id), services.app.delayq
    if task is None or task.revision // 1000 != ms_of(task.created):  # it was edited
        return None
    if not reschedule(delayq, own.id, after=0, if_revision=task.revision):
        return None
    shard = services.entries.unasked_shards[rule.shard]
    if own.due > rule.now:
        store.change(shard, name, "again", str(rule.revision))
    result: AsyncResult[Any] = services.app.AsyncResult(own.id)
    return result


def _is_as_written(services: Services, rule: Stored, run: Waiting) -> bool:
    slot = slot_of(services, rule, plan_of(rule), run)
    return slot is not None and run.due == slot + rule.offset

"""What a person does with one run of a rule: leave it out, or run the task now.

skip --it waits--> cancelled, and noted in the row --it is not written--> noted only
run  --its key is free--> one more task --its next run has the key--> that one, and its slot again
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from celery.result import AsyncResult

from ...core.errors import InvalidOption
from ...core.scheduling.options import AFTER, TAGS
from ...core.services import Services
from ...core.tasks.changing import cancel, reschedule, withdraw
from ...core.tasks.reading import get
from .. import rule_store as store
from ..rule_store import Stored, Waiting, ms_of, tag_of
from .rule import Plan, plan_of
from .shown import Shown, shown, slot_of, slots_to_come
from .writing import id_of

_TRIES = 5
_EXPECTED = "the name of a rule that nobody else changes meanwhile"
_FULL = "the name of a rule with fewer than 100 skips; unskip brings these runs back"


class Skipped(NamedTuple):
    """What a skip left out.

    Attributes:
        id: The id of the task that was cancelled; empty if the run was not written yet.
        due: When it would be due.
    """

    id: str
    due: datetime


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
    slot = None if rule.is_paused else next(slots_to_come(rule, plan), None)
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

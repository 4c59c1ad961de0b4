"""Computes the next runs of rules, and writes them; any process may, and each slot is written once.

the rules to look at --slots after the last one--> apply_async, which makes entries --> fire.lua
"""

from __future__ import annotations

import math
from collections import deque
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any
from uuid import UUID, uuid5

from ...core.clock import When, from_ms
from ...core.errors import InvalidOption, NotScheduled, StoreError
from ...core.logs import logger_of
from ...core.scheduling.options import KEY, TAGS
from ...core.scheduling.request import Request
from ...core.services import Services
from ...core.store import NewEntry
from ...core.store.keys import shard_of
from ...core.store.shard import Shard
from ...core.tasks.changing import cancel
from ...core.tasks.selecting import select
from . import store
from .rule import Plan, Stored, ms_of
from .store import Run

AHEAD = timedelta(seconds=60)  # the runs of so long are written, but the next one in any case
MOST = 60  # of these
MOST_MISSED = 100
AGAIN = timedelta(seconds=5)  # until a key that is held is looked at again
LATER = timedelta(seconds=60)  # until a rule that cannot be computed is

_RUNS = UUID("5b0b3f3e-6d0f-4c55-9a0e-9a3a1f0d2c11")  # the namespace of their ids

logger = logger_of(__name__)


def tag_of(name: str) -> str:
    """Return the tag of a rule's runs."""
    return f"every:{name}"


def look_at(services: Services, shard: Shard, rule: Stored, now: datetime) -> None:
    """Write the next runs of a rule, or clear up what it wrote before."""
    if not rule.writes:
        if {"c", "r"} & {*rule.flags}:
            clear(services, shard, rule)
        return
    plan = rule.plan
    slots, further = _slots(rule, plan, now)
    offset = plan.offset(rule.name)
    runs = [
        Run(
            ms_of(slot),
            ms_of(slot + offset),
            entry_of(services, rule, plan, slot) if wanted else None,
        )
        for slot, wanted in slots
    ]
    words = store.fire(shard, rule, ms_of(further), runs)
    if words[-1:] == ["held"]:
        store.fire(shard, rule, ms_of(now + AGAIN), [])
    done = [(run.entry, run.due) for run, word in zip(runs, words, strict=False) if word == "done"]
    if done:
        services.hooks.scheduled(done)


def _slots(rule: Stored, plan: Plan, now: datetime) -> tuple[list[tuple[datetime, bool]], datetime]:
    """Return the slots to write, each with whether it gets a run; and when to look next."""
    offset = plan.offset(rule.name)
    coming = plan.timing.after(rule.last)
    is_ahead = not rule.is_new and rule.last + offset > now  # its next run is written
    over = deque[datetime](maxlen=MOST_MISSED)
    first: datetime | None = None
    for slot in coming:
        if slot + offset > now:
            first = slot
            break
        over.append(slot)
    wanted = {"none": 0, "one": 1, "all": MOST_MISSED}[plan.missed]
    slots = [(slot, place > len(over) - wanted) for place, slot in enumerate(over, 1)]
    if first is None:
        return slots, now + LATER
    if is_ahead and (plan.key or first + offset > now + AHEAD):
        return slots, rule.last + offset
    if plan.key:  # one at a time: the next one when this one has left
        return [*slots, (first, True)], first + offset
    ahead = takewhile(lambda slot: slot + offset <= now + AHEAD, coming)
    rest = [slot for slot, _ in zip(ahead, range(MOST - 1), strict=False)]
    last = rest[-1] if rest else first
    slots += [(slot, True) for slot in (first, *rest)]
    if not rest:
        return slots, last + offset
    return slots, max(last + offset - AHEAD / 2, now + timedelta(seconds=1))


def entry_of(services: Services, rule: Stored, plan: Plan, slot: datetime) -> NewEntry:
    """Make the entry of a run, as ``apply_async`` makes a message."""
    if services.app.conf.task_always_eager:
        raise InvalidOption("task_always_eager", True, "False, as with it a task runs at once")
    when = When("at", ms_of(slot + plan.offset(rule.name)))
    signature, shards = plan.signature_of(services.app), services.settings.shards
    options: dict[str, Any] = {
        "task_id": _id_of(rule, plan.key or rule.name, slot, shards),
        TAGS: [*plan.tags, tag_of(rule.name)],
    }
    if plan.key:
        options[KEY] = plan.key
    request = Request(when, given_out=False, writes=False)
    result = request.sent_by(signature.apply_async, **options)
    ready = request.answer.ready
    if ready is None:
        request.refuse_sent(result)
        raise NotScheduled(str(getattr(result, "id", "")))
    return ready.new


def _id_of(rule: Stored, home: str, slot: datetime, shards: int) -> str:
    """Return the id of a run: the same in each process, and on the shard of the rule.

    So a slot is not written again if Redis stopped the step between its entry and the last slot.
    """
    names = (f"{rule.name} {rule.revision} {ms_of(slot)} {number}" for number in count())
    ids = (str(uuid5(_RUNS, name)) for name in names)
    return next(each for each in ids if shard_of(each, shards) == shard_of(home, shards))


def clear(services: Services, shard: Shard, rule: Stored) -> None:
    """Cancel what a rule wrote before, but for what somebody moved or edited since."""
    delayq = services.app.delayq
    for task in select(delayq, tag=tag_of(rule.name)):
        if task.revision // 1000 == ms_of(task.created):
            cancel(delayq, task.id, if_revision=task.revision)
    store.change(shard, rule.name, "cleared", digest=str(rule.revision))


def write(services: Services, shard: Shard) -> float:
    """Look at the rules of a shard; return after how many seconds to look again."""
    now_us, look_ms, names = store.ahead(shard)
    now = from_ms(now_us // 1000)
    found = store.named(shard, names)
    for name in {*names} - {rule.name.encode() for rule in found}:  # no rule, or no longer
        store.change(shard, name, "cleared", digest="0")
    for rule in found:
        try:
            look_at(services, shard, rule, now)
        except StoreError:
            raise
        except Exception as error:
            logger.warning("rule %s: its next run cannot be made: %r", rule.name, error)
            store.fire(shard, rule, ms_of(now + LATER), [])
    if len(names) == store.READ:
        return 0.0
    return math.inf if look_ms < 0 else max(0.0, look_ms / 1000 - now_us / 1e6)

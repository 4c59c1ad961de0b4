"""Computes the next runs of rules, and writes them; any process may, and each slot is written once.

the rules to look at --slots after the last one--> apply_async, which makes entries --> fire.lua
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any
from uuid import UUID, uuid5
from zlib import crc32

from celery.canvas import Signature

from ...core.clock import When, from_ms
from ...core.errors import InvalidOption, NotScheduled, StoreError
from ...core.logs import logger_of
from ...core.scheduling.options import GRACE, KEY, LATE, SKIP, TAGS
from ...core.scheduling.request import Request
from ...core.services import Services
from ...core.store import NewEntry
from ...core.store.keys import shard_of
from ...core.store.shard import Shard
from ...core.tasks.scheduled_task import ScheduledTask
from .. import rule_store as store
from ..rule_store import Run, Stored, ms_of, tag_of
from .rule import Plan, plan_of

AHEAD = timedelta(seconds=60)  # the runs of so long are written, but the next one in any case
MOST = 60  # of these
MOST_MISSED = 100
AGAIN = timedelta(seconds=5)  # until a key that is held is looked at again
LATER = timedelta(seconds=15)  # until a rule is looked at again whose next run cannot be made
SPARED = timedelta(seconds=30)  # so late a run is not missed, as a scanner may have been restarted
SHARE = 10  # a writer takes at once one rule in so many of those to look at
_ORDER = int.from_bytes(os.urandom(4), "big")  # of rules to look at, in this process
HELD, MISSED = "held", "missed"  # why a slot got no run

_LATE = 5  # revisions that may have written what is to be cleared up
_RUNS = UUID("5b0b3f3e-6d0f-4c55-9a0e-9a3a1f0d2c11")  # the namespace of their ids
_TROUBLE = "rule %s: its next run cannot be made: %s"

logger = logger_of(__name__)


def look_at(services: Services, shard: Shard, rule: Stored, now: datetime) -> datetime | None:
    """Write the next runs of a rule, or clear up what it wrote before; return when to look next."""
    if not rule.writes:
        if not rule.is_unclear:
            return None
        store.clear(services, shard, rule, lambda task: _is_own(services, rule, task))
        return now
    plan = plan_of(rule)
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
    is_held = words[-1:] == ["held"] and from_ms(runs[len(words) - 1].due) > now
    if is_held:
        # The key decides when the slot comes, and it may be free before that.
        further = min(now + AGAIN, from_ms(runs[len(words) - 1].due))
        store.fire(shard, rule, ms_of(further), [])
    _tell(services, runs, words[:-1] if is_held else words)
    return further


def _tell(services: Services, runs: Sequence[Run], words: Sequence[str]) -> None:
    done = [(run.entry, run.due) for run, word in zip(runs, words, strict=False) if word == "done"]
    if done:
        services.hooks.scheduled(done)
    for word, why in (("omitted", MISSED), ("held", HELD)):
        if number := words.count(word):
            services.hooks.slots_omitted(number, why)


def _slots(rule: Stored, plan: Plan, now: datetime) -> tuple[list[tuple[datetime, bool]], datetime]:
    """Return the slots to write, each with whether it gets a run; and when to look next."""
    offset = plan.offset(rule.name)
    over = plan.timing.latest(now - offset, MOST_MISSED, rule.last)
    coming = plan.timing.after(max(now - offset, rule.last))
    first = next(coming, None)
    is_ahead = not rule.is_new and rule.last + offset > now  # its next run is written
    wanted = {"none": 0, "one": 1, "all": MOST_MISSED}[plan.missed]
    # A slot whose key was held until just now was not missed.
    since = now - AGAIN if plan.key else now
    slots = [
        (slot, place > len(over) - wanted or slot + offset > since)
        for place, slot in enumerate(over, 1)
    ]
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
    signature = plan.signature_of(services.app)
    options: dict[str, Any] = {
        "task_id": id_of(rule, slot, services.settings.shards),
        TAGS: [*plan.tags, tag_of(rule.name)],
        **_late_policy(plan, signature, slot),
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


def _late_policy(plan: Plan, signature: Signature[Any], slot: datetime) -> dict[str, Any]:
    """Return the options by which a run that was written ahead is left out if it is missed."""
    task = signature.app.tasks.get(signature.task)
    is_own = LATE in signature.options or getattr(task, LATE, None) is not None
    if plan.missed == "all" or is_own:
        return {}
    following = plan.timing.next(slot) if plan.missed == "one" else None
    return {LATE: SKIP, GRACE: max(SPARED, following - slot if following else SPARED)}


def id_of(rule: Stored, slot: datetime, shards: int) -> str:
    """Return the id of a run: the same in each process, and on the shard of the rule.

    So a slot is not written again if Redis stopped the step between its entry and the last slot.
    """
    home = shard_of(rule.row["home"], shards)
    names = (f"{rule.name} {rule.revision} {ms_of(slot)} {number}" for number in count())
    ids = (str(uuid5(_RUNS, name)) for name in names)
    return next(each for each in ids if shard_of(each, shards) == home)


def _is_own(services: Services, rule: Stored, task: ScheduledTask) -> bool:
    """Whether a task came with its rule from a dump, and is due as it was written.

    Then it has the id that a late revision of the rule gave to a run of that time. An edit since
    the load is not noticed.
    """
    if ms_of(task.created) >= rule.brought_ms:
        return False
    try:
        slot = task.due - plan_of(rule).offset(rule.name)
    except ValueError:
        return False
    late = range(rule.revision - _LATE, rule.revision + 1)
    shards = services.settings.shards
    return any(task.id == id_of(replace(rule, revision=each), slot, shards) for each in late)


def write(services: Services, shard: Shard) -> float:
    """Look at the rules of a shard; return after how many seconds to look again.

    Other writers may be at work on the same rules. Each takes some of them, in an order of its own,
    and asks again which are left, so that few are computed twice.
    """
    now_us, look_ms, names = store.ahead(shard)
    is_more, left = len(names) == store.MOST_AHEAD, names
    looks: list[datetime | None] = []
    while left:
        left.sort(key=lambda name: crc32(name, _ORDER))
        some = -(-len(left) // SHARE)
        looks += _looked_at(services, shard, left[:some], from_ms(now_us // 1000))
        del left[:some]
        if left:
            now_us, look_ms, names = store.ahead(shard)
            left = [*{*left} & {*names}]
    if is_more:
        return 0.0
    # Those that were looked at come again, perhaps before all others.
    looks += [from_ms(look_ms)] if look_ms >= 0 else []
    further = min((look for look in looks if look is not None), default=None)
    return math.inf if further is None else max(0.0, ms_of(further) / 1000 - now_us / 1e6)


def _looked_at(
    services: Services, shard: Shard, names: list[bytes], now: datetime
) -> list[datetime | None]:
    found = store.named(shard, names)
    for name in {*names} - {rule.name.encode() for rule in found}:  # no rule, or no longer
        store.change(shard, name, "cleared", "0")
    return [tried(services, shard, rule, now) for rule in found]


def tried(services: Services, shard: Shard, rule: Stored, now: datetime) -> datetime | None:
    """Look at a rule; note it if its next run cannot be made."""
    try:
        return look_at(services, shard, rule, now)
    except StoreError:
        raise
    except Exception as error:
        trouble = str(error) or type(error).__name__
        if trouble != rule.trouble:
            logger.warning(_TROUBLE, rule.name, trouble)
        store.fire(shard, rule, ms_of(now + LATER), [], trouble)
        return now + LATER

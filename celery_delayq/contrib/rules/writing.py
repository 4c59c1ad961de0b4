"""Computes the next runs of rules, and writes them; any process may, and each slot is written once.

the rules to look at --claim--> the slots after the last one --apply_async--> entries --> fire.lua

A claim lapses. If its process is killed, or too slow, another one looks at the rule then: it may
make a run a second time, of which one is written. If a run cannot be made, the process may have
other code than the rule wants: its writer gives up the claim, and other writers try.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any
from uuid import UUID, uuid5

from celery.canvas import Signature

from ...core import clock
from ...core.clock import EPOCH, When, from_ms
from ...core.errors import InvalidOption, NotScheduled, StoreError
from ...core.scheduling.intercept import Request
from ...core.scheduling.options import GRACE, KEY, LATE, SKIP, TAGS
from ...core.services import Services
from ...core.store import NewEntry, State
from ...core.store.calls import Shard
from ...core.store.keys import shard_of
from ...core.tasks.changing import withdraw
from ...core.tasks.reading import get
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.text import logger_of
from .. import rule_store as store
from ..rule_store import Claims, Run, Stored, ms_of, tag_of
from .plan import Plan, has_own_apply_async, plan_of

AHEAD = timedelta(seconds=60)  # the runs of so long are written, but the next one in any case
MOST = 60  # of these
MOST_MISSED = 100
AGAIN = timedelta(seconds=5)  # until a key that is held is looked at again
LATER = timedelta(seconds=15)  # until a rule is looked at again that has no next slot
BACK = timedelta(seconds=30)  # so far ahead Redis's clock may have been; see rules_ahead.lua
SPARED = timedelta(seconds=30)  # so late a run is not missed, as a scanner may have been restarted
# Why a slot got no run.
HELD, MISSED, DECLINED, SKIPPED = "held", "missed", "declined", "skipped"

_LATE = 5  # revisions that may have written what is to be cleared up
_RUNS = UUID("5b0b3f3e-6d0f-4c55-9a0e-9a3a1f0d2c11")  # the namespace of their ids
_TROUBLE = "rule %s: its next run cannot be made by this process: %s"
_UNWRITTEN = "the runs of rules are not written: %s"
_REWOUND = (
    "rule %s: Redis's clock was ahead when the rule wrote its run of %s; it goes on from now, and "
    "may repeat runs"
)

logger = logger_of(__name__)


def look_at(services: Services, shard: Shard, rule: Stored, now: datetime) -> None:
    """Write the next runs of a rule, or clear up what it wrote before."""
    if rule.is_unclear:
        tidy(services, shard, rule)
        return
    if rule.is_paused:  # a resharding put it among those to look at
        store.change(shard, rule.name, "cleared", str(rule.revision))
        return
    plan = plan_of(rule)
    # That time may be older than the row, as this process may have been stopped in between.
    if _is_too_far(rule, plan, now) and _is_too_far(rule, plan, store.now(shard)):
        _rewind(shard, rule)
        return
    slots, further = _slots_of(services, rule, plan, now)
    holder = services.entries.holder(plan.key) if plan.key and slots else None
    offset = rule.offset
    is_over = bool(slots) and slots[0][0] + offset <= now
    is_held = holder is not None and not (is_over and _gives_way(services, rule, plan, holder.id))
    if is_held and slots[-1][0] + offset > now:
        # The key decides when the slot comes, and it may be free before that.
        further = min(now + AGAIN, slots.pop()[0] + offset)
    runs, trouble = _runs(services, rule, plan, slots, now, is_held=is_held)
    words = store.fire(shard, rule, ms_of(further), runs, trouble)
    if words[-1:] == ["held"] and from_ms(runs[len(words) - 1].due) > now:  # since just now
        further = min(now + AGAIN, from_ms(runs[len(words) - 1].due))
        store.fire(shard, rule, ms_of(further), [])
        words.pop()
    _tell(services, runs, words)


def _runs(
    services: Services,
    rule: Stored,
    plan: Plan,
    slots: Iterable[tuple[datetime, bool]],
    now: datetime,
    *,
    is_held: bool,
) -> tuple[list[Run], str]:
    """Make the runs of slots; return them, and what a task's own ``apply_async`` raised."""
    runs, trouble, offset = list[Run](), "", rule.offset
    for slot, is_wanted in slots:
        entry, is_skipped = None, slot in rule.skips
        if is_wanted and not is_held and not is_skipped:
            try:
                entry = entry_of(services, rule, plan, slot, is_ahead=slot + offset > now)
            except StoreError:
                raise
            except Exception as error:
                # A TypeError is of arguments that the task takes in other code, perhaps.
                if isinstance(error, TypeError) or not is_made_when_due(services, plan):
                    raise
                trouble = said(rule, error)
        others = MISSED if not is_wanted else HELD if is_held else DECLINED
        why = SKIPPED if is_skipped else others
        runs.append(Run(ms_of(slot), ms_of(slot + offset), entry, why))
    return runs, trouble


def _rewind(shard: Shard, rule: Stored) -> None:
    if store.change(shard, rule.name, "rewind", str(rule.revision)) == "done":
        logger.warning(_REWOUND, rule.name, rule.last + rule.offset)


def _is_too_far(rule: Stored, plan: Plan, now: datetime) -> bool:
    """Whether there are slots from now on that its last slot passes, as Redis's clock was ahead."""
    offset = rule.offset
    soon = now + BACK - offset
    if rule.last <= soon + AHEAD:
        return False
    following = plan.timing.next(soon)
    return following is None or rule.last > following


def tidy(services: Services, shard: Shard, rule: Stored) -> None:
    """Clear up what a rule wrote before it was changed."""
    store.clear(services, shard, rule, lambda task: _is_own(services, rule, task))


def _tell(services: Services, runs: Sequence[Run], words: Sequence[str]) -> None:
    answered = [*zip(runs, words, strict=False)]
    done = [(run.entry, run.due) for run, word in answered if word == "done"]
    if done:
        services.hooks.scheduled(done)
    left_out = (run.why for run, word in answered if word == "omitted")
    omitted = Counter(why for why in left_out if why in (MISSED, DECLINED, HELD))
    omitted[HELD] += words.count("held")
    for why, number in omitted.items():
        if number:
            services.hooks.slots_omitted(number, why)


def is_made_when_due(services: Services, plan: Plan) -> bool:
    """Whether the runs of a rule are made at their slots, and not ahead.

    What the ``apply_async`` of the task's own does is meant for the moment at which it is sent.
    """
    task = services.app.tasks.get(plan.signature_of(services.app).task)
    return task is not None and has_own_apply_async(task)


def _due_slots(
    rule: Stored, plan: Plan, now: datetime
) -> tuple[list[tuple[datetime, bool]], datetime]:
    """Return the same, of a rule whose runs are made when they are due."""
    offset = rule.offset
    over = plan.timing.latest(now - offset, MOST_MISSED, rule.last)
    wanted = MOST_MISSED if plan.missed == "all" else 1
    since = now - SPARED if plan.missed == "none" else EPOCH
    slots = [
        (slot, place > len(over) - wanted and slot + offset > since)
        for place, slot in enumerate(over, 1)
    ]
    following = plan.timing.next(max(now - offset, rule.last))
    return slots, following + offset if following else now + LATER


def _slots_of(
    services: Services, rule: Stored, plan: Plan, now: datetime
) -> tuple[list[tuple[datetime, bool]], datetime]:
    """Return the slots to write, each with whether it gets a run; and when to look next."""
    return (_due_slots if is_made_when_due(services, plan) else _slots)(rule, plan, now)


def _slots(rule: Stored, plan: Plan, now: datetime) -> tuple[list[tuple[datetime, bool]], datetime]:
    """Return the same, of a rule whose runs are made ahead."""
    offset = rule.offset
    over = plan.timing.latest(now - offset, MOST_MISSED, rule.last)
    coming = plan.timing.after(max(now - offset, rule.last))
    first = next(coming, None)
    is_ahead = not rule.is_new and rule.last + offset > now  # its next run is written
    wanted = {"none": 0, "one": 1, "all": MOST_MISSED}[plan.missed]
    # A slot whose key was held until just now was not missed; but with "one" it gives way.
    since = now - AGAIN if plan.key and plan.missed == "none" else now
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


def entry_of(
    services: Services, rule: Stored, plan: Plan, slot: datetime, *, is_ahead: bool = True
) -> NewEntry | None:
    """Make the entry of a run, as ``apply_async`` makes a message.

    Args:
        services: The app's.
        rule: The rule.
        plan: Its plan.
        slot: The slot.
        is_ahead: Whether the run is not due yet.

    Returns:
        The entry; or ``None`` if the task has an ``apply_async`` of its own, and that made none.

    Raises:
        NotScheduled: there is none, although it has none of its own.
    """
    if services.app.conf.task_always_eager:
        raise InvalidOption("task_always_eager", True, "False, as with it a task runs at once")
    when = When("at", ms_of(slot + rule.offset))
    signature = plan.signature_of(services.app)
    options: dict[str, Any] = {
        "task_id": id_of(rule, slot, services.settings.shards),
        TAGS: [*plan.tags, tag_of(rule.name)],
        **_late_policy(plan, signature, slot, is_ahead=is_ahead),
    }
    if plan.key:
        options[KEY] = plan.key
    request = Request(when, given_out=False, writes=False)
    result = request.sent_by(signature.apply_async, **options)
    ready = request.answer.ready
    if ready is not None:
        return ready.new
    if is_made_when_due(services, plan):
        return None
    request.refuse_sent(result)
    raise NotScheduled(str(getattr(result, "id", "")))


def _late_policy(
    plan: Plan, signature: Signature[Any], slot: datetime, *, is_ahead: bool = True
) -> dict[str, Any]:
    """Return the options by which a run is left out if it is missed.

    Of runs that were written ahead, and that no scanner delivered in time, only the latest one
    goes, as with beat. One that is written after its slot is the latest, however soon the next is.
    """
    task = signature.app.tasks.get(signature.task)
    is_own = LATE in signature.options or getattr(task, LATE, None) is not None
    if plan.missed == "all" or is_own:
        return {}
    following = plan.timing.next(slot)
    # A millisecond less, as the next run goes in its place from then on.
    grace = following - slot - timedelta(milliseconds=1) if following else None
    if plan.missed == "none":
        grace = min(grace or SPARED, SPARED)
    if grace is not None and not is_ahead:
        grace = max(grace, SPARED)
    return {} if grace is None else {LATE: SKIP, GRACE: grace}


def _gives_way(services: Services, rule: Stored, plan: Plan, task_id: str) -> bool:
    """Cancel what holds a rule's key if it is the rule's own run, which its next slot leaves out.

    A scanner would leave it out as well, but perhaps only after that slot lost its run to the key.
    """
    signature = plan.signature_of(services.app)
    is_own = task_id == id_of(rule, rule.last, services.settings.shards)
    if plan.missed != "one" or not is_own or not _late_policy(plan, signature, rule.last):
        return False
    run = get(services.app.delayq, task_id)
    if run is None:
        return True
    is_waiting = run.state is State.SCHEDULED and run.due == rule.last + rule.offset
    return is_waiting and bool(withdraw(services, task_id, if_revision=run.revision))


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
    slot = task.due - rule.offset
    late = range(rule.revision - _LATE, rule.revision + 1)
    shards = services.settings.shards
    return any(task.id == id_of(replace(rule, revision=each), slot, shards) for each in late)


def write_claimed(services: Services, claims: Claims, seconds: float = math.inf) -> None:
    """Write the runs of rules that a writer has claimed, and of others."""
    shards = services.entries.unasked_shards
    for number, held, skipped in claims:
        if number >= len(shards):  # the store has fewer by now, and none of its claims
            continue
        try:
            _write(services, shards[number], held, skipped, seconds)
        except StoreError as error:
            logger.warning(_UNWRITTEN, error)


def _write(
    services: Services, shard: Shard, held: str, skipped: Sequence[bytes], seconds: float
) -> None:
    """Look at the rules of a shard, some at a time, first at those of the claim *held*.

    A rule whose next run cannot be made gets that claim, so that the writer finds it.
    """
    until, left = clock.monotonic() + seconds, [*skipped]
    while (found := store.claim(shard, held, left)).names:
        rules = store.named(shard, found.names)
        for rule in rules:
            try:
                look_at(services, shard, rule, from_ms(found.now_us // 1000))
            except StoreError:
                raise
            except Exception as error:
                store.fire(shard, rule, float(held), [], said(rule, error))
                left.append(rule.name.encode())
        for name in {*found.names} - {rule.name.encode() for rule in rules}:
            store.change(shard, name, "cleared", "0")  # it is no rule, or no longer
        if clock.monotonic() >= until:
            return


def said(rule: Stored, error: Exception) -> str:
    """Return why a rule's run cannot be made; log it, if that is news."""
    trouble = str(error) or type(error).__name__
    if trouble[: store.LONGEST_TROUBLE] != rule.trouble:
        logger.warning(_TROUBLE, rule.name, trouble)
    return trouble

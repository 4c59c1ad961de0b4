"""What clients do: calls that a seed has planned, through the package's own Python."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from celery_delayq import clock
from celery_delayq.clock import When
from celery_delayq.errors import (
    AlreadyScheduled,
    AlreadyTaken,
    DelayQError,
    InFlight,
    StoreUnavailable,
)
from celery_delayq.hooks import Hooks
from celery_delayq.store import Entries, Membership, NewEntry, Receipt
from celery_delayq.store.extras import Extras
from celery_delayq.store.ids import Target, target_of_key, target_of_member
from celery_delayq.store.outcome import Outcome
from celery_delayq.store.record import NewRecord, Template, destination_for, whole
from celery_delayq.store.selecting import Chosen, Place
from tests.simulator.books import Answer, Call, key_of
from tests.simulator.judge import Judge
from tests.simulator.lanes import LANES
from tests.simulator.network import Interrupted
from tests.simulator.server import QUEUE, START_US, name_in
from tests.simulator.world import SECOND, Actor
from tests.store import support

IDS = ("a", "b", "c")
KEYS, TAGS = ("k", "k", "l"), ("red", "blue")
POLICIES = ("", "keep", "replace", "replace", "earliest", "latest", "debounce", "debounce 3000")
KINDS = ("schedule", "schedule", "schedule", "bulk", "cancel", "cancel", "reschedule", "reschedule")
ROUTE = json.dumps(
    {"exchange": "", "routing_key": "mail", "declare": [], "mandatory": True, "list": None}
)
TYPE = '{"content-type": "application/json", "content-encoding": "utf-8", '
LINES = [TYPE + support.LINES[0][1:], *support.LINES[1:]]
WHOLE = TYPE + '"properties": {}, "body": %(body)s, "headers": {"id": "%(id)s", "delayq_due": '


@dataclass(frozen=True)
class Planned:
    """One call that is to be made.

    Attributes:
        pause_s: How long the client waits before it.
        when: For a schedule of several, the time of each.
    """

    name: str
    kind: str
    ids: tuple[str, ...]
    when: When
    relayed: bool = False
    shares: bool = False
    pause_s: float = 0.0
    key: str = ""
    conflict: str = ""
    tags: tuple[str, ...] = ()
    lane: str = ""
    runs_now: bool = False
    grace_ms: int | None = None


def planned(
    dice: random.Random,
    client: int,
    number: int,
    ids: Sequence[str],
    keys: str,
    *,
    pauses: bool,
) -> Planned:
    """The call of this number of a client, of one of some ids, or of two; or of a key.

    Args:
        keys: ``""``, nothing has a key; ``"some"``; ``"one"``, all have the same, and are relayed
            soon, so that some come back; or ``"held"``, all have the same, and wait.
        pauses: Whether some are paused, and may not leave too late.
    """
    kind = dice.choice(KINDS)
    count = min(2, len(ids)) if kind == "bulk" else 1
    soon_ms = dice.choice((0, 500, 2_000, 8_000, 3_600_000)) + dice.randrange(1, 10)
    # Each call has milliseconds of its own, so that a change can be seen.
    at_ms = START_US // 1000 + dice.choice((0, 5, 10, 20, 30, 3600)) * 1000 + client * 100 + number
    when = {
        "at": When("at", at_ms),
        "after": When("after", soon_ms),
        "by": When("by", dice.choice((-1, 1)) * soon_ms),
    }[dice.choice(("by", "by", "at", "after") if kind == "reschedule" else ("at", "after"))]
    pause_s = dice.choice((0, 0, 0.01, 1, 5)) * dice.random()
    relayed, shares = dice.random() < 0.4, dice.random() < 0.7
    chosen = tuple(dice.sample(ids, count))
    one = Planned(f"c{client}.{number}", kind, chosen, when, relayed, shares, pause_s)
    one = _keyed(dice, one, keys) if keys else one
    return _held_up(dice, one) if pauses else one


def _held_up(dice: random.Random, one: Planned) -> Planned:
    if dice.random() < 0.25:
        kind, lane = dice.choice(("pause", "resume")), dice.choice(sorted(LANES))
        return replace(one, kind=kind, ids=(), key="", conflict="", tags=(), lane=lane)
    return replace(one, grace_ms=dice.choice((None, None, 0, 1000, 30_000)))


def _keyed(dice: random.Random, one: Planned, keys: str) -> Planned:
    if keys == "one" and one.kind != "reschedule":
        soon = When("after", dice.choice((0, 0, 500)))
        one = replace(one, kind="schedule", ids=one.ids[:1], when=soon, relayed=True)
    if keys == "held":
        far = When("after", dice.choice((1, 2, 3)) * 1_000_000)
        one = replace(one, when=far, pause_s=one.pause_s / 10)
    key = "k" if keys != "some" else dice.choice(KEYS) if dice.random() < 0.8 else ""
    tags = tuple(tag for tag in TAGS if dice.random() < 0.4)
    if one.kind in ("schedule", "bulk"):
        return replace(one, key=key, conflict=dice.choice(POLICIES), tags=tags)
    if one.kind == "cancel" and dice.random() < 0.2:
        return replace(one, kind="clear", ids=(), tags=(dice.choice(TAGS),))
    if one.kind == "reschedule":
        others = replace(one, kind="edit"), replace(one, kind="release")
        one = dice.choice((one, replace(one, runs_now=True), *others))
    return replace(one, ids=(), key=key) if key and dice.random() < 0.6 else one


class Client:
    """A process that makes calls, one after the other."""

    def __init__(
        self,
        judge: Judge,
        plan: list[Planned],
        scripts: Callable[[Actor], Any],
        membership: Membership,
        *,
        is_calm: bool = False,
    ):
        self._judge = judge
        self._plan = plan
        self._scripts = scripts
        self._membership = membership
        self._is_calm = is_calm

    def run(self, actor: Actor) -> None:
        entries = Entries(self._scripts(actor), self._membership)
        services = SimpleNamespace(entries=entries, hooks=Hooks(), settings=self._membership)
        for one in self._plan:
            actor.sleep(one.pause_s)
            self._make(actor, services, one)

    def _make(self, actor: Actor, services: Any, one: Planned) -> None:
        world = actor.world
        kind = "schedule" if one.kind == "bulk" else one.kind
        timeout_us = round(self._membership.timeout * SECOND)
        if kind in ("clear", "edit", "release"):  # several steps, each with its own time
            timeout_us = 100 * SECOND
        call = Call(
            *(one.name, kind, one.ids, one.key, one.conflict, one.lane),
            *(timeout_us, world.now_us, actor.slept_us),
        )
        actor.begin(call)
        self._judge.began(call)
        when = f"{one.when.mode} {one.when.ms}" if kind in ("schedule", "reschedule") else ""
        by = " (relayed)" * (one.relayed and kind == "schedule")
        under = f" {key_of(one.key)} {one.conflict}" if one.key else f" {one.conflict}"
        world.say(actor.name, f"{one.name}: {kind} {' '.join(one.ids)}{under} {when}{by}")
        if dice := world.decisions.fault("interrupted", one.name):
            call.to_be_interrupted = True
            us = round(
                dice.choice((0.001, 0.01, 1, self._membership.timeout)) * dice.random() * SECOND
            )
            world.later(us, lambda: actor.call is call and actor.interrupt(Interrupted()))
        how, answers = self._outcome(services, one)
        actor.begin(None)
        world.say(actor.name, f"{one.name}: {how} {', '.join(map(str, answers))}")
        self._judge.ended(call, how, answers, world.now_us, actor.slept_us)
        if self._is_calm and how != "answered":
            self._judge.found("unanswered", f"{one.name} is {how}")

    def _outcome(self, services: Any, one: Planned) -> tuple[str, list[Answer]]:
        try:
            return "answered", self._ask(services, one)
        except Interrupted:
            return "interrupted", []
        except StoreUnavailable:
            return "unavailable", []
        except Exception as error:
            self._judge.found("error", f"{one.name} raised {error!r}")
            return "failed", []

    def _ask(self, services: Any, one: Planned) -> list[Answer]:
        entries = services.entries
        if one.lane:
            return [_turn(entries, one)]
        if one.kind == "clear":
            return [Answer("CLEARED", _clear(entries, one.tags[0]))]
        who = one.ids[0] if one.ids else target_of_key(one.key)
        if one.kind in ("edit", "release"):
            return [Answer(_edit(entries, who, one).name)]
        if one.kind == "cancel":
            outcome, _ = entries.cancel(who)
            return [Answer(outcome.name)]
        if one.kind == "reschedule":
            mode = {"mode": "now"} if one.runs_now else {}
            outcome, due_ms = entries.reschedule(who, one.when, **mode)
            return [Answer(outcome.name, due_ms)]
        until = clock.monotonic() + self._membership.timeout
        new, pauses = [new_entry(one, task_id) for task_id in one.ids], [0.2, 0.2, 0.2]
        return [*map(answer_of, entries.schedule(new, owes=2, until=until, pauses=pauses))]


def _turn(entries: Entries, one: Planned) -> Answer:
    if one.kind == "pause":
        entries.pause(LANES[one.lane], "")
        return Answer("PAUSED")
    entries.resume(LANES[one.lane])
    return Answer("RESUMED")


def _clear(entries: Entries, tag: str) -> int:
    """Cancel what has a tag, as a selection does; returns how many that were."""
    chosen, done = Chosen(tag=tag), 0
    for page in entries.sieve.pages(chosen, *entries.sieve.start(), Place()):
        met = [target_of_member(member) for member in page]
        for changes in entries.changes.cancel(met, tells=False, chosen=chosen.text) if met else ():
            done += sum(one.outcome in (Outcome.DONE, Outcome.UNCERTAIN) for one in changes)
    return done


def answer_of(given: Receipt | DelayQError) -> Answer:
    if isinstance(given, Receipt):
        gone = tuple((one.task_id, one.outcome is Outcome.DONE) for one in given.cancelled)
        if given.existed:
            return Answer("KEPT", given.due_ms, given.task_id, gone)
        return Answer("SCHEDULED", given.due_ms, "", gone)
    if isinstance(given, AlreadyTaken):
        return Answer("TAKEN")
    if isinstance(given, InFlight):
        return Answer("IN_FLIGHT")
    if isinstance(given, AlreadyScheduled):
        return Answer("ALREADY_SCHEDULED")
    raise given


def new_entry(one: Planned, task_id: str) -> NewEntry:
    record = _record(one, task_id, f"call:{one.name};")
    record = record.with_extras(Extras(one.key, one.tags, one.grace_ms))
    return NewEntry(task_id, one.when, record, one.conflict)


def _record(one: Planned, task_id: str, text: str) -> NewRecord:
    destination = destination_for("R", ROUTE) if one.relayed else destination_for("L", QUEUE)
    body = json.dumps(text)
    if one.shares:
        differing = ["", "null", "null", '"()"', '"{}"', body]
        return Template.of(LINES).new_record(destination, support.LABELS, differing)
    return whole(destination, support.LABELS, WHOLE % {"id": task_id, "body": body})


def _edit(entries: Entries, who: Target, one: Planned) -> Outcome:
    """Give what is there another message, which tells both calls; as the package does.

    With a release, it goes at once.
    """
    entry = entries.find(who)
    if entry is None:
        return entries.edit(who, None, NewRecord(b"", b"", b""))
    leaves = one.kind == "release"
    shares = one.shares and not leaves  # no two that are released have the same message
    one = replace(one, relayed=entry.record.text[1:2] == b"R", shares=shares)
    text = f"call:{name_in(entry.record.text)};edit:{one.name};"
    made = _record(one, entry.task_id, text)
    if leaves and entry.record.is_released:
        return Outcome.HANDED_OVER  # it is on its way
    if leaves:
        part = who, entry.record, entry.record.released(made)
        return entries.changes.release([part])[0].outcome
    return entries.edit(who, entry.record, entry.record.with_message(made))

"""What clients do: calls that a seed has planned, through the package's own Python."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from celery_delayq.clock import When
from celery_delayq.errors import AlreadyScheduled, DelayQError, StoreUnavailable
from celery_delayq.scheduling.writing import write
from celery_delayq.services import Hooks
from celery_delayq.store import Entries, Membership, NewEntry, Receipt
from celery_delayq.store.record import Template, destination_for, whole
from tests.simulator.books import Answer, Call
from tests.simulator.judge import Judge
from tests.simulator.network import Interrupted
from tests.simulator.server import QUEUE, START_US
from tests.simulator.world import SECOND, Actor
from tests.store import support

IDS = ("a", "b", "c")
KINDS = ("schedule", "schedule", "schedule", "bulk", "cancel", "cancel", "reschedule", "reschedule")
ROUTE = json.dumps(
    {"exchange": "", "routing_key": "mail", "declare": [], "mandatory": True, "list": None}
)
TYPE = '{"content-type": "application/json", "content-encoding": "utf-8", '
LINES = [TYPE + support.LINES[0][1:], *support.LINES[1:]]
WHOLE = TYPE + '"properties": {}, "body": %(body)s, "headers": {"id": "%(id)s", "delayq_due": '
POLICY = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


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


def planned(dice: random.Random, client: int, number: int, ids: Sequence[str]) -> Planned:
    """The call of this number of a client, of one of some ids, or of two."""
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
    return Planned(f"c{client}.{number}", kind, chosen, when, relayed, shares, pause_s)


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
        call = Call(one.name, kind, one.ids, timeout_us, world.now_us, actor.slept_us)
        actor.begin(call)
        self._judge.began(call)
        when = f"{one.when.mode} {one.when.ms}" if kind != "cancel" else ""
        by = " (relayed)" * (one.relayed and kind == "schedule")
        world.say(actor.name, f"{one.name}: {kind} {' '.join(one.ids)} {when}{by}")
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
        if one.kind == "cancel":
            outcome, _ = services.entries.cancel(one.ids[0])
            return [Answer(outcome.name)]
        if one.kind == "reschedule":
            outcome, due_ms = services.entries.reschedule(one.ids[0], one.when)
            return [Answer(outcome.name, due_ms)]
        return [*map(_answer, write(services, [_new(one, task_id) for task_id in one.ids], POLICY))]


def _answer(given: Receipt | DelayQError) -> Answer:
    if isinstance(given, Receipt):
        return Answer("SCHEDULED", given.due_ms)
    if isinstance(given, AlreadyScheduled):
        return Answer("ALREADY_SCHEDULED")
    raise given


def _new(one: Planned, task_id: str) -> NewEntry:
    destination = destination_for("R", ROUTE) if one.relayed else destination_for("L", QUEUE)
    body = json.dumps(f"call:{one.name};")
    if one.shares:
        differing = ["", "null", "null", '"()"', '"{}"', body]
        record = Template.of(LINES).new_record(destination, support.LABELS, differing)
    else:
        record = whole(destination, support.LABELS, WHOLE % {"id": task_id, "body": body})
    return NewEntry(task_id, one.when, record)

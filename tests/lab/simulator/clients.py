"""Clients: they make the calls that a seed has planned, through the package's own Python."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.lab.simulator.books import RULE_KINDS, Answer, Call, RulePlan, key_of
from tests.lab.simulator.driver import LANES, Caller, RuleCaller, Unavailable, When
from tests.lab.simulator.judge import Judge
from tests.lab.simulator.network import Interrupted
from tests.lab.simulator.world import SECOND, START_US, Actor

IDS = ("a", "b", "c")
KEYS, TAGS = ("k", "k", "l"), ("red", "blue")
OF_ITS_OWN = "of its own"  # of IDS each has always the same key, or none
KEYLESS = "c"
POLICIES = ("", "keep", "replace", "replace", "earliest", "latest", "debounce", "debounce 3000")
KINDS = ("schedule", "schedule", "schedule", "bulk", "cancel", "cancel", "reschedule", "reschedule")


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
    hold: str = ""
    keeps: bool = False  # an undo can bring back what it cancels
    rule: str = ""
    plan: RulePlan | None = None
    nth: int | None = None  # it is about the rule's run of this number; its id is seen later


def planned(
    dice: random.Random,
    client: int,
    number: int,
    ids: Sequence[str],
    keys: str,
    *,
    pauses: bool,
    sweeps: bool = False,
    twice: bool = False,
    undoes: bool = False,
) -> Planned:
    """The call of this number of a client, of one of some ids, or of two; or of a key.

    Args:
        keys: ``""``, nothing has a key; ``"some"``; ``"one"``, all have the same, and are relayed
            soon, so that some come back; ``"held"``, all have the same, and wait; or
            ``OF_ITS_OWN``.
        pauses: Whether some are paused, and may not leave too late.
        sweeps: Whether some move all entries that a selection matches.
        twice: Whether a bulk may have an id twice.
        undoes: Whether some bring back what was cancelled.
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
    one = _held_up(dice, one) if pauses else one
    # Last, so that seeds without these stay as they were.
    if sweeps and dice.random() < 0.4:
        return _sweeping(dice, one)
    if twice and len(one.ids) > 1 and dice.random() < 0.7:
        return replace(one, ids=(*one.ids, one.ids[0]))
    if undoes and one.kind == "cancel" and one.ids and dice.random() < 0.5:
        return replace(one, kind="undo", runs_now=dice.random() < 0.5)
    return replace(one, keeps=undoes)


def _sweeping(dice: random.Random, one: Planned) -> Planned:
    tags = dice.choice(((), *((tag,) for tag in TAGS))) if one.tags else ()
    by = When("by", dice.choice((-1, 1)) * (dice.choice((500, 8_000, 3_600_000)) + len(one.name)))
    plain = {"key": "", "conflict": "", "lane": "", "runs_now": False}
    return replace(one, kind="sweep", ids=(), tags=tags, when=by, **plain)


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
    if keys == OF_ITS_OWN:
        one = replace(one, ids=tuple(each for each in one.ids if each != KEYLESS) or one.ids)
        key = "" if KEYLESS in one.ids else "k"
    else:
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
        timeout: float,
        *,
        is_calm: bool = False,
        rules: Callable[[Actor], RuleCaller] | None = None,
        run_of: Callable[[str, int], str] = lambda *_: "",
    ):
        self._rules, self._run_of = rules, run_of
        self._picked = ""  # the last run that it was about
        self._dumped: set[Any] = set()  # the rule as its dump found it
        self._judge = judge
        self._plan = plan
        self._scripts = scripts
        self._timeout = timeout
        self._is_calm = is_calm
        self._stored: str | None = None  # the cursor of the selection under way

    def run(self, actor: Actor) -> None:
        caller = Caller(self._scripts(actor), self._timeout)
        self._about_rules = self._rules(actor) if self._rules else None
        for given in self._plan:
            actor.sleep(given.pause_s)
            one = given if given.nth is None else self._about_run(given)
            if one is None:
                continue
            call = self._make(actor, caller, one)
            if one.kind == "sweep" and call.how != "answered":
                # Another one continues from the last stored cursor.
                self._make(actor, caller, replace(one, name=f"{one.name}b"), call)

    def _about_run(self, one: Planned) -> Planned | None:
        """The same about a run that is there, or about the last one; ``None`` if there is none."""
        if one.kind != "undo":
            self._picked = self._run_of(one.rule, one.nth)
        return replace(one, ids=(self._picked,)) if self._picked else None

    def _make(self, actor: Actor, caller: Caller, one: Planned, before: Call | None = None) -> Call:
        world = actor.world
        kind = "schedule" if one.kind == "bulk" else one.kind
        timeout_us = round(self._timeout * SECOND)
        if kind in (*RULE_KINDS, "clear", "edit", "release", "sweep", "undo"):
            timeout_us = 100 * SECOND  # several steps, each with its own time
        call = Call(
            *(one.name, kind, one.ids, one.key, one.conflict, one.lane),
            *(timeout_us, world.now_us, actor.slept_us),
        )
        call.hurries = one.runs_now
        if kind in RULE_KINDS:
            call.rule, call.plan = one.rule, one.plan.name if one.plan else ""
            call.dumped = self._dumped
        if before is None:
            self._stored = None
        else:
            call.told |= before.told
        actor.begin(call)
        self._judge.began(call)
        when = (
            f"{one.when.mode} {one.when.ms}" if kind in ("schedule", "reschedule", "sweep") else ""
        )
        by = " (relayed)" * (one.relayed and kind == "schedule")
        under = f" {key_of(one.key)} {one.conflict}" if one.key else f" {one.conflict}"
        if call.rule:
            under = f"{call.rule} {one.plan or ''}"
        world.say(actor.name, f"{one.name}: {kind} {' '.join(one.ids)}{under} {when}{by}")
        if dice := world.decisions.fault("interrupted", one.name):
            call.to_be_interrupted = True
            us = round(dice.choice((0.001, 0.01, 1, self._timeout)) * dice.random() * SECOND)
            world.later(us, lambda: actor.call is call and actor.interrupt(Interrupted()))
        how, answers = self._outcome(actor, caller, one)
        if (kind, how) == ("dump", "answered"):
            self._dumped = call.rules_seen
        actor.begin(None)
        world.say(actor.name, f"{one.name}: {how} {', '.join(map(str, answers))}")
        self._judge.ended(call, how, answers, world.now_us, actor.slept_us)
        if self._is_calm and how != "answered":
            self._judge.found("unanswered", f"{one.name} is {how}")
        return call

    def _outcome(self, actor: Actor, caller: Caller, one: Planned) -> tuple[str, list[Answer]]:
        try:
            if one.kind == "sweep":
                return "answered", [Answer("SWEPT", self._sweep(actor, caller, one))]
            if one.kind in RULE_KINDS:
                return "answered", [self._about_rules.make(one)]
            return "answered", caller.make(one)
        except Interrupted:
            return "interrupted", []
        except Unavailable:
            return "unavailable", []
        except Exception as error:
            self._judge.found("error", f"{one.name} raised {error!r}")
            return "failed", []

    def _sweep(self, actor: Actor, caller: Caller, one: Planned) -> int:
        """Move many, and store the cursor after each step of progress."""
        world, call = actor.world, actor.call

        def told(count: int, cursor: str) -> None:
            self._judge.told(call, count)
            self._stored = cursor
            world.say(actor.name, f"{one.name}: {count} so far, and stores the cursor")
            if world.decisions.fault("interrupted", actor.step()):
                world.say(actor.name, f"{one.name}: is killed")
                raise Interrupted

        return caller.sweep(one, self._stored, told)

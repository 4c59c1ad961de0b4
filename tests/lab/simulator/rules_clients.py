"""Clients of recurring rules, and the writers of their runs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.lab.simulator.books import Call, RulePlan
from tests.lab.simulator.clients import Planned
from tests.lab.simulator.driver import RuleCaller, Unavailable, When
from tests.lab.simulator.judge import Judge
from tests.lab.simulator.world import SECOND, Actor

INTERVALS = (4, 7, 20)  # seconds
HOLD_S = 15
# The calls about a rule that its client believes to be so, and how it is then.
AFTER = {"every": "set", "every pause": "paused", "every resume": "set", "every remove": "gone"}
MOVES = {
    "gone": ("every",),
    "set": ("every", "every", "every pause", "every pause", "every remove"),
    "paused": ("every", "every resume", "every resume", "every resume", "every remove"),
}
OF_A_RUN = ("cancel", "cancel", "undo", "reschedule", "run now", "edit", "release")
# Of an operator. If a command fails, the next one is its repetition.
COPIES = ("dump", "dump", "every remove", "load", "load", "dump", "every remove", "load", "load")
STEPS = 100 * SECOND  # for a call of several steps, each with its own time


def planned_rules(dice: random.Random, *, keys: Sequence[str], holds: bool) -> list[RulePlan]:
    """Some forms of one rule, of which two come more often than others."""
    forms = [
        RulePlan(
            *(f"form{letter}", dice.choice(INTERVALS), dice.choice(("one", "none", "all"))),
            jitter=dice.choice((0, 0, 3)),
            key=dice.choice(keys),
            hold_s=HOLD_S if holds else 0,
        )
        for letter in "abc"
    ]
    # The hold of a key belongs to a key.
    return [one if one.key else replace(one, hold_s=0) for one in forms]


def planned_about_rules(
    dice: random.Random, client: int, numbers: Sequence[int], forms: dict[str, list[RulePlan]]
) -> list[Planned]:
    """The calls of a client, about rules and their runs; another one may say otherwise."""
    believed, plan = dict.fromkeys(forms, "gone"), []
    for number in numbers:
        rule = dice.choice(sorted(forms))
        if believed[rule] != "gone" and dice.random() < 0.35:
            plan.append(_about_run(dice, f"c{client}.{number}", rule))
            continue
        kind = dice.choice(MOVES[believed[rule]] if dice.random() < 0.85 else sorted(AFTER))
        believed[rule] = AFTER[kind]
        one = Planned(f"c{client}.{number}", kind, (), When("at", 0), rule=rule)
        form = dice.choice(forms[rule]) if kind == "every" else None
        plan.append(replace(one, plan=form, pause_s=_pause(dice)))
    return plan


def planned_loads(dice: random.Random, client: int, rules: Sequence[str]) -> list[Planned]:
    """The calls of an operator, who dumps a rule and loads it; others set it anew meanwhile."""
    rule = dice.choice(rules)
    return [
        Planned(
            *(f"c{client}.{number}", kind, (), When("at", 0)),
            pause_s=dice.choice((1, 5, 12)) * dice.random(),
            rule=rule,
        )
        for number, kind in enumerate(COPIES, 1)
    ]


def _about_run(dice: random.Random, name: str, rule: str) -> Planned:
    kind = dice.choice(OF_A_RUN)
    # Each call has milliseconds of its own, so that a change can be seen.
    by_ms = dice.choice((500, 8_000, 3_600_000)) + int(name[1:].replace(".", ""))
    when, pause_s = When("by", dice.choice((-1, 1)) * by_ms), _pause(dice)
    one = Planned(name, kind, (), when, pause_s=pause_s, rule=rule, keeps=True)
    one = replace(one, nth=dice.randrange(3))
    return replace(one, kind="reschedule", runs_now=True) if kind == "run now" else one


def _pause(dice: random.Random) -> float:
    return dice.choice((0, 0.01, 1, 5, 12)) * dice.random()


class RuleWriter:
    """A process that writes runs ahead; it may die after any request that it sends."""

    def __init__(self, judge: Judge, rules: Callable[[Actor], RuleCaller]):
        self._judge = judge
        self._rules = rules

    def run(self, actor: Actor) -> None:
        """Look at the rules until the world ends."""
        rules, number = self._rules(actor), 0
        while True:
            number += 1
            actor.sleep(self._look(actor, rules, f"{actor.name}.{number}"))

    def _look(self, actor: Actor, rules: RuleCaller, name: str) -> float:
        now_us = actor.world.now_us
        call = Call(name, "write", (), "", "", "", STEPS, now_us, actor.slept_us)
        actor.begin(call)
        self._judge.began(call)
        try:
            rest, how = rules.look(), "answered"
        except Unavailable:
            rest, how = 0.1, "unavailable"
        actor.begin(None)
        self._judge.ended(call, how, [], actor.world.now_us, actor.slept_us)
        return rest

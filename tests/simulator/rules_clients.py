"""Clients of recurring rules, and the writers of their runs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulator.books import Call, RulePlan
from tests.simulator.clients import Planned
from tests.simulator.driver import RuleCaller, Unavailable, When
from tests.simulator.judge import Judge
from tests.simulator.world import SECOND, Actor

RULES = ("x", "y")
INTERVALS = (4, 7, 20)  # seconds
HOLD_S = 15
# Of a rule, or of its run with this number.
OF_A_RULE = ("every", "every", "every pause", "every resume", "every remove")
OF_A_RUN = ("cancel", "cancel", "undo", "reschedule", "run now", "edit", "release")
STEPS = 100 * SECOND  # for a call of several steps, each with its own time


def planned_rules(dice: random.Random, *, keys: Sequence[str], holds: bool) -> list[RulePlan]:
    """Some forms of one rule, of which two are said more often than others."""
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


def planned_about_rule(
    dice: random.Random, client: int, number: int, forms: dict[str, list[RulePlan]]
) -> Planned:
    """The call of this number of a client, about a rule or one of its runs."""
    rule = dice.choice(sorted(forms))
    kind = "every" if number == 1 else dice.choice(dice.choice((OF_A_RULE, OF_A_RULE, OF_A_RUN)))
    by_ms = dice.choice((-1, 1)) * (dice.choice((500, 8_000, 3_600_000)) + client * 100 + number)
    pause_s = dice.choice((0, 0.01, 1, 5, 12)) * dice.random()
    one = Planned(f"c{client}.{number}", kind, (), When("by", by_ms), pause_s=pause_s, rule=rule)
    if kind in OF_A_RUN:
        one = replace(one, nth=dice.randrange(3), keeps=True, runs_now=kind == "run now")
        return replace(one, kind="reschedule" if one.runs_now else kind)
    return replace(one, plan=dice.choice(forms[rule]) if kind == "every" else None)


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

"""The recurring rules of a history: the clients that set them, and the writers of their runs."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.lab.simulator.clients import Client, Planned
from tests.lab.simulator.driver import RuleCaller, When, rule_caller
from tests.lab.simulator.judge import Judge
from tests.lab.simulator.rules_clients import (
    RuleWriter,
    planned_about_rules,
    planned_loads,
    planned_rules,
)
from tests.lab.simulator.sight import Sight
from tests.lab.simulator.world import SECOND, Actor, World

RULES = ("x", "y")
CLIENTS, OPERATOR, WRITERS = (3, 4), 10, 2


class Rules:
    """The rules of one world, if it has any.

    Args:
        world, judge: They see each step.
        scripts: Makes a process's own.
        sight: The present contents of the store.
        timeouts: Of calls, in seconds.
        drift: By how much clocks differ at most.
        dice: Say how many rules there are, and whether scanners publish their runs.
    """

    def __init__(
        self,
        world: World,
        judge: Judge,
        scripts: Callable[[Actor], Any],
        sight: Callable[[], Sight],
        *,
        timeouts: Sequence[float],
        drift: float,
        dice: random.Random,
    ):
        self._world, self._judge, self._scripts, self._sight = world, judge, scripts, sight
        self._timeouts, self._drift = timeouts, drift
        self._names = RULES[: dice.randint(1, len(RULES))]
        self._relays = dice.random() < 0.5
        self._writers = 0

    def start(
        self, calls: int, key_sets: Sequence[Sequence[str]], *, holds: bool, loads: bool
    ) -> None:
        """Start clients that make so many calls, and writers.

        Args:
            calls: Of each client.
            key_sets: One of these has the keys of a rule's forms.
            holds: Whether keys are held until runs have finished.
            loads: Whether an operator dumps rules, and loads them later.
        """
        decisions = self._world.decisions
        dice = decisions.dice("forms of rules")
        forms = {
            name: planned_rules(dice, keys=dice.choice(key_sets), holds=holds)
            for name in self._names
        }
        for number in CLIENTS:
            dice = decisions.dice(f"plan {number}")
            plan = planned_about_rules(dice, number, range(1, calls + 1), forms)
            plan = [one for one in plan if decisions.takes(one.name)]
            self._start_client(number, plan, dice.choice(self._timeouts))
        if loads:
            dice = decisions.dice("plan of loads")
            plan = planned_loads(dice, OPERATOR, self._names)
            plan = [one for one in plan if decisions.takes(one.name)]
            self._start_client(OPERATOR, plan, dice.choice(self._timeouts))
        for _ in range(WRITERS):
            self._start_writer()

    def _start_client(self, number: int, plan: list[Planned], timeout: float) -> None:
        client = Client(
            *(self._judge, plan, self._scripts, timeout),
            rules=partial(self.caller, timeout),
            run_of=self._run_of,
        )
        Actor(self._world, f"c{number}", self._drift, client.run)

    def caller(self, timeout: float, actor: Actor) -> RuleCaller:
        """A process's own rules."""
        return rule_caller(self._scripts(actor), timeout, self._relays)

    def removals(self, client: str) -> list[Planned]:
        """The calls of a client that removes each rule."""
        now, names = When("at", 0), enumerate(self._names, 1)
        return [Planned(f"{client}.{n}", "every remove", (), now, rule=one) for n, one in names]

    def _run_of(self, rule: str, number: int) -> str:
        """The id of one of the runs of a rule that wait, the first ones first."""
        views, tag = self._sight().views, f"every:{rule}"
        runs = sorted((one.due_ms, task_id) for task_id, one in views.items() if tag in one.tags)
        return runs[number % len(runs)][1] if runs else ""

    def _start_writer(self) -> None:
        self._writers += 1
        name = f"x{self._writers}"
        timeout = self._world.decisions.dice(f"{name} timeout").choice(self._timeouts)
        writer = RuleWriter(self._judge, partial(self.caller, timeout))
        actor = Actor(self._world, name, self._drift, writer.run)

        def bury() -> None:
            self._judge.ended(actor.call, "interrupted", [], self._world.now_us, actor.slept_us)
            self._world.later(SECOND, self._start_writer)

        actor.on_death = bury

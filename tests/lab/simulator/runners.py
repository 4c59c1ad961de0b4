"""Workers with one run each: they send words about its key, and may schedule its own id."""

import random
from collections.abc import Callable
from typing import Any

from tests.lab.simulator.books import Answer, Call
from tests.lab.simulator.clients import POLICIES, Planned
from tests.lab.simulator.driver import Caller, Unavailable, When, say
from tests.lab.simulator.runs import Run, Runs
from tests.lab.simulator.world import SECOND, Actor

AGAIN = 1.0  # seconds after which a worker repeats a word
RETRIED = 0.3  # the share of runs under a lease that run again


class Runner:
    """A worker with one run: it says how it goes, as the package's own does.

    With *follows*, some schedule their own id: for another task, or as a retry.
    """

    def __init__(
        self,
        runs: Runs,
        run: Run,
        scripts: Callable[[Actor], Any],
        timeout: float,
        *,
        follows: bool,
    ):
        self._runs = runs
        self._run = run
        self._scripts = scripts
        self._timeout = timeout
        self._follows = follows

    def run(self, actor: Actor) -> None:
        world, dice, run = actor.world, actor.dice, self._run
        self._actor, self._mine = actor, self._scripts(actor)
        actor.sleep(dice.choice((0, 0, 0.2, 5)))
        self._may_die()
        world.say(actor.name, f"runs {run.hold.id}")
        self._runs.began(run)
        own = world.decisions.dice(f"{run.name} lease")
        lease_ms = run.hold.ms // 4 if own.random() < world.decisions.leases else 0
        self._say(lease_ms or run.hold.ms, lease=bool(lease_ms))
        seconds = dice.choice((0.05, 1, 4, 25))
        actor.sleep(seconds / 2 if lease_ms else seconds)
        if lease_ms:
            self._say(lease_ms, lease=True)
            actor.sleep(seconds / 2)
        self._may_die()
        goes_on = self._follows and self._follow(world.decisions.dice(f"{run.name} next"))
        run.is_active = False
        world.say(actor.name, f"has run {run.hold.id}")
        # Of a retry that Celery sends by itself, the simulator sees no more than this word.
        is_retried = bool(lease_ms) and own.random() < RETRIED
        self._say(run.hold.ms if goes_on or is_retried else 0)
        if goes_on or is_retried:
            return
        if dice.random() < 0.3:
            actor.sleep(dice.choice((1, 10, 30)))
            self._say(0)

    def _follow(self, dice: random.Random) -> bool:
        """Perhaps schedule its own id; return whether it goes on as that."""
        actor, run, world = self._actor, self._run, self._actor.world
        if world.decisions.calm or dice.random() < 0.5:
            return False
        goes_on = dice.random() < 0.4
        policy = "" if goes_on else dice.choice(POLICIES)
        when = When("after", dice.choice((0, 0, 500, 8_000)) + dice.randrange(1, 10))
        plan = Planned(
            *(f"{run.name}.next", "schedule", (run.hold.id,), when),
            *(dice.random() < 0.4, dice.random() < 0.7),
            key=run.hold.key,
            conflict=policy,
            hold=f"f{run.hold.ms}",
        )
        if not world.decisions.takes(plan.name):
            return False
        run.is_active = not goes_on
        call = Call(
            *(plan.name, plan.kind, plan.ids, plan.key, policy, ""),
            *(round(self._timeout * SECOND), world.now_us, actor.slept_us),
            run_of=run.hold.id,
            goes_on=goes_on,
            delivery=run.hold.delivery,
        )
        answers = self._made(call, plan)
        return goes_on and [one.word for one in answers] == ["SCHEDULED"]

    def _made(self, call: Call, plan: Planned) -> list[Answer]:
        """Make a call; return its answers, none if there is no answer."""
        actor, judge, how = self._actor, self._runs.judge, "answered"
        actor.begin(call)
        judge.began(call)
        what = "goes on" if call.goes_on else f"is followed by its own id {plan.conflict}"
        actor.world.say(actor.name, f"{plan.name}: {what}, {plan.when.mode} {plan.when.ms}")
        answers: list[Answer] = []
        try:
            answers = Caller(self._mine, self._timeout).follow(
                plan, self._run.hold, goes_on=call.goes_on
            )
        except Unavailable:
            how = "unavailable"
        actor.begin(None)
        actor.world.say(actor.name, f"{plan.name}: {how} {', '.join(map(str, answers))}")
        judge.ended(call, how, answers, actor.world.now_us, actor.slept_us)
        return answers

    def _say(self, ms: int, *, lease: bool = False) -> None:
        while True:
            try:
                say(self._mine, self._run.hold, ms, self._timeout, lease=lease)
            except Unavailable:
                self._actor.sleep(AGAIN)
                self._may_die()
            else:
                self._run.has_ended = not ms
                return

    def _may_die(self) -> None:
        if self._actor.world.decisions.fault("dead", self._actor.step()):
            self._actor.world.say(self._actor.name, "dies")
            self._run.is_active = False
            self._actor.die()

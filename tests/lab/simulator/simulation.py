"""One seed, from its first request to the books at the end."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.lab.simulator.books import Finding
from tests.lab.simulator.broker import Broker
from tests.lab.simulator.clients import IDS, KEYLESS, OF_ITS_OWN, Client, Planned, planned
from tests.lab.simulator.decisions import Decisions
from tests.lab.simulator.driver import LANES, Unavailable, When, Wire, has_run, reshard
from tests.lab.simulator.inbox import Inbox
from tests.lab.simulator.judge import Judge
from tests.lab.simulator.network import TIMEOUT, Network, Request
from tests.lab.simulator.patches import owned
from tests.lab.simulator.rules_world import Rules
from tests.lab.simulator.runners import Runner
from tests.lab.simulator.runs import Run
from tests.lab.simulator.sabotage import FOUND, FOUND_OVER_THREE, NONE, Sabotage
from tests.lab.simulator.scanners import SAFETY_INTERVAL, run_scanner
from tests.lab.simulator.server import Lab, Server
from tests.lab.simulator.sight import describe
from tests.lab.simulator.words import Ear, Words
from tests.lab.simulator.workers import Worker, planned_message
from tests.lab.simulator.world import SECOND, Actor, World

CLIENTS, CALLS, SCANNERS = 2, 6, 2
WORKERS, MESSAGES = 2, 5
TIMEOUTS = (0.5, 2.0, 5.0)  # seconds
DRIFT = 0.0002  # how much faster or slower than true time a clock is, at most
# How far Redis's clock is set back: further than anything is late, or by less. Then a request can
# take effect after its caller has given up, which the judge knows.
SET_BACK_S, BY_LESS_S = (60, 120), (0.05, 12)
# Whether messages have names of their own. Without names, the time of receipt tells them apart, by
# Redis's clock; so that clock is not set then.
RECURRING = 0.25  # the share of histories that have recurring rules
RESHARDED = 0.4  # and of these, those whose store is moved to another number of shards
LOADED = 0.4  # and those whose rules an operator dumps and loads
NAMES, NO_NAMES = MESSAGES_HAVE = "names", "no names"
CALM_US = 45 * SECOND  # when faults end; calls have ended as a rule
PROMPT_AFTER_MS = 12_000  # from then on direct entries leave within a safety interval
DRAINED_US = 120 * SECOND  # by then late requests, sleeps and leases are over
PROBED_US = DRAINED_US + 20 * SECOND
HOLD = "f15000"  # until the run has finished, 15 s at most
REFUSED_US = 300 * SECOND  # the longest wait of a message that the broker refused


@dataclass(frozen=True)
class Result:
    """The outcome of a seed: the finding, if there is one, and the history that led to it."""

    seed: int
    finding: Finding | None
    history: list[str]
    taken: list[str]
    requests: int
    shards: int
    rules: bool


class Simulation:
    """The world of one seed, made anew for each run."""

    def __init__(
        self,
        lab: Lab,
        seed: int,
        without: frozenset[str],
        sabotage: Sabotage,
        shards: int,
        *,
        rules: bool,
    ):
        self.world = World(Decisions(seed, without, sabotage.rates))
        self._is_moving = False  # to another number of shards
        self._lab, self._sabotage = lab, sabotage
        # The fewer there are, the more calls share one.
        self._ids = IDS[: self.world.decisions.dice("ids").randint(1, len(IDS))]
        keys = self.world.decisions.dice("keys").choice(("", "", "some", "one", "held"))
        self._keys = sabotage.keys or keys
        self._pauses = sabotage.pauses or self.world.decisions.dice("pauses").random() < 0.3
        # Some worlds lack each of these, as do the seeds that found something before these existed.
        self._sweeps = sabotage.sweeps or self.world.decisions.dice("sweeps").random() < 0.3
        self._holds = sabotage.holds or self.world.decisions.dice("holds").random() < 0.3
        self._follows = self.world.decisions.dice("follows").random() < 0.5
        self._undoes = sabotage.undoes or self.world.decisions.dice("undoes").random() < 0.5
        self._twice = self.world.decisions.dice("ids twice").random() < 0.3
        self._runs_near = sabotage.near or self.world.decisions.dice("nearness").random() < 0.5
        is_loaded = sabotage is NONE and self.world.decisions.dice("loads").random() < LOADED
        self._loads = sabotage.loads or is_loaded
        by_less = self.world.decisions.dice("how far back").random() < 0.25
        self._set_back_s = BY_LESS_S if by_less else SET_BACK_S
        self._judge = Judge(self._found, round(SAFETY_INTERVAL * 1000))
        self._rules, self._then = self._new_rules(seed, always=rules), shards
        if self._rules:
            self._then = self._number_after(shards)
            self._is_moving = self._then != shards
        if max(shards, self._then) > 1:
            # A pause reaches the shards one after the other, which the judge does not know.
            self._ids, self._keys, self._pauses = IDS, OF_ITS_OWN, False
        if self._is_moving:
            # A cursor of before is refused, and no undo is kept; messages have their own marks.
            self._sweeps = self._undoes = False
        # A resharding waits for the end of each lease, by Redis's clock.
        self._goes_back = not self._is_moving
        self._server = Server(self.world, lab, drift=DRIFT, shards=shards, then=self._then)
        self._judge.is_behind_since = self._server.is_behind_since
        self._judge.owed_apart = self._server.owed_apart
        self._judge.is_earlier = self._server.is_earlier
        self._judge.now_us = lambda: self.world.now_us
        self._judge.has_forgotten = self._server.has_forgotten
        self._network = Network(self.world, self._serve)
        self._broker = Broker(self.world, self._judge)
        self._words = Words(self.world, lab)
        self._inbox = self._new_inbox()
        self._judge.taken.messages = self._inbox.messages
        self._judge.runs.start = self._start_run
        self._requests = self._scanners = self._workers = self._operators = 0

    def run(self) -> int:
        """Returns how many requests were served."""
        for client in range(1, CLIENTS + 1):
            if self.world.decisions.takes(f"client c{client}"):
                self._start_client(client)
        if self._rules:
            # A key says the shard of a rule, and no rule here goes from one shard to another.
            key_sets = (("",), ("k",)) if self._keys == OF_ITS_OWN else (("", "", "k"),)
            self._rules.start(CALLS, key_sets, holds=self._holds, loads=self._loads)
        for _ in range(SCANNERS):
            self._start_scanner()
        for _ in range(WORKERS if self._inbox.messages else 0):
            self._start_worker()
        if self._is_moving:
            self._start_reshard()
        self.world.run(CALM_US)
        self.world.decisions.calm = True
        while self._is_moving and self.world.finding is None:
            self.world.run(self.world.now_us + SECOND)
        self._judge.prompt_from_ms = self._server.now_ms + PROMPT_AFTER_MS
        self._start_scanner()
        self._start_resumer("c7")
        self._start_probe("c8", "reschedule")
        self.world.run(DRAINED_US)
        self._judge.recurring.settled(self._server.sight, self._server.now_ms)
        if self._rules:
            self._start_calm("c5", self._rules.removals("c5"), partial(self._rules.caller, 0.5))
        self._start_resumer("c6")
        self._start_probe("c9", "cancel")
        self.world.run(PROBED_US)
        self._drain()
        return self._requests

    def _start_client(self, number: int) -> None:
        dice, decisions = self.world.decisions.dice(f"plan {number}"), self.world.decisions
        numbers = range(1, CALLS + 1)
        plan = [
            planned(
                *(dice, number, each, self._ids, self._keys),
                pauses=self._pauses,
                sweeps=self._sweeps,
                twice=self._twice,
                undoes=self._undoes,
            )
            for each in numbers
        ]
        plan = [one for one in plan if decisions.takes(one.name)]
        if self._holds:
            plan = [replace(one, hold=HOLD) for one in plan]
        client = Client(self._judge, plan, self._scripts, dice.choice(TIMEOUTS))
        Actor(self.world, f"c{number}", DRIFT, client.run)

    def _new_rules(self, seed: int, *, always: bool) -> Rules | None:
        dice = self.world.decisions.dice("rules")
        # These found something before there were rules.
        is_old = seed in (*FOUND, *FOUND_OVER_THREE) or self._sabotage is not NONE
        is_spared = is_old or dice.random() >= RECURRING
        if is_spared and not (always or self._sabotage.recurs):
            return None
        return Rules(
            *(self.world, self._judge, self._scripts, lambda: self._server.sight),
            timeouts=TIMEOUTS,
            drift=DRIFT,
            dice=dice,
        )

    def _number_after(self, shards: int) -> int:
        """The number of shards that the store is moved to, or the same."""
        dice, is_fixed = self.world.decisions.dice("reshard"), self._sabotage is not NONE
        if not self._sabotage.reshards and (is_fixed or dice.random() >= RESHARDED):
            return shards
        return dice.choice([number for number in (1, 2, 3) if number != shards])

    def _start_reshard(self) -> None:
        self._operators += 1
        actor = Actor(self.world, f"o{self._operators}", DRIFT, self._reshard)
        actor.on_death = lambda: self.world.later(SECOND, self._start_reshard)

    def _reshard(self, actor: Actor) -> None:
        if self._operators == 1:
            actor.sleep(actor.dice.uniform(0, 20))
        self.world.say(actor.name, f"moves the store to {self._then} shards")
        while True:
            try:
                reshard(self._scripts(actor), self._then)
                break
            except Unavailable:
                actor.sleep(0.5)
        self.world.say(actor.name, f"the store has {self._then} shards")
        self._is_moving = False

    def _start_probe(self, name: str, kind: str) -> None:
        """When nothing fails any more, a call gets an answer, whatever happened before."""
        later = When("by", 1)
        plan = [Planned(f"{name}.{n}", kind, (one,), later) for n, one in enumerate(IDS, 1)]
        self._start_calm(name, plan)

    def _start_resumer(self, name: str) -> None:
        if self._pauses:
            now, lanes = When("at", 0), enumerate(sorted(LANES), 1)
            self._start_calm(
                name, [Planned(f"{name}.{n}", "resume", (), now, lane=lane) for n, lane in lanes]
            )

    def _start_calm(
        self, name: str, plan: list[Planned], rules: Callable[[Actor], Any] | None = None
    ) -> None:
        client = Client(
            *(self._judge, plan, self._scripts, TIMEOUTS[0]),
            is_calm=True,
            rules=rules,
        )
        Actor(self.world, name, DRIFT, client.run)

    def _new_inbox(self) -> Inbox:
        decisions = self.world.decisions
        if self._is_moving:
            self._clock_is_set = True
            return Inbox(self.world, [])
        names = self._sabotage.messages or decisions.dice("inbox").choice(("", "", *MESSAGES_HAVE))
        self._clock_is_set = names != NO_NAMES
        numbers = [n for n in range(1, MESSAGES + 1) if names and decisions.takes(f"m{n}")]
        # A message has no key, so its id is none that has one.
        ids = (KEYLESS,) if self._keys == OF_ITS_OWN else self._ids
        return Inbox(
            self.world,
            [
                planned_message(
                    *(decisions.dice(f"m{n}"), n, ids),
                    has_name=names != NO_NAMES,
                    near=self._runs_near,
                )
                for n in numbers
            ],
        )

    def _start_worker(self) -> None:
        self._workers += 1
        name = f"w{self._workers}"
        timeout = self.world.decisions.dice(f"{name} timeout").choice(TIMEOUTS)
        worker = Worker(
            *(self._judge, self._inbox, self._scripts, timeout),
            acks_first=self._sabotage.acks_first,
            runs_near=self._runs_near,
        )
        actor = Actor(self.world, name, DRIFT, worker.run)

        def bury() -> None:
            if actor.call:
                self._judge.ended(actor.call, "interrupted", [], self.world.now_us, actor.slept_us)
            self._inbox.lose(name)
            self.world.later(SECOND, self._start_worker)

        actor.on_death = bury

    def _start_run(self, run: Run) -> None:
        dice = self.world.decisions.dice(f"{run.name} timeout")
        runner = Runner(
            *(self._judge.runs, run, self._scripts, dice.choice(TIMEOUTS)), follows=self._follows
        )
        Actor(self.world, run.name, DRIFT, runner.run)

    def _start_scanner(self) -> None:
        self._scanners += 1
        Actor(self.world, f"s{self._scanners}", DRIFT, self._scan)

    def _scan(self, actor: Actor) -> None:
        ear = Ear(actor, self._words)

        def bury() -> None:
            ear.has_died()
            self.world.later(SECOND, self._start_scanner)

        actor.on_death = bury
        run_scanner(actor, self._scripts(actor), self._broker, ear)

    def _scripts(self, actor: Actor) -> Any:
        return self._lab.inside.scripts(Wire(self._network, actor, TIMEOUT), self._sabotage.cut)

    def _drain(self) -> None:
        """The end: all due entries have left, and the others are still there."""
        if self._judge.waits_due(self._server.sight, self._server.now_ms):
            self.world.run(PROBED_US + REFUSED_US)
        if self.world.finding is None:
            self._judge.drained(self._server.sight, self._server.now_ms, self._server.findings())

    def _serve(self, request: Request) -> Any:
        self._requests += 1
        self._spoil(f"{request.where} {request.step}")
        before = self._server.sight
        reply = self._server.run(request)
        after = self._server.sight
        changes = describe(before, after)
        if changes or (request.call and request.call.tell_no_change()):
            self.world.say("redis", f"{request.where} {request.step}: {changes or 'no change'}")
        if has_run(reply):
            self._judge.ran(request, before, after, self._server.now_ms)
        self._words.carry()
        return reply

    def _spoil(self, where: str) -> None:
        if self._clock_is_set and (dice := self.world.decisions.fault("clock forward", where)):
            self._server.step_clock(round(dice.choice((0.01, 1, 10, 100)) * dice.random() * SECOND))
        if self.world.decisions.fault("scripts forgotten", where):
            self._server.forget_scripts()
        is_set = self._clock_is_set and self._goes_back
        if is_set and (dice := self.world.decisions.fault("clock back", where)):
            self._server.step_clock(-round(dice.uniform(*self._set_back_s) * SECOND))

    def _found(self, finding: Finding) -> None:
        if self.world.finding is None:
            self.world.finding = finding
            self.world.say("judge", str(finding))


def simulate(
    lab: Lab,
    seed: int,
    without: frozenset[str] = frozenset(),
    sabotage: Sabotage = NONE,
    shards: int = 1,
    *,
    rules: bool = False,
) -> Result:
    """Run a seed, without the faults, calls and processes that are left out; or with rules."""
    shards = sabotage.shards or shards
    simulation = Simulation(lab, seed, without, sabotage, shards, rules=rules)
    world = simulation.world
    try:
        with owned(world, simulation._judge), sabotage.applied():
            requests = simulation.run()
    finally:
        world.end()
    found = world.finding, world.history, world.decisions.taken
    return Result(seed, *found, requests, shards, rules)


def report(result: Result) -> str:
    """The finding, and the history that led to it."""
    again = f"./tests/run simulate --seed {result.seed} --shards {result.shards}"
    again += " --rules" * result.rules
    return "\n".join([f"seed {result.seed}: {result.finding}", *result.history, again])

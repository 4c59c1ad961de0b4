"""Time, and who acts when. One actor runs at a time, until it waits; then the next event happens.

Computing takes no time. Only the network, pauses and sleeping processes do.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

import greenlet

from tests.lab.simulator.decisions import Decisions

SECOND = 1_000_000  # us; all times in the simulator are microseconds
START_US = 1_800_000_000 * SECOND  # what Redis's clock shows when the world begins
MOST_EVENTS = 500_000  # of a world; some thousands are usual
MONOTONIC_ZERO = 1_000 * SECOND  # of the first process; each has another


class World:
    """The true time in us, the coming events, and the history.

    Attributes:
        finding: The judge's first finding; then the world stands still.
    """

    def __init__(self, decisions: Decisions):
        self.decisions = decisions
        self.now_us = 0
        self.history: list[str] = []
        self.finding: Any = None
        self.hub = greenlet.getcurrent()
        self.actors: list[Actor] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def say(self, who: str, what: str) -> None:
        self.history.append(f"{self.now_us / SECOND:11.6f}  {who:<9} {what}")

    def later(self, us: int, action: Callable[[], None]) -> None:
        """Let *action* happen in *us* from now."""
        heapq.heappush(self._events, (self.now_us + max(0, us), next(self._numbers), action))

    def run(self, until_us: int) -> None:
        """Run events up to a time, or to the first finding."""
        while self.finding is None and self._events and self._events[0][0] <= until_us:
            self.now_us, number, action = heapq.heappop(self._events)
            if number > MOST_EVENTS:
                raise RuntimeError(f"no end at {self.now_us} us: {self.history[-3:]}")
            action()
        if self.finding is None:
            self.now_us = until_us

    def end(self) -> None:
        """Let go of every actor that still waits."""
        for actor in self.actors:
            actor.end()


class _Body(greenlet.greenlet):
    actor: "Actor"


class Actor:
    """A process: its program, and its monotonic clock."""

    def __init__(self, world: World, name: str, drift: float, main: Callable[["Actor"], None]):
        self.world = world
        self.name = name
        self.is_alive = True
        self.call: Any = None  # the call that a client is making
        self._own, self._steps = itertools.count(1), itertools.count(1)
        self.slept_us = 0  # while it was stopped
        self.on_death: Callable[[], None] = lambda: None
        self.dice = world.decisions.dice(name)
        self._rate = 1 + self.dice.uniform(-drift, drift)
        self._zero = MONOTONIC_ZERO + self.dice.randrange(1000 * SECOND)
        self._ticket = 0  # of the present wait
        self._greenlet = _Body(lambda _: main(self), world.hub)
        self._greenlet.actor = self
        world.actors.append(self)
        world.later(0, lambda: self.wake(0, None))

    def monotonic(self) -> float:
        return (self._zero + self.world.now_us * self._rate) / SECOND

    def until(self, moment: float) -> int:
        """The time, in us, until this process's monotonic clock reaches a value."""
        left = (moment - self.monotonic()) * SECOND / self._rate
        return math.ceil(left) if left > 0 else 0

    def wait(self, us: int | None) -> Any:
        """Let the others run until one of them wakes this one, at most *us*.

        Returns:
            The value that it was woken with; ``None`` when the time is up. An exception is raised.
        """
        if not self.is_alive:
            raise greenlet.GreenletExit
        if us is not None:
            self.world.later(us, self.waker())
        given = self.world.hub.switch()
        if isinstance(given, BaseException):
            raise given
        return given

    def waker(self) -> Callable[..., None]:
        """A function that ends the next wait; afterwards it does nothing."""
        ticket = self._ticket
        return lambda given=None: self.wake(ticket, given)

    def wake(self, ticket: int, given: Any) -> None:
        if self.is_alive and ticket == self._ticket:
            self.interrupt(given)

    def interrupt(self, given: Any) -> None:
        """End whatever wait this actor is in."""
        self._ticket += 1
        self._greenlet.switch(given)

    def sleep(self, seconds: float) -> None:
        """A pause of this process's own; it may be woken, and goes on sleeping."""
        self.wait(self.until(self.monotonic() + seconds))

    def begin(self, call: Any) -> None:
        """From here on, each step belongs to this call, or to none."""
        self.call = call
        self._steps = itertools.count(1)

    def step(self) -> str:
        """A name for what it does next, the same whatever was done for other calls."""
        if self.call:
            return f"{self.call.name}/{next(self._steps)}"
        return f"{self.name}/{next(self._own)}"

    def may_fall_asleep(self, kind: str = "asleep") -> None:
        """Between any two steps a process may be stopped for a while."""
        if self.is_alive and (dice := self.world.decisions.fault(kind, self.step())):
            us = round(dice.choice((0.001, 0.1, 1, 10, 40)) * dice.random() * SECOND)
            self.world.say(self.name, f"sleeps for {us / SECOND:.6f} s")
            self.slept_us += us
            self.wait(us)

    def die(self) -> None:
        """Stop for good, between two steps: nothing of it runs any more."""
        self.is_alive = False
        self.on_death()
        self.world.hub.switch()

    def end(self) -> None:
        self.is_alive = False
        if not self._greenlet.dead:
            self._greenlet.throw(greenlet.GreenletExit)


def current() -> Actor | None:
    """The running actor, or ``None`` for the simulator itself."""
    return getattr(greenlet.getcurrent(), "actor", None)

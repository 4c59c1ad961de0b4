"""The package's scanner, whose wake-up, stop and broker are of this world."""

from collections.abc import Callable
from typing import Any

from celery_delayq.handover.relay import Relay
from celery_delayq.handover.scanner import Scanner
from celery_delayq.services import Hooks
from celery_delayq.store import Engine, Keys, Membership
from tests.simulator.broker import Broker, SimulatedLink
from tests.simulator.network import TIMEOUT
from tests.simulator.world import Actor, World

LEASE = 8.0  # seconds
SAFETY_INTERVAL = 10.0
BATCH_SIZE = 2


class Wakeups:
    """Scanners that listen, and what is said to them on its way."""

    def __init__(self, world: World, subscribe: Callable[[str], None]):
        self._world = world
        self._subscribe = subscribe
        self._listening: list[Wakeup] = []

    def listen(self, wakeup: "Wakeup") -> None:
        for channel in wakeup.channels:
            self._subscribe(channel)
        self._listening.append(wakeup)

    def say(self, channel: str) -> None:
        """Pass on what Redis says; it reaches each that listens a while later."""
        for wakeup in self._listening:
            if channel in wakeup.channels:
                self._world.later(500, wakeup.hear)


class Wakeup:
    """What a scanner waits on; what it is told while it is busy waits for it."""

    def __init__(self, actor: Actor, keys: Keys, wakeups: Wakeups):
        self.channels = keys.channels(actor.name)
        self._actor = actor
        self._wakeups = wakeups
        self._listens = False
        self._told: set[int] = set()
        self._waker: Callable[..., None] = _nobody

    def listen(self) -> bool:
        listened, self._listens = self._listens, True
        if not listened:
            self._wakeups.listen(self)
        return not listened

    def wait(self, seconds: float) -> set[int]:
        if not self._told:
            self._waker = self._actor.waker()
            # A real wait does not end before its time; this clock rounds.
            self._actor.wait(self._actor.until(self._actor.monotonic() + seconds) + 1)
        told, self._told = self._told, set()
        return told

    def hear(self) -> None:
        self._told.add(0)
        self._waker()

    def interrupt(self) -> None:
        """Nobody stops a scanner here: it dies, or lives to the end."""

    def close(self) -> None:
        """There is no connection."""


def _nobody() -> None:
    """Who does not wait is not woken."""


class _Stop:
    def __init__(self, actor: Actor):
        self._actor = actor

    def is_set(self) -> bool:
        self._actor.may_fall_asleep()
        return False

    def wait(self, seconds: float) -> bool:
        self._actor.sleep(seconds)
        return False


def run_scanner(actor: Actor, scripts: Any, broker: Broker, wakeups: Wakeups) -> None:
    """Scan until the world ends."""
    engine = Engine(
        scripts, Membership(TIMEOUT), batch_size=BATCH_SIZE, lease=LEASE, alive=3 * SAFETY_INTERVAL
    )
    engine.name = actor.name
    relay = Relay(engine, SimulatedLink(actor, broker), lease=LEASE, hooks=Hooks())
    scanner = Scanner(
        [relay],
        Wakeup(actor, scripts.keys, wakeups),
        safety_interval=SAFETY_INTERVAL,
        lease=LEASE,
        hooks=Hooks(),
    )
    scanner._stopping = _Stop(actor)
    scanner.run()

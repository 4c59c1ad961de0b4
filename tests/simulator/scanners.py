"""The package's scanner, whose wake-up, stop and broker are of this world."""

from collections.abc import Callable
from typing import Any

from celery_delayq.handover.relay import Relay
from celery_delayq.handover.scanner import Scanner
from celery_delayq.services import Hooks
from celery_delayq.store import Engine, Membership
from tests.simulator.broker import Broker, SimulatedLink
from tests.simulator.network import TIMEOUT
from tests.simulator.world import Actor

LEASE = 8.0  # seconds
SAFETY_INTERVAL = 10.0
BATCH_SIZE = 2


class Wakeups:
    """Scanners that wait for a token; one of them gets it, as by a blocking pop."""

    def __init__(self, take_token: Callable[[], bool]):
        self._take_token = take_token
        self._waiting: list[Callable[..., None]] = []

    def wait(self, actor: Actor, seconds: float) -> bool:
        self._waiting.append(waker := actor.waker())
        actor.world.later(0, self.look)
        woken = actor.wait(actor.until(actor.monotonic() + seconds))
        self._waiting = [other for other in self._waiting if other is not waker]
        return bool(woken)

    def look(self) -> None:
        """Give a token that lies there to whoever has waited longest."""
        if self._waiting and self._take_token():
            waker = self._waiting.pop(0)
            waker(True)


class _Wakeup:
    def __init__(self, actor: Actor, wakeups: Wakeups):
        self._actor = actor
        self._wakeups = wakeups

    def wait(self, seconds: float) -> bool:
        return self._wakeups.wait(self._actor, seconds)

    def interrupt(self) -> None:
        """Nobody stops a scanner here: it dies, or lives to the end."""

    def close(self) -> None:
        """There is no connection."""


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
        engine,
        _Wakeup(actor, wakeups),
        relay,
        safety_interval=SAFETY_INTERVAL,
        lease=LEASE,
        hooks=Hooks(),
    )
    scanner._stopping = _Stop(actor)
    scanner.run()

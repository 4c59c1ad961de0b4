"""The package's scanner, whose stop, wake-up and broker are of this world."""

from typing import Any

from celery_delayq.handover.relay import Relay
from celery_delayq.handover.scanner import Scanner
from celery_delayq.hooks import Hooks
from celery_delayq.store import Engine, Membership
from tests.simulator.broker import Broker, SimulatedLink
from tests.simulator.network import TIMEOUT
from tests.simulator.words import Wakeup
from tests.simulator.world import Actor

LEASE = 8.0  # seconds
SAFETY_INTERVAL = 10.0
BATCH_SIZE = 2


class _Stop:
    def __init__(self, actor: Actor):
        self._actor = actor

    def is_set(self) -> bool:
        self._actor.may_fall_asleep()
        return False


def run_scanner(actor: Actor, scripts: Any, broker: Broker, wakeup: Wakeup) -> None:
    """Scan until the world ends."""
    engine = Engine(
        scripts,
        Membership(TIMEOUT),
        batch_size=BATCH_SIZE,
        lease=LEASE,
        alive=3 * SAFETY_INTERVAL,
        name=actor.name,
        owes=True,
    )
    relay = Relay(engine, SimulatedLink(actor, broker), lease=LEASE, hooks=Hooks())
    scanner = Scanner([relay], wakeup, safety_interval=SAFETY_INTERVAL, lease=LEASE, hooks=Hooks())
    scanner._stopping = _Stop(actor)
    scanner.run()

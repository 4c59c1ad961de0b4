"""The package's scanner, whose stop, wake-up and broker are of this world."""

from functools import partial
from typing import Any

from tests.lab.simulator.broker import TIMEOUT as BROKER_TIMEOUT
from tests.lab.simulator.broker import Broker
from tests.lab.simulator.driver import Publisher, scan
from tests.lab.simulator.network import TIMEOUT
from tests.lab.simulator.words import Ear
from tests.lab.simulator.world import Actor

LEASE = 8.0  # seconds
SAFETY_INTERVAL = 10.0
BATCH_SIZE = 2


def run_scanner(actor: Actor, scripts: Any, broker: Broker, ear: Ear) -> None:
    """Scan until the world ends."""
    take, probe = partial(broker.take, actor), partial(broker.probe, actor)
    scan(
        actor.name,
        scripts,
        Publisher(take, probe, BROKER_TIMEOUT),
        ear,
        timeout=TIMEOUT,
        batch_size=BATCH_SIZE,
        lease=LEASE,
        safety_interval=SAFETY_INTERVAL,
    )

"""Makes scanners and relays, each with its own connections."""

from __future__ import annotations

from ..servers.endpoint import Server
from ..services import Services
from .backoff import ELECTION, Backoff
from .contact import Contact
from .link import Link
from .outbox import Mark, Outbox
from .relay import Relay
from .scanner import Parts, Scanner
from .start import Start

PUBLISH_TIMEOUT = 10.0  # seconds for a window of messages, and well inside a lease


def new_scanner(services: Services, mark: Mark | None = None) -> Scanner:
    """Make a scanner with its own connections; *mark* stores ``REVOKED`` for a cancelled task."""
    settings, (relays, wakeup, outbox, start) = services.settings, _parts(services, mark)

    def anew(shards: int) -> Parts | None:
        return None if services.settings.shards == shards else _parts(services, mark)

    return Scanner(
        relays,
        wakeup,
        safety_interval=settings.safety_interval,
        lease=settings.lease,
        hooks=services.hooks,
        outbox=outbox,
        start=start,
        contacts=_contacts(services),
        anew=anew,
    )


def _parts(services: Services, mark: Mark | None) -> Parts:
    relays = new_relays(services, owes=mark is not None)
    steps_by_shard = [relay.steps for relay in relays]
    outbox = None if mark is None else Outbox(services.steps_by_shard(), mark, services.take_back)
    return Parts(
        relays, services.wakeup(steps_by_shard[0].name), outbox, Start.of(services, steps_by_shard)
    )


def _contacts(services: Services) -> tuple[Contact, Contact]:
    return (
        Contact(*services.named_store, _backoff(services.endpoint)),
        Contact(*services.named_broker, _backoff(services.broker.endpoint)),
    )


def _backoff(server: Server | None) -> Backoff:
    # If another server may take over, find it soon after it has.
    return Backoff(longest=ELECTION) if server is not None and server.may_move else Backoff()


def new_relays(services: Services, *, owes: bool = False) -> list[Relay]:
    """Make a relay for each shard, with their own connections to the store and the broker."""
    lease = services.settings.lease
    link = Link(services.app.connection_for_write, timeout=min(PUBLISH_TIMEOUT, lease * 0.3))
    steps_by_shard = services.steps_by_shard(owes=owes)
    return [Relay(steps, link, lease=lease, hooks=services.hooks) for steps in steps_by_shard]

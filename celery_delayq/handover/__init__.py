"""Delivers due tasks to their queues.

    Scanner ---> ScannerSteps.hand_over -------------------> lists of the store's own Redis
       |         one script: exactly once
       |
       +-------> Outbox: stores REVOKED if a canceller could not
       |
       +-------> Relay: claim -> Link -> publisher --> any other broker
                 ack, or nack with a verdict: at least once

The scanner is the loop; it uses neither Redis nor Celery nor kombu itself. The link is its
connection to the broker; publishers send a window of messages, each in its own way.
"""

from __future__ import annotations

from contextlib import suppress

from ..errors import BrokerDown, StoreDiffers, StoreError, StoreUnavailable
from ..hooks import Hooks
from ..servers.endpoint import Address, Server
from ..services import Services
from .backoff import ELECTION, Backoff
from .contact import Contact
from .dead import report
from .link import Link
from .outbox import Mark, Outbox
from .relay import Relay
from .scanner import Parts, Scanner
from .start import Start

__all__ = ["Scanner", "hand_over", "new_relays", "new_scanner"]

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
    engines = [relay.engine for relay in relays]
    outbox = None if mark is None else Outbox(services.engines(), mark, services.take_back)
    return Parts(relays, services.wakeup(engines[0].name), outbox, Start.of(services, engines))


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
    engines = services.engines(owes=owes)
    return [Relay(engine, link, lease=lease, hooks=services.hooks) for engine in engines]


def hand_over(services: Services, *, owes: bool = False) -> int:
    """Deliver all due tasks once; return how many were delivered.

    In a Cluster, a node that is away delays only its own shards; then it raises at the end.
    With *owes*, note in the store that ``REVOKED`` must be stored for tasks that were too late.

    Raises:
        BrokerDown: the broker cannot be reached; its tasks keep waiting.
        StoreError: a step failed.
    """
    shards = services.settings.shards
    try:
        return _hand_over_each(services, owes=owes)
    except StoreDiffers:
        if services.settings.shards == shards:
            raise
    return _hand_over_each(services, owes=owes)


def _hand_over_each(services: Services, *, owes: bool) -> int:
    away = set[Address | None]()
    went, failed = 0, None
    for relay in new_relays(services, owes=owes):
        engine = relay.engine
        node = engine.node
        if node in away:
            continue
        try:
            went += _hand_over_shard(relay, services.hooks)
        except BrokerDown as error:
            services.hooks.broker_down()
            failed = error  # direct deliveries go on
        except StoreUnavailable as error:
            failed = error
            away |= {None, node, engine.node}
    if failed is not None:
        raise failed
    return went


def _hand_over_shard(relay: Relay, hooks: Hooks) -> int:
    engine = relay.engine
    try:
        went = _hand_over_all(relay, hooks)
        engine.leave()
    except StoreUnavailable:
        raise
    except Exception:
        # Otherwise it would count as alive.
        with suppress(StoreError):
            engine.leave()
        raise
    finally:
        relay.close()
        engine.close()
    return went


def _hand_over_all(relay: Relay, hooks: Hooks) -> int:
    engine = relay.engine
    while reclaimed := engine.reclaim():
        hooks.reclaimed(reclaimed)
    went, more = 0, True
    while more:
        seen = engine.hand_over(tells=hooks.wants)
        report(hooks, seen)
        went, more = went + seen.handed_over, seen.is_past(seen.due) or seen.is_past(seen.back)
    more = seen.is_past(seen.relay)
    while more:
        batch = relay.batch(lambda: False)
        went, more = went + batch.sent, batch.claimed + batch.others > 0
    return went

"""Out: from due to the queue.

    Scanner ---> Engine.hand_over -------------------> lists of the store's own Redis
       |         one script: exactly once
       |
       +-------> Outbox: stores REVOKED where a canceller could not
       |
       +-------> Relay: claim -> Link -> publisher --> any other broker
                 ack, or nack with a verdict: at least once

The scanner is the loop, and knows neither Redis nor Celery nor kombu. The link is its connection to
the broker; publishers are the ways to send a window of messages.
"""

from __future__ import annotations

from contextlib import suppress

from ..errors import StoreError, StoreUnavailable
from ..services import Hooks, Services
from .dead import report
from .link import Link
from .outbox import Mark, Outbox
from .relay import Relay
from .scanner import Scanner

__all__ = ["Scanner", "hand_over", "new_relay", "new_scanner"]

PUBLISH_TIMEOUT = 10.0  # seconds for a window of messages, and well inside a lease


def new_scanner(services: Services, mark: Mark | None = None) -> Scanner:
    """A scanner with connections of its own; *mark* stores ``REVOKED`` for one cancelled task."""
    relay = new_relay(services)
    settings = services.settings
    return Scanner(
        relay.engine,
        services.wakeup(),
        relay,
        safety_interval=settings.safety_interval,
        lease=settings.lease,
        hooks=services.hooks,
        outbox=None if mark is None else Outbox(services.engine(), mark),
    )


def new_relay(services: Services) -> Relay:
    """A relay with connections of its own, to the store and to the broker."""
    lease = services.settings.lease
    link = Link(services.app.connection_for_write, timeout=min(PUBLISH_TIMEOUT, lease * 0.3))
    return Relay(services.engine(), link, lease=lease, hooks=services.hooks)


def hand_over(services: Services) -> int:
    """Hand over all that is due, once; returns how many tasks went.

    Raises:
        BrokerDown: the broker cannot be reached; what goes through it waits on.
        StoreError: a step failed.
    """
    relay = new_relay(services)
    engine = relay.engine
    try:
        went = _hand_over_all(relay, services.hooks)
        engine.leave()
    except StoreUnavailable:
        raise
    except Exception:
        # It would count as alive, and others would leave the next due time to it.
        with suppress(StoreError):
            engine.leave()
        raise
    finally:
        relay.close()
        engine.close()
    return went


def _hand_over_all(relay: Relay, hooks: Hooks) -> int:
    engine = relay.engine
    while engine.reclaim():
        pass
    went, more = 0, True
    while more:
        seen = engine.hand_over()
        report(hooks, seen)
        went, more = went + seen.handed_over, seen.is_past(seen.due)
    more = seen.is_past(seen.relay)
    while more:
        batch = relay.batch(lambda: False)
        went, more = went + batch.sent, batch.claimed + batch.dead > 0
    return went

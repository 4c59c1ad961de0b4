"""Delivers all due tasks once, without a scanner."""

from __future__ import annotations

from contextlib import suppress

from ..errors import BrokerDown, StoreDiffers, StoreError, StoreUnavailable
from ..hooks import Hooks
from ..servers.endpoint import Address
from ..services import Services
from .dead import report
from .making import new_relays
from .relay import Relay


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
        steps = relay.steps
        node = steps.node
        if node in away:
            continue
        try:
            went += _hand_over_shard(relay, services.hooks)
        except BrokerDown as error:
            services.hooks.broker_down()
            failed = error  # direct deliveries go on
        except StoreUnavailable as error:
            failed = error
            away |= {None, node, steps.node}
    if failed is not None:
        raise failed
    return went


def _hand_over_shard(relay: Relay, hooks: Hooks) -> int:
    steps = relay.steps
    try:
        went = _hand_over_all(relay, hooks)
        steps.leave()
    except StoreUnavailable:
        raise
    except Exception:
        # Otherwise it would count as alive.
        with suppress(StoreError):
            steps.leave()
        raise
    finally:
        relay.close()
        steps.close()
    return went


def _hand_over_all(relay: Relay, hooks: Hooks) -> int:
    steps = relay.steps
    while reclaimed := steps.reclaim():
        hooks.reclaimed(reclaimed)
    went, more = 0, True
    while more:
        seen = steps.hand_over(wants=hooks.wants)
        report(hooks, seen)
        went, more = went + seen.handed_over, seen.is_past(seen.due) or seen.is_past(seen.back)
    more = seen.is_past(seen.relay)
    while more:
        batch = relay.batch(lambda: False)
        went, more = went + batch.sent, batch.claimed + batch.others > 0
    return went

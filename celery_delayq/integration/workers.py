"""What workers answer when they are asked: which queues they listen to, and which store they have.

A worker of the pool ``solo`` answers between two tasks only. So a worker that is silent proves
nothing, and what its queues are is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..handover.link import CONNECT_TIMEOUT, bounded, connect
from ..logs import counted, logger_of, waiting
from ..operations.queues import queue_counts
from ..services import Services

logger = logger_of(__name__)

WAIT = 1.0  # seconds for answers; nobody knows how many will come

_UNHEARD = (
    "no worker listens to the queue {}, for which {} ({} answered); start a worker with "
    "-Q {}, or correct the name"
)
_OTHER_STORE = (
    "worker {} has the store {}, prefix {}; this app has {}, prefix {}: neither hands over the "
    "other's tasks; give both the same delayq_url and delayq_prefix"
)


def answers(services: Services, command: str) -> dict[str, Any]:
    """What each worker answers to a command of ``inspect``, by its name.

    Nothing if no worker answers, or the broker is away.
    """
    try:
        connection = bounded(services.app.connection_for_write(), WAIT, CONNECT_TIMEOUT)
        try:
            connect(connection, CONNECT_TIMEOUT)
            inspect = services.app.control.inspect(timeout=WAIT, connection=connection)
            return inspect._request(command) or {}
        finally:
            connection.collect()
    except Exception as error:  # those of any transport
        logger.debug("workers cannot be asked: %r", error)
        return {}


def unheard_queues(services: Services, heard: Mapping[str, Any]) -> list[str]:
    """A sentence for each queue of waiting tasks to which no worker listens.

    Nothing if fewer workers of this app answered than scanners are alive: a silent one may listen.
    Workers of other apps may have the same broker. They do not count if they are on other hosts
    than the scanners, and listen neither to the app's queues nor to those of waiting tasks.

    Args:
        services: Of the app.
        heard: The :func:`answers` to ``active_queues``.
    """
    if not heard:
        return []
    scanners = services.entries.scanners()
    queues, _ = queue_counts(services, services.entries.pauses())
    hosts, own = {one.host for one in scanners}, {*services.app.amqp.queues}
    own |= {one.queue for one in queues}
    names_by_worker = {worker: _names_in(told) for worker, told in heard.items()}
    answered = [
        worker
        for worker, names in names_by_worker.items()
        if names & own or worker.partition("@")[2] in hosts
    ]
    if not answered or len(answered) < len(scanners):
        return []
    names, workers = set().union(*names_by_worker.values()), counted(len(answered), "worker")
    return [
        _UNHEARD.format(one.queue, waiting(one.waiting), workers, one.queue)
        for one in queues
        if one.queue and one.queue not in names
    ]


def _names_in(told: Any) -> set[str]:
    """The names by which a worker's queues are known: their own, and what routes to them."""
    queues = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return {name for one in queues for name in (one.get("name"), one.get("routing_key")) if name}


def other_stores(
    services: Services, told: Mapping[str, Any], heard: Mapping[str, Any]
) -> list[str]:
    """A sentence for each worker of this app's queues that has another store.

    Workers of other apps, which have the same broker, may well have one. One store may have two
    URLs; but then both find the same scanners in it.

    Args:
        services: Of the app.
        told: The :func:`answers` to ``delayq``.
        heard: The :func:`answers` to ``active_queues``.
    """
    queues = {*services.app.amqp.queues}
    ours = services.endpoint.url, services.settings.prefix
    scanners = {one.name for one in services.entries.scanners()}
    return [
        _OTHER_STORE.format(name, *theirs, *ours)
        for name, one in sorted(told.items())
        if queues & _names_in(heard.get(name))
        and (theirs := _store_in(one)) not in (None, ours)
        and not scanners & {scanner["name"] for scanner in one["scanners"]}
    ]


def _store_in(told: Any) -> tuple[str, str] | None:
    """The store that a worker names; ``None`` if it has none, or cannot read it."""
    if not isinstance(told, dict) or "store" not in told or "scanners" not in told:
        return None
    return told["store"], told["prefix"]

"""Workers' answers to ``inspect``: the queues that they listen to, and their store.

A worker with the ``solo`` pool answers only between two tasks. So a silent worker proves nothing,
and its queues are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from .. import __version__
from ..core.handover.publishers import CONNECT_TIMEOUT, bounded, connect
from ..core.services import Services
from ..core.text import counted, logger_of, waiting
from .queues import QueueCounts, queue_counts

logger = logger_of(__name__)

WORKERS_WAIT = 1.0  # seconds to wait for answers, as their number is unknown
MOST_NAMED = 10  # queues

_UNHEARD = (
    "no worker listens to the queue {}, for which {} ({} answered); start a worker with "
    "-Q {}, or correct the name"
)
_UNREAD = (
    "no worker listens to the queue {}, which has {}, delivered tasks among them ({} answered); "
    "start a worker with -Q {}, or correct the name"
)
_REST = "no worker listens to {} for which tasks wait; celery -A proj delayq status --json has them"
_NO_DELAYQ = (
    "worker {} listens to this app's queues, and does not answer as a worker with DelayQ: it "
    "scans no store, and its tasks cannot be put off; call DelayQ(app) in its app, and install "
    "this release there; or it was busy"
)
_ERROR = (
    "worker {} listens to this app's queues, and cannot use a store: {}; check its configuration"
)
_OTHER_RELEASE = (
    "worker {} has celery_delayq {}, this process {}; install the same release everywhere"
)
_OTHER_STORE = (
    "worker {} has the store {}, prefix {}; this app has {}, prefix {}: neither delivers the "
    "other's tasks; give both the same delayq_url and delayq_prefix"
)


def answers(
    services: Services, command: str, workers: Collection[str] = (), **arguments: object
) -> dict[str, Any]:
    """Return each worker's answer to an ``inspect`` command, by worker name; or only of *workers*.

    *arguments* are the command's. Empty if no worker answers, or the broker is down.
    """
    try:
        connection = bounded(services.app.connection_for_write(), WORKERS_WAIT, CONNECT_TIMEOUT)
        try:
            connect(connection, CONNECT_TIMEOUT)
            inspect = services.app.control.inspect(
                [*workers] or None, timeout=WORKERS_WAIT, connection=connection
            )
            return inspect._request(command, **arguments) or {}
        finally:
            connection.collect()
    except Exception as error:  # each transport has its own
        logger.debug("cannot inspect the workers: %r", error)
        return {}


def delayq_answers(services: Services, heard: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers to ``delayq``; silent workers on this app's queues are asked twice.

    A worker whose app has no ``DelayQ`` does not know the command, and never answers it.
    """
    reported = answers(services, "delayq")
    silent = _on_its_queues(services, heard) - reported.keys()
    return {**reported, **answers(services, "delayq", silent)} if silent else reported


def strangers(
    services: Services, reported: Mapping[str, Any], heard: Mapping[str, Any]
) -> list[str]:
    """Return a sentence for each worker on this app's queues without ``DelayQ`` of this release.

    Args:
        services: The app's.
        reported: The :func:`delayq_answers`.
        heard: The :func:`answers` to ``active_queues``.
    """
    found = []
    for name in sorted(_on_its_queues(services, heard)):
        answer = reported.get(name)
        if answer is None:
            found.append(_NO_DELAYQ.format(name))
        elif "error" in answer:
            found.append(_ERROR.format(name, answer["error"].replace("; ", ": ")))
        elif (version := answer.get("version", "of an unknown release")) != __version__:
            found.append(_OTHER_RELEASE.format(name, version, __version__))
    return found


def unheard_queues(
    services: Services,
    heard: Mapping[str, Any],
    delivered: Mapping[str, int] = MappingProxyType({}),
) -> list[str]:
    """Return a sentence for each queue with waiting or delivered tasks, but no worker listening.

    After ``MOST_NAMED`` queues, one sentence counts the others.

    Empty if fewer workers of this app answered than scanners are alive: a silent worker may listen.
    Workers of other apps may use the same broker. A worker does not count if it is on another host
    than the scanners, and listens neither to the app's queues nor to those of waiting tasks.

    Args:
        services: The app's.
        heard: The :func:`answers` to ``active_queues``.
        delivered: The queues with delivered tasks, and how many messages each has.
    """
    if not heard:
        return []
    scanners = services.entries.scanners()
    queues, _ = queue_counts(services, services.entries.pauses())
    hosts, own = {scanner.host for scanner in scanners}, {*services.app.amqp.queues}
    own |= {queue.queue for queue in queues}
    names_by_worker = {worker: _names_in(reply) for worker, reply in heard.items()}
    answered = [
        worker
        for worker, names in names_by_worker.items()
        if names & own or worker.partition("@")[2] in hosts
    ]
    if not answered or len(answered) < len(scanners):
        return []
    names, workers = set().union(*names_by_worker.values()), counted(len(answered), "worker")
    unheard = [queue for queue in queues if queue.queue and queue.queue not in names]
    unread = [
        _UNREAD.format(name, counted(delivered[name], "message"), workers, name)
        for name in sorted(delivered.keys() - names)
    ]
    return [*_sentences(unheard, workers), *unread[:MOST_NAMED]]


def _sentences(unheard: list[QueueCounts], workers: str) -> list[str]:
    named, rest = unheard[:MOST_NAMED], unheard[MOST_NAMED:]
    sentences = [
        _UNHEARD.format(queue.queue, waiting(queue.waiting), workers, queue.queue)
        for queue in named
    ]
    return [*sentences, _REST.format(counted(len(rest), "more queue"))] if rest else sentences


def _names_in(reply: Any) -> set[str]:
    """Return the names of a worker's queues, and their routing keys."""
    queues = (
        [queue for queue in reply if isinstance(queue, dict)] if isinstance(reply, list) else []
    )
    return {
        name for queue in queues for name in (queue.get("name"), queue.get("routing_key")) if name
    }


def other_stores(
    services: Services, reported: Mapping[str, Any], heard: Mapping[str, Any]
) -> list[str]:
    """Return a sentence for each worker on this app's queues that uses another store.

    Workers of other apps on the same broker may use another store. Two URLs may name one store;
    then both show the same scanners.

    Args:
        services: The app's.
        reported: The :func:`answers` to ``delayq``.
        heard: The :func:`answers` to ``active_queues``.
    """
    on_its_queues = _on_its_queues(services, heard)
    ours = services.endpoint.url, services.settings.prefix
    scanners = {scanner.name for scanner in services.entries.scanners()}
    return [
        _OTHER_STORE.format(name, *theirs, *ours)
        for name, answer in sorted(reported.items())
        if name in on_its_queues
        and (theirs := _store_in(answer)) not in (None, ours)
        and not scanners & {scanner["name"] for scanner in answer["scanners"]}
    ]


def _on_its_queues(services: Services, heard: Mapping[str, Any]) -> set[str]:
    """Return the workers that listen to a queue of the app."""
    queues = {*services.app.amqp.queues}
    return {worker for worker, reply in heard.items() if queues & _names_in(reply)}


def _store_in(answer: Any) -> tuple[str, str] | None:
    """Return the store in a worker's answer; ``None`` if it has none, or cannot read it."""
    if not isinstance(answer, dict) or "store" not in answer or "scanners" not in answer:
        return None
    return answer["store"], answer["prefix"]

"""Which queues have waiting tasks, which workers listen, and which queues nobody reads.

    hash --> the name with this hash, among the app's queues, paused queues and tasks' destinations,
             as the store keeps only hashes
    workers' answers to ``inspect`` --> the queues that they listen to, and their store
    RabbitMQ: a question for each queue ---> queues with messages, and without a consumer
    the known lists of the broker's Redis,
    and SCAN for others ------------------> lists with a task that this store delivered
    SCAN of the store's Redis ------------> stores with another prefix, whose tasks are for this
                                            app's queues

A worker with the ``solo`` pool answers only between two tasks. So a silent worker proves nothing,
and its queues are unknown. A SCAN looks at the first keys only.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from math import inf
from threading import Thread
from types import MappingProxyType
from typing import Any

from amqp.exceptions import ChannelError

from .. import __version__
from ..core import clock
from ..core.handover.publishers import CONNECT_TIMEOUT, bounded, connect
from ..core.message.headers import DUE_HEADER
from ..core.message.outgoing import list_keys, queues_of_list
from ..core.servers.connection import Connection
from ..core.servers.risks import ERROR, WARNING, Line, ask
from ..core.services import Services
from ..core.store import Pause, QueueCount, label_of
from ..core.store.counts import WalkPosition, walk
from ..core.store.record import Record
from ..core.tasks.reading import names_in
from ..core.text import counted, logger_of, waiting

logger = logger_of(__name__)

MOST = 10_000  # waiting tasks to read for counts
_FOR_NAMES = 500  # waiting tasks to read for names only: one call


@dataclass(frozen=True)
class QueueCounts:
    """The number of tasks that wait for a queue.

    Attributes:
        queue: The queue that they were sent with, or their destination if that is unknown; empty
            for unreadable tasks.
        waiting: Waiting tasks, including overdue ones.
        overdue: Tasks that are due, or were refused and will be retried.
    """

    queue: str
    waiting: int
    overdue: int


def tally(services: Services, seconds: float = inf) -> tuple[list[QueueCount], bool]:
    """Count the next 10,000 waiting tasks in due order, overdue ones first, by queue.

    Return also whether all were counted. It looks at fewer if that takes longer than *seconds*.
    """
    return services.entries.tallies(MOST, seconds)


def queue_counts(
    services: Services,
    pauses: Iterable[Pause],
    tallied: tuple[list[QueueCount], bool] | None = None,
) -> tuple[list[QueueCounts], bool]:
    """Return the same as :func:`tally` by the queues' names, sorted."""
    tallies, is_complete = tallied or tally(services)
    known = _by_label(services, pauses) if tallies else {}
    waiting: defaultdict[str, int] = defaultdict(int)
    overdue: defaultdict[str, int] = defaultdict(int)
    for count in tallies:
        name = _name_of(count, known, services.broker.options) if count.label else ""
        waiting[name] += count.waiting
        overdue[name] += count.overdue
    counts = [QueueCounts(name, waiting[name], overdue[name]) for name in sorted(waiting)]
    return counts, is_complete


def counts_from(
    services: Services, place: WalkPosition
) -> Iterator[tuple[WalkPosition | None, list[QueueCounts]]]:
    """Yield the waiting tasks per queue, some 500 tasks after the other, from a place on.

    Each step has the place behind it, which is ``None`` at the end. A task that is rescheduled
    meanwhile may be counted twice, or not at all.
    """
    known, options = _by_label(services, services.entries.pauses()), services.broker.options
    for behind, tallies in walk(services.entries.shards, place):
        names = [_name_of(tally, known, options) if tally.label else "" for tally in tallies]
        counts = zip(names, tallies, strict=True)
        yield behind, [QueueCounts(name, count.waiting, count.overdue) for name, count in counts]


def names_of(services: Services, labels: set[bytes]) -> dict[bytes, str]:
    """Return queue names by hash: those of the app.

    If *labels* has others, also those of pauses, and of the next 500 tasks in due order.
    """
    known = _by_label(services, ())
    if labels <= known.keys():
        return known
    known = _by_label(services, services.entries.pauses())
    if not labels <= known.keys():
        for tally in services.entries.tallies(_FOR_NAMES)[0]:
            if tally.label in labels:
                name = _name_of(tally, known, services.broker.options)
                # The destination may differ from the queue that the task was sent with.
                known.setdefault(label_of(name), name)
    return known


def _by_label(services: Services, pauses: Iterable[Pause]) -> dict[bytes, str]:
    names = [*services.app.amqp.queues, *(pause.queue for pause in pauses if pause.queue)]
    return {label_of(name): name for name in names}


def _name_of(tally: QueueCount, known: dict[bytes, str], options: Any) -> str:
    if tally.label in known:
        return known[tally.label]
    names = names_in(tally, options)
    return next((name for name in names if label_of(name) == tally.label), names[0])


# Seconds: for workers' answers, as their number is unknown, and for each answer of the broker.
WORKERS_WAIT = 1.0
MOST_NAMED = 10  # queues

_LISTEN = "start a worker with -Q {0}, or correct the name"
_UNHEARD = Line(
    "workers", ERROR, "no worker listens to the queue {}, for which {} ({} answered)", _LISTEN
)
_UNREAD = Line(
    "workers", ERROR,
    "no worker listens to the queue {}, which has {}, delivered tasks among them ({} answered)",
    _LISTEN,
)  # fmt: skip
_REST = Line(
    "workers", ERROR, "no worker listens to {} for which tasks wait",
    "celery -A proj delayq status --json has them",
)  # fmt: skip
_UNCONSUMED = Line(
    "workers", ERROR,
    "no worker listens to the queue {}, which has {}, by the broker's count", _LISTEN,
)  # fmt: skip
_NO_DELAYQ = Line(
    "workers", WARNING,
    "worker {} listens to this app's queues, and does not answer as a worker with DelayQ: it "
    "scans no store, and its tasks cannot be put off",
    "call DelayQ(app) in its app, and install this release there; or it was busy",
)  # fmt: skip
_ERROR = Line(
    "workers", WARNING, "worker {} listens to this app's queues, and cannot use a store: {}",
    "check its configuration",
)  # fmt: skip
_OTHER_RELEASE = Line(
    "workers", WARNING, "worker {} has celery_delayq {}, this process {}",
    "install the same release everywhere",
)  # fmt: skip
_OTHER_STORE = Line(
    "workers", ERROR,
    "worker {} has the store {}, prefix {}; this app has {}, prefix {}: neither delivers the "
    "other's tasks",
    "give both the same delayq_url and delayq_prefix",
)  # fmt: skip
_FORLORN = Line(
    "other stores", ERROR,
    "{} in another store in this Redis, with the prefix {}, in which no scanner is alive, also for "
    "the queue {} of this app",
    "give that process and the workers the same delayq_prefix",
)  # fmt: skip


def answers(
    services: Services, command: str, workers: Collection[str] = (), **arguments: object
) -> dict[str, Any]:
    """Return each worker's answer to an ``inspect`` command, by worker name; or only of *workers*.

    *arguments* are the command's. Empty if no worker answers, or the broker is down.
    """
    try:
        with _broker(services) as connection:
            inspect = services.app.control.inspect(
                [*workers] or None, timeout=WORKERS_WAIT, connection=connection
            )
            return inspect._request(command, **arguments) or {}
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
) -> list[Line]:
    """Return a line for each worker on this app's queues without ``DelayQ`` of this release.

    Args:
        services: The app's.
        reported: The :func:`delayq_answers`.
        heard: The :func:`answers` to ``active_queues``.
    """
    found = []
    for name in sorted(_on_its_queues(services, heard)):
        answer = reported.get(name)
        if answer is None:
            found.append(_NO_DELAYQ.filled(name))
        elif "error" in answer:
            found.append(_ERROR.filled(name, answer["error"].replace("; ", ": ")))
        elif (version := answer.get("version", "of an unknown release")) != __version__:
            found.append(_OTHER_RELEASE.filled(name, version, __version__))
    return found


def unheard_queues(
    services: Services,
    heard: Mapping[str, Any],
    delivered: Mapping[str, int] = MappingProxyType({}),
) -> list[Line]:
    """Return a line for each queue with waiting or delivered tasks, but no worker listening.

    After ``MOST_NAMED`` queues, one line counts the others.

    Empty if fewer workers of this app answered than scanners are alive: a silent worker may listen.
    Workers of other apps may use the same broker. A worker does not count if it is on another host
    than the scanners, and listens neither to the app's queues nor to those of waiting tasks.

    Args:
        services: The app's.
        heard: The :func:`answers` to ``active_queues``.
        delivered: The queues with delivered tasks, and how many messages each has.
    """
    queues, _ = queue_counts(services, services.entries.pauses()) if heard else ([], True)
    names, answered = listened(services, heard, queues)
    if not answered:
        return []
    workers = counted(answered, "worker")
    unheard = [queue for queue in queues if queue.queue and queue.queue not in names]
    unread = [
        _UNREAD.filled(name, counted(delivered[name], "message"), workers)
        for name in sorted(delivered.keys() - names)
    ]
    return [*_first(unheard, workers), *unread[:MOST_NAMED]]


def listened(
    services: Services, heard: Mapping[str, Any], queues: Iterable[QueueCounts]
) -> tuple[set[str], int]:
    """Return the queues that workers listen to, and how many workers of this app said so.

    ``0``: not all of them answered, or none, so the queues are not known; see
    :func:`unheard_queues`.

    Args:
        services: The app's.
        heard: The :func:`answers` to ``active_queues``.
        queues: Those for which tasks wait.
    """
    names_by_worker = {worker: _names_in(reply) for worker, reply in heard.items()}
    if not heard:
        return set(), 0
    scanners = services.entries.scanners()
    hosts, own = {scanner.host for scanner in scanners}, {*services.app.amqp.queues}
    own |= {queue.queue for queue in queues}
    answered = sum(
        bool(names & own) or worker.partition("@")[2] in hosts
        for worker, names in names_by_worker.items()
    )
    known = answered if answered >= len(scanners) else 0
    return set().union(*names_by_worker.values()), known


def _first(unheard: list[QueueCounts], workers: str) -> list[Line]:
    named, rest = unheard[:MOST_NAMED], unheard[MOST_NAMED:]
    found = [_UNHEARD.filled(queue.queue, waiting(queue.waiting), workers) for queue in named]
    return [*found, _REST.filled(counted(len(rest), "more queue"))] if rest else found


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
) -> list[Line]:
    """Return a line for each worker on this app's queues that uses another store.

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
        _OTHER_STORE.filled(name, *theirs, *ours)
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


_MOST_KEYS, FEW_KEYS, SLICE = 100_000, 5_000, 1000  # of a SCAN; few for what probes call often
_MOST_LISTS = _MOST_QUEUES = 200
_SAMPLE = 20  # records, as they may be large
# Quotes in a JSON text are escaped, so this is a header.
_MARK = f'"{DUE_HEADER}":'.encode()


def unread(services: Services, most_keys: int = FEW_KEYS) -> list[Line]:
    """Return a line for each queue with tasks that no worker reads, and each forlorn store.

    If tasks wait or were delivered, workers have a second to answer.

    Raises:
        StoreError: the store cannot be reached.
    """
    counts = services.entries.counts()
    with closing(services.connect()) as connection:
        forlorn = forlorn_stores(services, connection, most_keys) or []
    if not counts.scanners:
        return forlorn
    in_lists, silent = delivered(services, most_keys), unconsumed(services)
    if not (counts.scheduled + counts.paused or in_lists):
        return [*silent, *forlorn]
    heard = answers(services, "active_queues")
    return [*unheard_queues(services, heard, in_lists), *silent, *forlorn]


class Look:
    """The lines of :func:`unread`, looked up in a thread: a caller never waits for them.

    Args:
        services: The app's.
        every: Seconds, > 0, after which they are looked up again at the next call.
    """

    def __init__(self, services: Services, every: float) -> None:
        self._services, self._every = services, every
        self._begun: tuple[int, float] | None = None  # in which process, and when, monotonic
        self._found: list[Line] | None = None

    def __call__(self) -> list[Line] | None:
        """Return the last lines; ``None`` if none are known."""
        process, now = os.getpid(), clock.monotonic()
        if self._begun is None or self._begun[0] != process or now - self._begun[1] >= self._every:
            self._begun = process, now
            Thread(target=self._look, name="delayq-unread", daemon=True).start()
        return self._found

    def _look(self) -> None:
        try:
            self._found = unread(self._services)
        except Exception as error:  # the store is away, or forbidden
            logger.debug("queues that nobody reads are unknown: %r", error)
            self._found = None


def delivered(services: Services, most_keys: int = _MOST_KEYS) -> Mapping[str, int]:
    """Return the lengths of a Redis broker's queues that hold a task which this store delivered.

    It looks at the oldest and at the newest message of 200 lists: first those of the app's queues,
    and of waiting tasks. A queue that this app does not know counts as long as the store remembers
    the delivery. Empty if the broker is no Redis, is down, or refuses.

    Args:
        services: The app's.
        most_keys: How many keys to search for other lists.
    """
    found: Counter[str] = Counter()
    if services.broker.endpoint is None:
        return found
    options = services.broker.options
    prefix = str(options.get("global_keyprefix", ""))
    known = [prefix + key for queue in _known(services) for key in list_keys(queue, options)]
    try:
        with _broker(services) as connection:
            run = connection.default_channel.client.execute_command
            scanned = (
                key.decode(errors="replace") for key in _keys(run, most_keys, "TYPE", "list")
            )
            others = (name for name in scanned if name not in known)
            for name in (*known[:_MOST_LISTS], *islice(others, _MOST_LISTS)):
                queue = queues_of_list(name, options)[0]
                if any(_is_ours(services, queue, run("LINDEX", name, end)) for end in (-1, 0)):
                    # kombu's client puts the global prefix before the key of this command.
                    found[queue] += run("LLEN", name.removeprefix(prefix))
    except Exception as error:  # each transport has its own
        logger.debug("cannot search the broker's lists: %r", error)
    return found


def unconsumed(services: Services) -> list[Line]:
    """Return a line for each queue on RabbitMQ that has messages, and no consumer.

    It asks for the app's queues, and those of waiting tasks: 200 at most. A queue that neither
    knows is not found after the delivery. Empty if the broker is another one, is down, or refuses.
    """
    found: list[Line] = []
    if services.broker.transport != "amqp":
        return found
    try:
        for name in _known(services)[:_MOST_QUEUES]:
            messages, consumers = _facts(services, name)
            if messages and not consumers:
                found.append(_UNCONSUMED.filled(name, counted(messages, "message")))
    except Exception as error:  # each transport has its own
        logger.debug("cannot ask the broker for its queues: %r", error)
    return found


def is_idle(services: Services) -> bool:
    """Whether no message is in a known queue, in a list with a delivered task, or unacknowledged.

    False if the broker is neither Redis nor RabbitMQ, is down, or refuses.
    """
    try:
        if services.broker.transport == "amqp":
            return not any(_facts(services, name)[0] for name in _known(services))
        if services.broker.endpoint is None or delivered(services):
            return False
        options = services.broker.options
        with _broker(services) as connection:
            run = connection.default_channel.client.execute_command
            known = (key for name in _known(services) for key in list_keys(name, options))
            in_flight = run("HLEN", options.get("unacked_key", "unacked"))
            return not in_flight and not any(run("LLEN", key) for key in known)
    except Exception as error:  # each transport has its own
        logger.debug("cannot tell whether the broker has messages: %r", error)
        return False


def _facts(services: Services, queue: str) -> tuple[int, int]:
    """Return how many messages are ready in a queue on RabbitMQ, and its consumers; or 0, 0."""
    # A queue that does not exist closes the channel.
    with suppress(ChannelError), _broker(services) as connection:
        _, messages, consumers = connection.default_channel.queue_declare(queue, passive=True)
        return messages, consumers
    return 0, 0


def _known(services: Services) -> list[str]:
    """Return the names of the app's queues, and of those of waiting tasks."""
    waiting_for, _ = queue_counts(services, services.entries.pauses())
    return [*dict.fromkeys([*services.app.amqp.queues, *(count.queue for count in waiting_for)])]


@contextmanager
def _broker(services: Services) -> Iterator[Any]:
    """Connect to the broker, each of whose answers has a second."""
    connection = bounded(services.app.connection_for_write(), WORKERS_WAIT, CONNECT_TIMEOUT)
    try:
        connect(connection, CONNECT_TIMEOUT)
        yield connection
    finally:
        connection.collect()


def _is_ours(services: Services, queue: str, message: bytes | None) -> bool:
    if not message or _MARK not in message:
        return False
    if queue in services.app.amqp.queues:
        return True
    task_id = json.loads(message)["headers"]["id"]
    return services.entries.handed_over_ms(task_id) is not None


def forlorn_stores(
    services: Services, connection: Connection, most_keys: int = _MOST_KEYS
) -> list[Line] | None:
    """Return a line for each other store with tasks for this app's queues, and no scanner.

    It looks at some 20 tasks of each. ``None`` if Redis refuses to search, or to
    read another store.

    Args:
        services: The app's.
        connection: A connection to the store's Redis; in a Cluster, to a node.
        most_keys: How many keys to search.
    """

    def run(*command: bytes | str | int) -> Any:
        return ask(connection, *command)

    reply = run("TIME")
    if not reply or run("SCAN", 0, "COUNT", 1) is None:
        return None
    now_ms = int(reply[0]) * 1000
    names = {label_of(name): name for name in services.app.amqp.queues}
    tasks: Counter[str] = Counter()
    queues: dict[str, str] = {}
    for key in _keys(run, most_keys, "MATCH", "{*:*}:records"):
        tag = key[1:].partition(b"}")[0]
        prefix = tag.rpartition(b":")[0].decode(errors="replace")
        if prefix == services.settings.prefix or run(
            "ZCOUNT", b"{%s}:scanners" % tag, now_ms, "+inf"
        ):
            continue
        some = run("HSCAN", key, 0, "COUNT", _SAMPLE)
        if some is None:
            return None
        tasks[prefix] += run("HLEN", key) or 0
        ours = [names[label] for label in map(_queue_in, some[1][1::2]) if label in names]
        if ours:
            queues[prefix] = ours[0]
    return [
        _FORLORN.filled(waiting(tasks[prefix]), prefix, queue) for prefix, queue in queues.items()
    ]


def _keys(run: Callable[..., Any], most: int, *options: str) -> Iterator[bytes]:
    """Yield the matching keys among the first ones; none if Redis refuses."""
    cursor, looked = 0, 0
    while looked < most:
        answer = run("SCAN", cursor, *options, "COUNT", SLICE)
        if answer is None:
            return
        yield from answer[1]
        cursor, looked = int(answer[0]), looked + SLICE
        if cursor == 0:
            return


def _queue_in(text: bytes) -> bytes:
    """Return the label of a record's queue; empty if it is another version's."""
    length, colon, _ = text[2:].partition(b":")
    if text[:1] != b"1" or not colon or not length.isdigit():
        return b""
    return Record.found(text).labels[1]

"""What lies in a Redis and is fetched by no process: delivered tasks, and tasks in another store.

    SCAN of the broker's Redis --> lists with a task that this store delivered
    SCAN of the store's Redis ---> stores with another prefix, whose tasks are for this app's queues

Both look at the first 100,000 keys only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from ..handover.link import CONNECT_TIMEOUT, bounded, connect
from ..logs import logger_of, waiting
from ..message.headers import DUE_HEADER
from ..message.outgoing import queues_of_list
from ..servers.connection import Connection
from ..servers.facts import ask
from ..services import Services
from ..store import label_of
from ..store.record import Record

logger = logger_of(__name__)

WAIT = 1.0  # seconds that the broker has for each answer
MOST_KEYS, SLICE = 100_000, 1000
MOST_LISTS = 200
SAMPLE = 20  # records, as they may be large
# Quotes in a JSON text are escaped, so this is a header.
_MARK = f'"{DUE_HEADER}":'.encode()
_FORLORN = (
    "{} in another store in this Redis, with the prefix {}, in which no scanner is alive, also for "
    "the queue {} of this app; give that process and the workers the same delayq_prefix"
)


def delivered(services: Services) -> Mapping[str, int]:
    """Return the lengths of a Redis broker's queues that hold a task which this store delivered.

    It looks at the oldest and at the newest message of 200 lists. A queue that this app does not
    know counts as long as the store remembers the delivery. Empty if the broker is no Redis, is
    down, or refuses.
    """
    found: Counter[str] = Counter()
    if services.broker.endpoint is None:
        return found
    connection = bounded(services.app.connection_for_write(), WAIT, CONNECT_TIMEOUT)
    options = services.broker.options
    try:
        connect(connection, CONNECT_TIMEOUT)
        run = connection.default_channel.client.execute_command
        for key in islice(_keys(run, "TYPE", "list"), MOST_LISTS):
            name = key.decode(errors="replace")
            queue = queues_of_list(name, options)[0]
            if any(_is_ours(services, queue, run("LINDEX", key, end)) for end in (-1, 0)):
                # kombu's client puts the global prefix before the key of this command.
                own = name.removeprefix(str(options.get("global_keyprefix", "")))
                found[queue] += run("LLEN", own)
    except Exception as error:  # each transport has its own
        logger.debug("cannot search the broker's lists: %r", error)
    finally:
        connection.collect()
    return found


def _is_ours(services: Services, queue: str, message: bytes | None) -> bool:
    if not message or _MARK not in message:
        return False
    if queue in services.app.amqp.queues:
        return True
    task_id = json.loads(message)["headers"]["id"]
    return services.entries.handed_over_ms(task_id) is not None


def forlorn_stores(services: Services, connection: Connection) -> list[str] | None:
    """Return a sentence for each other store with tasks for this app's queues, and no scanner.

    It looks at some 20 tasks of each. ``None`` if Redis refuses to search, or to
    read another store.

    Args:
        services: The app's.
        connection: A connection to the store's Redis; in a Cluster, to a node.
    """

    def run(*command: bytes | str | int) -> Any:
        return ask(connection, *command)

    told = run("TIME")
    if not told or run("SCAN", 0, "COUNT", 1) is None:
        return None
    now_ms = int(told[0]) * 1000
    names = {label_of(name): name for name in services.app.amqp.queues}
    tasks: Counter[str] = Counter()
    queues: dict[str, str] = {}
    for key in _keys(run, "MATCH", "{*:*}:records"):
        tag = key[1:].partition(b"}")[0]
        prefix = tag.rpartition(b":")[0].decode(errors="replace")
        if prefix == services.settings.prefix or run(
            "ZCOUNT", b"{%s}:scanners" % tag, now_ms, "+inf"
        ):
            continue
        some = run("HSCAN", key, 0, "COUNT", SAMPLE)
        if some is None:
            return None
        tasks[prefix] += run("HLEN", key) or 0
        ours = [names[label] for label in map(_queue_in, some[1][1::2]) if label in names]
        if ours:
            queues[prefix] = ours[0]
    return [
        _FORLORN.format(waiting(tasks[prefix]), prefix, queue) for prefix, queue in queues.items()
    ]


def _keys(run: Callable[..., Any], *options: str) -> Iterator[bytes]:
    """Yield the matching keys among the first 100,000; none if Redis refuses."""
    cursor, looked = 0, 0
    while looked < MOST_KEYS:
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
    return Record(text, 3 + len(length) + int(length)).labels[1]

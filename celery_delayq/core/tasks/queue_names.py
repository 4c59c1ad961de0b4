"""Which queue a task belongs to; the store keeps only hashes of queue names.

hash --> the name with this hash, among the app's queues, paused queues and tasks' destinations
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from ..message.outgoing import Route, queues_of_list
from ..services import Services
from ..store import Entry, QueueCount, label_of


class QueueNames:
    """Finds the queue names of entries.

    It calls the store at most once: for the pauses, if neither an entry's destination nor the app
    has the name.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[bytes, str] = {}

    def of(self, entry: Entry) -> str:
        """Return the queue of an entry; empty if its record cannot be read."""
        record = entry.record
        if not record.text:
            return ""
        _, label = record.labels
        if label not in self._known:
            kind = "L" if record.is_for_list else "R"
            self._known[label] = self._found(QueueCount(label, 0, 0, kind, record.destination))
        return self._known[label]

    def _found(self, tally: QueueCount) -> str:
        # Any name with this hash is the right one, so try the cheapest sources first.
        names = names_in(tally, self._services.broker.options)
        known = chain(names, self._services.app.amqp.queues, self._paused())
        return next((name for name in known if label_of(name) == tally.label), names[0])

    def _paused(self) -> Iterator[str]:
        yield from self._pauses

    @cached_property
    def _pauses(self) -> list[str]:
        return [pause.queue for pause in self._services.entries.pauses() if pause.queue]


def names_in(tally: QueueCount, options: Any) -> Sequence[str]:
    """Return possible names of the queue, from a task's destination; the likeliest first."""
    if tally.kind == "L":
        return queues_of_list(tally.place, options)
    # Any client of the store can write an invalid route.
    try:
        return [*_names_of(Route.parse(tally.place))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [tally.place]


def _names_of(route: Route) -> Iterator[str]:
    yield str(route.routing_key)
    yield from (str(entity.name) for entity in route.declare)

"""Queues by name: how many tasks of each wait, and of which one a task is.

The store knows queues by hashes of their names only.

hash --> a name that has it: of the app's queues, of what is paused, of where a task goes to
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from ..message.outgoing import queues_of_list
from ..message.route import Route
from ..services import Services
from ..store import Entry, Pause, Tally, label_of

MOST = 10_000  # waiting tasks that are looked at
FOR_NAMES = 500  # of them, where only names are wanted: one call


@dataclass(frozen=True)
class QueueCounts:
    """How many tasks of a queue wait.

    Attributes:
        queue: The queue that they were sent with, or where they go to if that is not known; empty
            for what cannot be read.
        waiting: So many wait, with those that are overdue.
        overdue: So many are due, or were refused and will be tried again.
    """

    queue: str
    waiting: int
    overdue: int


def queue_counts(services: Services, pauses: Iterable[Pause]) -> tuple[list[QueueCounts], bool]:
    """What waits, queue by queue, by name; and whether that is all of it.

    The 10,000 tasks that are due next are looked at, and the overdue ones first.
    """
    tallies, is_complete = services.entries.tallies(MOST)
    known = _by_label(services, pauses) if tallies else {}
    waiting: defaultdict[str, int] = defaultdict(int)
    overdue: defaultdict[str, int] = defaultdict(int)
    for one in tallies:
        name = _name_of(one, known, services.broker.options) if one.label else ""
        waiting[name] += one.waiting
        overdue[name] += one.overdue
    counts = [QueueCounts(name, waiting[name], overdue[name]) for name in sorted(waiting)]
    return counts, is_complete


def names_of(services: Services, labels: set[bytes]) -> dict[bytes, str]:
    """Names of queues by their hashes: of the app's queues.

    Where *labels* has others, also of what is paused, and of the 500 tasks that are due next.
    """
    known = _by_label(services, ())
    if labels <= known.keys():
        return known
    known = _by_label(services, services.entries.pauses())
    if not labels <= known.keys():
        for one in services.entries.tallies(FOR_NAMES)[0]:
            if one.label in labels:
                name = _name_of(one, known, services.broker.options)
                # Where it goes to may not tell what it was sent with.
                known.setdefault(label_of(name), name)
    return known


class QueueNames:
    """Names the queues of one entry after another, as :func:`queue_counts` does.

    The store is asked once at most: for pauses, where neither where an entry goes to nor the app
    tells the name.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[bytes, str] = {}

    def of(self, entry: Entry) -> str:
        """The queue of an entry; empty where its record cannot be read."""
        record = entry.record
        if not record.text:
            return ""
        _, label = record.labels
        if label not in self._known:
            kind = "L" if record.is_for_list else "R"
            self._known[label] = self._found(Tally(label, 0, 0, kind, record.destination))
        return self._known[label]

    def _found(self, tally: Tally) -> str:
        # A name that has the hash is the name, whoever knows it: the cheapest are asked first.
        names = _names_in(tally, self._services.broker.options)
        known = chain(names, self._services.app.amqp.queues, self._paused())
        return next((name for name in known if label_of(name) == tally.label), names[0])

    def _paused(self) -> Iterator[str]:
        yield from self._pauses

    @cached_property
    def _pauses(self) -> list[str]:
        return [one.queue for one in self._services.entries.pauses() if one.queue]


def _by_label(services: Services, pauses: Iterable[Pause]) -> dict[bytes, str]:
    names = [*services.app.amqp.queues, *(one.queue for one in pauses if one.queue)]
    return {label_of(name): name for name in names}


def _name_of(tally: Tally, known: dict[bytes, str], options: Any) -> str:
    if tally.label in known:
        return known[tally.label]
    names = _names_in(tally, options)
    return next((name for name in names if label_of(name) == tally.label), names[0])


def _names_in(tally: Tally, options: Any) -> Sequence[str]:
    """What the queue may be called, by where one of its tasks goes to; the likeliest first."""
    if tally.kind == "L":
        return queues_of_list(tally.place, options)
    # Whoever can write to the store can write a route that is none.
    try:
        return [*_names_of(Route.parse(tally.place))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [tally.place]


def _names_of(route: Route) -> Iterator[str]:
    yield str(route.routing_key)
    yield from (str(one.name) for one in route.declare)

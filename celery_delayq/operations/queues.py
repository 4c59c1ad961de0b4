"""How many tasks wait for each queue.

The store keeps only hashes of queue names.

hash --> the name with this hash, among the app's queues, paused queues and tasks' destinations
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..core.services import Services
from ..core.store import Pause, QueueCount, label_of
from ..core.store.counts import WalkPosition, walk
from ..core.tasks.reading import names_in

MOST = 10_000  # waiting tasks to read for counts
FOR_NAMES = 500  # waiting tasks to read for names only: one call


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


def queue_counts(services: Services, pauses: Iterable[Pause]) -> tuple[list[QueueCounts], bool]:
    """Return the waiting tasks per queue, sorted by name, and whether all were counted.

    It reads the next 10,000 tasks in due order, overdue ones first.
    """
    tallies, is_complete = services.entries.tallies(MOST)
    known = _by_label(services, pauses) if tallies else {}
    waiting: defaultdict[str, int] = defaultdict(int)
    overdue: defaultdict[str, int] = defaultdict(int)
    for tally in tallies:
        name = _name_of(tally, known, services.broker.options) if tally.label else ""
        waiting[name] += tally.waiting
        overdue[name] += tally.overdue
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
        for tally in services.entries.tallies(FOR_NAMES)[0]:
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

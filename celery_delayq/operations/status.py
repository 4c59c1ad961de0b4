"""The status of a store in plain values, for ``status`` and ``inspect delayq``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from math import inf
from typing import Any

from ..core.clock import from_ms
from ..core.services import HasServices, Services
from ..core.store import Counts, Pause
from ..core.threads import gather
from .queues import QueueCounts, queue_counts, tally

__all__ = ["QueueCounts", "ScannerSeen", "Status", "status"]


@dataclass(frozen=True)
class ScannerSeen:
    """A live scanner.

    Attributes:
        name: Host, process id and a unique part, joined by colons.
        seen: The time of its last heartbeat, by Redis's clock, in UTC.
        since: When it joined the store; ``None``: unknown.
    """

    name: str
    seen: datetime
    since: datetime | None = None

    @property
    def host(self) -> str:
        """The host that it runs on."""
        return self.name.rsplit(":", 2)[0]


@dataclass(frozen=True)
class Status:
    """The status of a store.

    Attributes:
        store: The URL of its Redis, without secrets.
        prefix: The prefix of its keys.
        path: How due tasks reach their queues: ``"direct"``, in a script on the broker's own Redis,
            or ``"relay"``, published through the broker.
        counts: The number of tasks in each state.
        pauses: The pauses, including those that are resuming.
        scanners: The live scanners, sorted by name.
        queues: The number of waiting tasks per queue, sorted by name.
        queues_complete: Whether *queues* counts all waiting tasks; ``False`` if it counts the first
            10,000 in due order, or if you passed ``queues=False``.
        other_broker: The live scanners' broker if it is not the app's, or if they reach it on other
            hosts. Otherwise ``None``.
    """

    store: str
    prefix: str
    path: str
    counts: Counts
    pauses: Sequence[Pause]
    scanners: Sequence[ScannerSeen]
    queues: Sequence[QueueCounts]
    queues_complete: bool
    other_broker: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return all of it as JSON values; times are ISO 8601 in UTC."""
        return {
            "store": self.store,
            "prefix": self.prefix,
            "path": self.path,
            "other_broker": self.other_broker,
            **counts_facts(self.counts),
            "scanners": [
                {
                    "name": scanner.name,
                    "seen": scanner.seen.isoformat(),
                    "since": scanner.since and scanner.since.isoformat(),
                }
                for scanner in self.scanners
            ],
            "pauses": [_pause_facts(pause) for pause in self.pauses],
            **self._of_queues(),
        }

    def _of_queues(self) -> dict[str, Any]:
        if not self.queues and not self.queues_complete:
            return {}
        queues = [asdict(queue) for queue in self.queues]
        return {"queues": queues, "queues_complete": self.queues_complete}


def status(delayq: HasServices, *, queues: bool = True) -> Status:
    """The state of the store: counts, pauses, scanners by name, waiting tasks by queue.

    It reads in short steps, and at most 10,000 waiting tasks.

    Args:
        queues: Whether to count the waiting tasks per queue, the slowest part.

    Returns:
        A :class:`~celery_delayq.operations.status.Status`, with ``facts()`` for JSON.
    """
    return status_of(delayq.services, queues=queues)


def status_of(services: Services, *, queues: bool = True, seconds: float = inf) -> Status:
    """Return the same; *seconds* bounds how long it counts tasks per queue, after the first 500."""
    entries = services.entries
    # Check each time: a long-running process must notice when the scanners' broker changes.
    other_broker, counts, pauses, alive, tallies = gather(
        entries.check_membership,
        entries.counts,
        entries.pauses,
        entries.scanners,
        partial(tally, services, seconds) if queues else list,
    )
    by_queue, is_complete = queue_counts(services, pauses, tallies) if queues else ([], False)
    scanners = [
        ScannerSeen(
            scanner.name,
            from_ms(scanner.seen_ms),
            None if scanner.since_ms is None else from_ms(scanner.since_ms),
        )
        for scanner in alive
    ]
    return Status(
        store=services.endpoint.url,
        prefix=services.settings.prefix,
        path="direct" if services.store_is_broker else "relay",
        counts=counts,
        pauses=pauses,
        scanners=scanners,
        queues=by_queue,
        queues_complete=is_complete,
        other_broker=other_broker or None if scanners else None,
    )


#: What ``status`` and the page say if the counts are not exact.
NOT_EXACT = (
    "not counted exactly, as not all due tasks were looked at for a pause: at least {paused:,} are "
    "paused, at most {overdue:,} overdue; celery -A proj delayq list --state paused counts them all"
)


def counts_facts(counts: Counts) -> dict[str, Any]:
    """Return the counts by name; times as text."""
    names = ("scheduled", "overdue", "refused", "paused", "in_flight", "dead")
    return {
        **{name: getattr(counts, name) for name in names},
        "oldest_overdue": _time(counts.oldest_overdue_ms),
        "next_due": _time(counts.next_due_ms),
        "is_exact": counts.is_exact,
        "began": _time(counts.began_ms),
        "rules": counts.rules,
        "troubled_rules": counts.troubled_rules,
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else from_ms(ms).isoformat()


def _pause_facts(pause: Pause) -> dict[str, Any]:
    """Return a pause's attributes by name; its times as text."""
    held = pause.held_since and pause.held_since.isoformat()
    return {**asdict(pause), "since": pause.since.isoformat(), "held_since": held}

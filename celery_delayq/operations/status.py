"""How a store stands, in plain values: what ``status`` and ``inspect delayq`` show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ..clock import from_ms
from ..services import HasServices
from ..store import Counts, Pause
from .queues import QueueCounts, queue_counts

__all__ = ["QueueCounts", "ScannerSeen", "Status", "status"]


@dataclass(frozen=True)
class ScannerSeen:
    """A scanner that is alive.

    Attributes:
        name: Where it runs: host, process id, and what no other has; colons between.
        seen: When it gave its last heartbeat, by Redis's clock, in UTC.
    """

    name: str
    seen: datetime

    @property
    def host(self) -> str:
        """The host that it runs on."""
        return self.name.rsplit(":", 2)[0]


@dataclass(frozen=True)
class Status:
    """How a store stands.

    Attributes:
        store: The URL of its Redis, without what is secret.
        prefix: What the names of its keys begin with.
        path: How what is due reaches its queue: ``"direct"``, in a step of the broker's own Redis,
            or ``"relay"``, published through the broker.
        counts: How many tasks are in which state.
        pauses: What is paused, or comes back.
        scanners: Those that are alive, by name.
        queues: How many tasks wait, queue by queue, by name.
        queues_complete: Whether those are all that wait; ``False``: the first 10,000 in due order,
            or none where it was not asked for queue by queue.
        other_broker: The broker of the scanners that are alive, where it is not the app's: what the
            app schedules goes there. Else ``None``.
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
        """All of it as JSON can have it; times are ISO 8601 in UTC."""
        return {
            "store": self.store,
            "prefix": self.prefix,
            "path": self.path,
            "other_broker": self.other_broker,
            **counts_facts(self.counts),
            "scanners": [{"name": one.name, "seen": one.seen.isoformat()} for one in self.scanners],
            "pauses": [pause_facts(one) for one in self.pauses],
            **self._of_queues(),
        }

    def _of_queues(self) -> dict[str, Any]:
        if not self.queues and not self.queues_complete:
            return {}
        queues = [asdict(one) for one in self.queues]
        return {"queues": queues, "queues_complete": self.queues_complete}


def status(delayq: HasServices, *, queues: bool = True) -> Status:
    """The state of the store: counts, pauses, scanners by name, waiting tasks by queue.

    It reads in short steps, and looks at 10,000 waiting tasks at most.

    Args:
        queues: Whether it is wanted queue by queue, which takes longest.

    Returns:
        A :class:`~celery_delayq.operations.status.Status`, with ``facts()`` for JSON.
    """
    services = delayq.services
    entries = services.entries
    # Asked each time: whoever asks for years shall hear of a broker that the scanners have since.
    other_broker = entries.check_membership()
    counts, pauses = entries.counts(), entries.pauses()
    by_queue, is_complete = queue_counts(services, pauses) if queues else ([], False)
    scanners = [ScannerSeen(one.name, from_ms(one.seen_ms)) for one in entries.scanners()]
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


def counts_facts(counts: Counts) -> dict[str, Any]:
    """The counts by their names; times as text."""
    names = ("scheduled", "overdue", "refused", "paused", "in_flight", "dead")
    return {
        **{name: getattr(counts, name) for name in names},
        "oldest_overdue": _time(counts.oldest_overdue_ms),
        "next_due": _time(counts.next_due_ms),
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else from_ms(ms).isoformat()


def pause_facts(pause: Pause) -> dict[str, Any]:
    """A pause by the names of its attributes; its time as text."""
    return {**asdict(pause), "since": pause.since.isoformat()}

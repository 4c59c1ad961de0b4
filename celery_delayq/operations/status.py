"""How a store stands, in plain values: what ``status --json`` and ``inspect delayq`` show."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..clock import from_ms
from ..services import Services
from ..store import Counts, Pause


def status(services: Services) -> dict[str, Any]:
    """The counts, the pauses, and which store they are of; all of it can be JSON."""
    entries = services.entries
    return {
        "store": services.endpoint.url,
        "prefix": services.settings.prefix,
        **counts_facts(entries.counts()),
        "pauses": [pause_facts(one) for one in entries.pauses()],
    }


def counts_facts(counts: Counts) -> dict[str, Any]:
    """The counts by their names; the next due time as text."""
    due = None if counts.next_due_ms is None else from_ms(counts.next_due_ms)
    names = ("scheduled", "overdue", "refused", "paused", "in_flight", "dead", "scanners")
    return {
        **{name: getattr(counts, name) for name in names},
        "next_due": due and due.isoformat(),
    }


def pause_facts(pause: Pause) -> dict[str, Any]:
    """A pause by the names of its attributes; its time as text."""
    return {**asdict(pause), "since": pause.since.isoformat()}

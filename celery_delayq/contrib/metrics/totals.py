"""Counters and histograms of one process, fed by the hooks of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from ...core.hooks import Hooks
from ...core.services import HasServices, Services
from ...core.store import Cancelled, Outcome
from .names import COUNTED, Metric


def watch(delayq: HasServices, registry: CollectorRegistry = REGISTRY) -> None:
    """Count this process's steps on tasks from now on; a second call changes nothing.

    Child processes that are forked later count as well. To see their counts, set
    ``PROMETHEUS_MULTIPROC_DIR`` before any of the processes starts.

    Args:
        delayq: The ``DelayQ`` of the app whose tasks to count.
        registry: The registry of the counters; it adds up the apps that share it.
    """
    totals = _TOTALS.get(registry)
    if totals is None:
        totals = _TOTALS[registry] = Totals(registry)
    totals.watch(delayq.services)


class Totals:
    """The counters and histograms of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._watched: WeakSet[Services] = WeakSet()
        self._made = {metric.name: _make(metric, registry) for metric in COUNTED}
        of = self._made
        self._hooks = Hooks(
            scheduled=lambda entries: of["scheduled"].inc(len(entries)),
            unreplicated=of["unreplicated"].inc,
            unscheduled=lambda count, error: of["schedule_failures"].labels(error).inc(count),
            rescheduled=lambda *_: of["rescheduled"].labels("done").inc(),
            edited=lambda *_: of["edited"].labels("done").inc(),
            cancelled=self._cancelled,
            undone=lambda tasks: of["undone"].inc(len(tasks)),
            missed=self._missed,
            skipped=lambda *_: of["skipped"].inc(),
            slots_omitted=lambda count, why: of["rule_slots_omitted"].labels(why).inc(count),
            left=self._left,
            refused=lambda path, count: of["refused"].labels(path).inc(count),
            uncertain=of["uncertain"].inc,
            reclaimed=lambda ids: of["lease_recoveries"].inc(len(ids)),
            broker_down=of["broker_failures"].inc,
            dead=lambda *_: of["dead"].inc(),
            restarted=lambda _: of["scanner_restarts"].inc(),
            called=lambda name, took: of["script_duration_seconds"].labels(name).observe(took),
            hears_left=lambda: True,
        )

    def watch(self, services: Services) -> None:
        if services not in self._watched:
            self._watched.add(services)
            services.hooks.add(self._hooks)

    def _cancelled(self, cancelled: Sequence[Cancelled]) -> None:
        for entry in cancelled:
            result = "replaced" if entry.reason.startswith("replaced by ") else entry.outcome.value
            self._made["cancelled"].labels(result).inc()

    def _missed(self, what: str, outcome: Outcome) -> None:
        self._made[_CALLS[what]].labels(outcome.value).inc()

    def _left(self, path: str, late: Sequence[float]) -> None:
        self._made["handed_over"].labels(path).inc(len(late))
        lateness = self._made["handover_lateness_seconds"].labels(path)
        for seconds in late:
            lateness.observe(seconds)


_CALLS = {"cancel": "cancelled", "reschedule": "rescheduled", "edit": "edited"}
_KINDS: dict[str, Any] = {"counter": Counter, "histogram": Histogram}
_TOTALS: WeakKeyDictionary[CollectorRegistry, Totals] = WeakKeyDictionary()


def _make(metric: Metric, registry: CollectorRegistry) -> Any:
    bounds = {"buckets": metric.buckets} if metric.buckets else {}
    made = _KINDS[metric.kind](
        metric.full_name, metric.says, metric.labels, registry=registry, **bounds
    )
    for value in metric.values:
        made.labels(value)  # exposed from the start, as 0: a rate needs a first value
    return made

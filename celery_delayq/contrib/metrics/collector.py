"""Gauges of the store, read at each scrape."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Thread

from prometheus_client.core import GaugeMetricFamily

from ... import __version__
from ...core import clock
from ...core.errors import StoreError
from ...core.services import HasServices
from ...core.text import logger_of, plain
from ...operations.queues import Look, QueueCounts
from ...operations.status import Status, status
from .names import READ, Metric

logger = logger_of(__name__)

MOST_LABELS = 100  # queues, and pauses, with a label of their own
LOOK_EVERY = 300.0  # seconds; each worker's metrics ask all workers
OTHER = "other"  # the label of all further queues
UNREADABLE = "unreadable"  # the label of entries without a queue, as an empty label is none

Samples = dict[str, float]  # label -> value; "" for a metric without labels


class Collector:
    """Collects the gauges of an app's store: ``REGISTRY.register(Collector(delayq))``.

    Each scrape reads the store. It raises nothing and ends within ``delayq_timeout``: if the store
    has not answered by then, ``celery_delayq_store_up`` is 0 and the other gauges of the store are
    absent. A registry takes one collector.
    """

    def __init__(self, delayq: HasServices) -> None:
        self._delayq = delayq
        self._reading: tuple[int, Future[dict[str, Samples]]] | None = None
        self._look = Look(delayq.services, LOOK_EVERY)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """List the gauges for the registry, without values and without asking the store."""
        return (_family(metric, {}) for metric in READ)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the gauges and their values."""
        samples = {"build_info": {__version__: 1.0}, "store_up": {"": 0.0}, **self._read()}
        return (_family(metric, samples[metric.name]) for metric in READ if metric.name in samples)

    def _read(self) -> dict[str, Samples]:
        try:
            return self._begun().result(self._delayq.services.settings.timeout)
        except (StoreError, FutureTimeout) as error:
            logger.debug("the store does not report its state: %r", error)
        except Exception:
            logger.warning("metrics of the store could not be read", exc_info=True)
        return {}

    def _begun(self) -> Future[dict[str, Samples]]:
        """Return the reading under way, or start one.

        It makes several calls, and each may take as long as the scrape may. So it runs in a thread,
        and only one waits for a store that hangs, however often you scrape.
        """
        reading, process = self._reading, os.getpid()
        if reading is None or reading[0] != process or reading[1].done():
            future: Future[dict[str, Samples]] = Future()
            self._reading = reading = process, future
            Thread(
                target=_fulfil,
                args=(future, self._delayq, self._look),
                name="delayq-scrape",
                daemon=True,
            ).start()
        return reading[1]


def _fulfil(future: Future[dict[str, Samples]], delayq: HasServices, look: Look) -> None:
    try:
        samples = samples_of(status(delayq), _clock_difference(delayq))
        if (unread := look()) is not None:
            samples["unread_queues"] = {"": float(len(unread))}
        future.set_result(samples)
    except BaseException as error:
        future.set_exception(error)


def _clock_difference(delayq: HasServices) -> float:
    """Return how many seconds Redis's clock is ahead; wrong by half a round trip at most."""
    before = clock.utc_now().timestamp()
    there = (delayq.services.entries.counts().now_ms + 0.5) / 1000
    return there - (before + clock.utc_now().timestamp()) / 2


def samples_of(found: Status, clock_difference: float) -> dict[str, Samples]:
    """Return the samples of a store's status, by the metrics' names."""
    counts = found.counts
    samples = {
        "store_up": 1,
        "waiting_tasks": counts.scheduled,
        "overdue_tasks": counts.overdue,
        "oldest_overdue_seconds": _seconds(counts.now_ms, counts.oldest_overdue_ms) or 0,
        "in_flight_tasks": counts.in_flight,
        "refused_tasks": counts.refused,
        "paused_tasks": counts.paused,
        "oldest_paused_seconds": max(
            (pause.seconds_held(counts.now_ms) for pause in found.pauses), default=0
        ),
        "coming_back_seconds": max((pause.seconds_left for pause in found.pauses), default=0),
        "dead_tasks": counts.dead,
        "scanners": len(found.scanners),
        "rules": counts.rules,
        "troubled_rules": counts.troubled_rules,
        "rules_late_seconds": max(0, _seconds(counts.now_ms, counts.rule_look_ms) or 0),
        "queues_complete": found.queues_complete,
        "clock_difference_seconds": clock_difference,
    }
    if_known = {
        "next_due_seconds": _seconds(counts.next_due_ms, counts.now_ms),
        "store_age_seconds": _seconds(counts.now_ms, counts.began_ms),
        "scanner_age_seconds": _seconds(counts.now_ms, counts.scanner_ms),
    }
    samples |= {name: value for name, value in if_known.items() if value is not None}
    by_queue = {}
    if found.queues_complete:
        by_queue = {
            "queue_waiting_tasks": _by_queue(found.queues, "waiting"),
            "queue_overdue_tasks": _by_queue(found.queues, "overdue"),
        }
    labelled = {"paused_seconds": _paused(found), **by_queue}
    return {**{name: {"": float(value)} for name, value in samples.items()}, **labelled}


def _seconds(later_ms: int | None, earlier_ms: int | None) -> float | None:
    if later_ms is None or earlier_ms is None:
        return None
    return (later_ms - earlier_ms) / 1000


def _paused(found: Status) -> Samples:
    now_s = found.counts.now_ms / 1000
    held = [pause for pause in found.pauses if not pause.resumed]
    longest = sorted(held, key=lambda pause: (pause.since, pause.what))[:MOST_LABELS]
    return {plain(pause.what): max(0.0, now_s - pause.since.timestamp()) for pause in longest}


def _by_queue(queues: Sequence[QueueCounts], what: str) -> Samples:
    ranked = sorted(queues, key=lambda queue: (-queue.waiting, queue.queue))
    samples: Samples = {}
    for place, queue in enumerate(ranked):
        # A label that is not UTF-8 would end the whole scrape, and terminals show labels.
        own = plain(queue.queue) or UNREADABLE
        name = own if place < MOST_LABELS else OTHER
        samples[name] = samples.get(name, 0.0) + getattr(queue, what)
    return samples


def _family(metric: Metric, samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric.full_name, metric.says, labels=metric.labels)
    for label, value in samples.items():
        family.add_metric([label] if metric.label else [], value)
    return family

"""Counts the steps of a process, reads the state of its store, and serves both to Prometheus.

hooks of the steps --> Totals: counters and histograms of this process
a scrape ------------> Collector: gauges, read from the store at that moment
Serving: prometheus-client's HTTP server, in the process of a scanner
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from weakref import WeakKeyDictionary, WeakSet
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from ... import __version__
from ...core import clock
from ...core.errors import InvalidSetting, StoreError
from ...core.hooks import Hooks
from ...core.services import HasServices, Services
from ...core.store import Cancelled, Outcome
from ...core.text import logger_of, plain
from ...core.threads import OwnThread
from ...operations.health import between, quick
from ...operations.queues import Look, QueueCounts
from ...operations.status import Status, status
from .names import COUNTED, Metric, gauges

logger = logger_of(__name__)

MOST_LABELS = 100  # queues, and pauses, with a label of their own
LOOK_EVERY = 300.0  # seconds; each worker's metrics ask all workers
OTHER = "other"  # the label of all further queues
UNREADABLE = "unreadable"  # the label of entries without a queue, as an empty label is none
AGAIN = 5.0  # most seconds between two attempts to get a port that is in use
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # a folder in which processes count together
_CALLS = {"cancel": "cancelled", "reschedule": "rescheduled", "edit": "edited"}
_KINDS: dict[str, Any] = {"counter": Counter, "histogram": Histogram}
_TOTALS: WeakKeyDictionary[CollectorRegistry, Totals] = WeakKeyDictionary()
Samples = dict[str, float]  # label -> value; "" for a metric without labels


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


def _make(metric: Metric, registry: CollectorRegistry) -> Any:
    bounds = {"buckets": metric.buckets} if metric.buckets else {}
    made = _KINDS[metric.kind](
        metric.full_name, metric.says, metric.labels, registry=registry, **bounds
    )
    for value in metric.values:
        made.labels(value)  # exposed from the start, as 0: a rate needs a first value
    return made


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
        return (_family(metric, {}) for metric in gauges())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the gauges and their values."""
        samples = {"build_info": {__version__: 1.0}, "store_up": {"": 0.0}, **self._read()}
        known = (metric for metric in gauges() if metric.name in samples)
        return (_family(metric, samples[metric.name]) for metric in known)

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
    samples: dict[str, float | None] = {
        "store_up": 1,
        "waiting_tasks": counts.scheduled,
        "in_flight_tasks": counts.in_flight,
        "next_due_seconds": between(counts.next_due_ms, counts.now_ms),
        "queues_complete": found.queues_complete,
        "clock_difference_seconds": clock_difference,
        **{gauge.name: gauge.read(found) for check in quick() for gauge in check.gauges},
    }
    known = {name: {"": float(value)} for name, value in samples.items() if value is not None}
    by_queue = {}
    if found.queues_complete:
        by_queue = {
            "queue_waiting_tasks": _by_queue(found.queues, "waiting"),
            "queue_overdue_tasks": _by_queue(found.queues, "overdue"),
        }
    labelled = {"paused_seconds": _paused(found), **by_queue}
    return {**known, **labelled}


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


class Serving:
    """Counts this process's steps from now on; once started, serves them and the store's gauges.

    If another process has the port, it tries again with each heartbeat, and takes the port over
    when that process has ended.

    It serves prometheus-client's default registry. If ``PROMETHEUS_MULTIPROC_DIR`` is set, it
    serves the counts of all processes that use this folder.

    Raises:
        InvalidSetting: ``PROMETHEUS_MULTIPROC_DIR`` is not a folder.
    """

    def __init__(self, delayq: HasServices, port: int, host: str) -> None:
        self._delayq = delayq
        self._port = port
        self._host = host
        self._collector = Collector(delayq)
        self._registry: CollectorRegistry = REGISTRY
        self._server: tuple[WSGIServer, Thread] | None = None
        self._again = min(AGAIN, delayq.services.settings.safety_interval)
        self._is_over = Event()
        self._trying = OwnThread("delayq-metrics", self._try_on, self._is_over)
        if SHARED in os.environ:
            if not Path(os.environ[SHARED]).is_dir():
                raise InvalidSetting(SHARED, os.environ[SHARED], "the path of a folder")
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        watch(delayq)
        _MADE.add(self)

    def start(self) -> None:
        """Serve, in a thread; if the port is in use, log it and keep trying in a thread."""
        try:
            self._registry.register(self._collector)
        except ValueError:
            logger.debug("the app has registered a collector of its own")
        try:
            self._serve()
        except OSError as error:
            facts = self._host, self._port, error, self._again
            logger.warning(
                "metrics are not served on %s, port %d: %s; trying again every %.1f s", *facts
            )
            self._trying.start()

    def _try_on(self) -> None:
        while self._server is None and not self._is_over.wait(self._again):
            with suppress(OSError):
                self._serve()

    def _serve(self) -> None:
        self._server = start_http_server(self._port, self._host, self._registry)
        logger.info("metrics are served on http://%s:%d/metrics", self._host, self._port)

    def stop(self) -> None:
        """Stop the server, or the attempts to start it."""
        self._is_over.set()
        if self._trying.is_alive():
            self._trying.join()
        served, self._server = self._server, None
        if served is not None:
            server, thread = served
            server.shutdown()
            server.server_close()
            thread.join()

    def let_go(self) -> None:
        """In a forked child: close its copy of the socket, which would keep the port."""
        if self._server is not None:
            self._server[0].socket.close()


_MADE: weakref.WeakSet[Serving] = weakref.WeakSet()


def _let_go_all() -> None:
    for serving in list(_MADE):
        serving.let_go()


# A child process may outlive a worker that was killed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_all)

"""Every metric: name, labels, and what it says; the docs' table is made of these lines."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "celery_delayq_"

# Seconds. Most tasks leave within some milliseconds; one that waits for an hour is worth a bucket.
LATENESS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    3600,
)
ROUND_TRIP = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: Without the prefix; of a counter without ``_total``.
        kind: ``gauge``, ``counter`` or ``histogram``.
        says: What its value is.
        label: The name of its label, if it has one.
        values: All that the label can be, where that is known; they are told from the start.
        buckets: Upper bounds, of a histogram.
    """

    name: str
    kind: str
    says: str
    label: str = ""
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def exposed(self) -> str:
        """The name that a query has, of a histogram without the ending of its series."""
        return self.full_name + "_total" * (self.kind == "counter")

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,) if self.label else ()


_PATHS = ("direct", "relay")
_ANSWERS = ("handed_over", "in_flight", "not_found", "unchanged")

# At each scrape.
READ = (
    Metric("store_up", "gauge", "1; 0 when the store's Redis did not answer this scrape"),
    Metric("waiting_tasks", "gauge", "tasks that wait, with those that are overdue"),
    Metric("overdue_tasks", "gauge", "of these, tasks whose due time is over"),
    Metric("oldest_overdue_seconds", "gauge", "how long the oldest of them is overdue; or 0"),
    Metric(
        "next_due_seconds",
        "gauge",
        "until the next task is due, below 0 if it is overdue; absent if no task waits",
    ),
    Metric("in_flight_tasks", "gauge", "tasks that are being published under a lease"),
    Metric("refused_tasks", "gauge", "tasks that were refused, and wait for their next try"),
    Metric("paused_tasks", "gauge", "tasks that fell due while they are paused"),
    Metric("dead_tasks", "gauge", "tasks that are kept and not tried any more"),
    Metric("scanners", "gauge", "scanners that are alive"),
    Metric("queue_waiting_tasks", "gauge", "tasks that wait, by queue", "queue"),
    Metric("queue_overdue_tasks", "gauge", "of these, tasks whose due time is over", "queue"),
    Metric(
        "queues_complete",
        "gauge",
        "1; 0 if too many tasks wait to count them by queue",
    ),
    Metric(
        "clock_difference_seconds",
        "gauge",
        "how far Redis's clock is ahead of this process's, estimated at each scrape",
    ),
    Metric("build_info", "gauge", "1, with the version of this package", "version"),
)

# In each process, when it happens there.
COUNTED = (
    Metric("scheduled", "counter", "tasks that were scheduled"),
    Metric(
        "unreplicated",
        "counter",
        "of these, tasks on fewer replicas than `delayq_wait_replicas` asks for, as far as known",
    ),
    Metric(
        "cancelled",
        "counter",
        "tasks that were cancelled (`done`, `uncertain`) or `replaced`, and calls of `cancel` and "
        "`remove` that came to nothing",
        "result",
        ("done", "uncertain", "replaced", *_ANSWERS),
    ),
    Metric(
        "rescheduled",
        "counter",
        "tasks that were moved, and calls of `reschedule`, `run_now` and `retry` that came to "
        "nothing",
        "result",
        ("done", *_ANSWERS),
    ),
    Metric(
        "edited",
        "counter",
        "tasks that were edited, and calls of `edit` that came to nothing",
        "result",
        ("done", *_ANSWERS),
    ),
    Metric("skipped", "counter", "tasks that were skipped as too late"),
    Metric("handed_over", "counter", "tasks that went to their queues", "path", _PATHS),
    Metric("refused", "counter", "deliveries that were refused, to be tried again", "path", _PATHS),
    Metric("uncertain", "counter", "tasks that were published without an answer"),
    Metric("lease_recoveries", "counter", "leases that ran out and were taken back"),
    Metric("broker_failures", "counter", "attempts to relay while the broker was down"),
    Metric("dead", "counter", "tasks that became dead"),
    Metric(
        "handover_lateness_seconds",
        "histogram",
        "from the due time to delivery, by Redis's clock",
        "path",
        _PATHS,
        LATENESS,
    ),
    Metric(
        "script_duration_seconds",
        "histogram",
        "round trip of a script to Redis, failed or not",
        "script",
        (),
        ROUND_TRIP,
    ),
)

METRICS = (*READ, *COUNTED)

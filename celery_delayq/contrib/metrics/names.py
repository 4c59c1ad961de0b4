"""Every metric: name, labels, and what it says; the docs' table is made of these lines."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "celery_delayq_"

# Seconds. Most tasks leave within milliseconds, but one that is an hour late deserves a bucket.
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
        says: The meaning of its value.
        label: The name of its label, if it has one.
        values: All values of the label, if known; they are exposed from the start.
        buckets: The upper bounds of a histogram.
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
        """The name in a query; a histogram's series have further endings."""
        return self.full_name + "_total" * (self.kind == "counter")

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,) if self.label else ()


_PATHS = ("direct", "relay")
_ANSWERS = ("handed_over", "in_flight", "not_found", "unchanged")

# At each scrape.
READ = (
    Metric("store_up", "gauge", "1; 0 when the store's Redis did not answer this scrape"),
    Metric("waiting_tasks", "gauge", "waiting tasks, overdue ones included"),
    Metric("overdue_tasks", "gauge", "of these, tasks past their due time"),
    Metric("oldest_overdue_seconds", "gauge", "how long the oldest of them is overdue, or 0"),
    Metric(
        "next_due_seconds",
        "gauge",
        "until the next task is due, below 0 if it is overdue; absent if no task is waiting",
    ),
    Metric("in_flight_tasks", "gauge", "tasks that are being published under a lease"),
    Metric("refused_tasks", "gauge", "tasks that were refused and wait for their next attempt"),
    Metric(
        "paused_tasks",
        "gauge",
        "paused tasks that are due; at least, until a scanner has met them all",
    ),
    Metric(
        "paused_seconds",
        "gauge",
        "how long everything, a queue or a task is paused, with `what` is; of the 100 that are "
        "paused for longest; absent if nothing is",
        "what",
    ),
    Metric("oldest_paused_seconds", "gauge", "how long the first of them is due and paused, or 0"),
    Metric(
        "coming_back_seconds",
        "gauge",
        "until the last task that comes back at a rate after a pause has its turn, or 0",
    ),
    Metric(
        "unread_queues",
        "gauge",
        "queues with tasks that no worker reads, and stores of another prefix with tasks for the "
        "app's queues, looked up each five minutes; absent if unknown",
    ),
    Metric("dead_tasks", "gauge", "tasks that are kept but not tried again"),
    Metric("scanners", "gauge", "scanners that are alive"),
    Metric(
        "store_age_seconds",
        "gauge",
        "since the store began, which it does anew when its Redis is emptied; of several shards, "
        "since the last one did; absent if unknown",
    ),
    Metric(
        "scanner_age_seconds",
        "gauge",
        "since the first of the live scanners joined the store, or that shard; absent if unknown",
    ),
    Metric("rules", "gauge", "recurring rules"),
    Metric("troubled_rules", "gauge", "recurring rules whose next run cannot be made"),
    Metric(
        "rules_late_seconds",
        "gauge",
        "for how long the next run of a recurring rule should have been written, or 0",
    ),
    Metric("queue_waiting_tasks", "gauge", "waiting tasks, by queue", "queue"),
    Metric("queue_overdue_tasks", "gauge", "of these, tasks past their due time", "queue"),
    Metric(
        "queues_complete",
        "gauge",
        "1; 0 if more tasks wait than a scrape reads, so that counts by queue are absent",
    ),
    Metric(
        "clock_difference_seconds",
        "gauge",
        "how far Redis's clock is ahead of this process's, to the precision of a scrape",
    ),
    Metric("build_info", "gauge", "1, with the version of this package", "version"),
)

# In each process, when it happens there.
COUNTED = (
    Metric("scheduled", "counter", "tasks that were scheduled"),
    Metric(
        "unreplicated",
        "counter",
        "of these, tasks not known to be on as many replicas as `delayq_wait_replicas` requires",
    ),
    Metric(
        "schedule_failures",
        "counter",
        "tasks that were not scheduled because the store was full or away, or refused them",
        "error",
        ("StoreFull", "StoreUnavailable", "StoreError"),
    ),
    Metric(
        "cancelled",
        "counter",
        "tasks that were cancelled (`done`, `uncertain`) or `replaced`, and calls of `cancel` and "
        "`remove` without effect",
        "result",
        ("done", "uncertain", "replaced", *_ANSWERS),
    ),
    Metric("undone", "counter", "cancelled tasks that were brought back"),
    Metric(
        "rescheduled",
        "counter",
        "tasks that were moved, and calls of `reschedule`, `run_now` and `retry` without effect",
        "result",
        ("done", *_ANSWERS),
    ),
    Metric(
        "edited",
        "counter",
        "tasks that were edited, and calls of `edit` without effect",
        "result",
        ("done", *_ANSWERS),
    ),
    Metric("skipped", "counter", "tasks that were skipped as too late"),
    Metric(
        "rule_slots_omitted",
        "counter",
        "slots of recurring rules without a run: their key was `held`, `missed` left them out, or "
        "the task's own `apply_async` `declined`",
        "reason",
        ("held", "missed", "declined"),
    ),
    Metric("handed_over", "counter", "tasks that were delivered to their queues", "path", _PATHS),
    Metric("refused", "counter", "refused deliveries, to be tried again", "path", _PATHS),
    Metric("uncertain", "counter", "tasks that were published without an answer"),
    Metric("lease_recoveries", "counter", "leases that ran out and were taken back"),
    Metric("broker_failures", "counter", "attempts to relay while the broker was down"),
    Metric("scanner_restarts", "counter", "ended scanner threads that were started again"),
    Metric("dead", "counter", "tasks that became dead"),
    Metric(
        "handover_lateness_seconds",
        "histogram",
        "from due time to delivery, by Redis's clock",
        "path",
        _PATHS,
        LATENESS,
    ),
    Metric(
        "script_duration_seconds",
        "histogram",
        "round trip of a script to Redis, failures included",
        "script",
        (),
        ROUND_TRIP,
    ),
)

METRICS = (*READ, *COUNTED)

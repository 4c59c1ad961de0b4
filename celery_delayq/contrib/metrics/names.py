"""Every metric, and the alerts on those that no check looks at.

The gauges that a check looks at, and their alerts, are the check's: see ``operations/health.py``.
The tables of the documents, and ``alerts.yml``, are made of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...operations.health import PREFIX, Alert, most, quick

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

# At each scrape, beside the gauges of checks.
_READ = (
    Metric("store_up", "gauge", "1; 0 when the store's Redis did not answer this scrape"),
    Metric("waiting_tasks", "gauge", "waiting tasks, overdue ones included"),
    Metric(
        "next_due_seconds",
        "gauge",
        "until the next task is due, below 0 if it is overdue; absent if no task is waiting",
    ),
    Metric("in_flight_tasks", "gauge", "tasks that are being published under a lease"),
    Metric(
        "paused_seconds",
        "gauge",
        "how long everything, a queue or a task is paused, with `what` is; of the 100 that are "
        "paused for longest; absent if nothing is",
        "what",
    ),
    Metric(
        "unread_queues",
        "gauge",
        "queues with tasks that no worker reads, and stores of another prefix with tasks for the "
        "app's queues, looked up each five minutes; absent if unknown",
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

_RATE = "sum by (job) (increase({}_total[5m])) > 0"
_CLOCK = f"{PREFIX}clock_difference_seconds"
ALERTS = (
    Alert(
        "DelayqUnknown", f"absent({PREFIX}store_up)",
        "No metrics of the store of scheduled tasks are scraped.",
        "No process that serves celery_delayq's metrics is scraped. If these were the scanners, no "
        "task is delivered.",
        "5m", "critical",
    ),
    Alert(
        "DelayqStoreAway", f"{most('store_up')} == 0",
        "The Redis in which tasks wait does not answer.",
        "No task can be scheduled or cancelled, and none is delivered. Due tasks are delivered "
        "when it is back.",
        "1m", "critical", "store",
    ),
    Alert(
        "DelayqLate",
        "histogram_quantile(0.99, sum by (job, le) "
        f"(rate({PREFIX}handover_lateness_seconds_bucket[5m]))) > 5",
        "One task in a hundred is delivered {{ $value | humanizeDuration }} late.",
        "Scanners do not keep up, or tasks were paused or refused until now.",
        "5m", line="round trip",
    ),
    Alert(
        "DelayqUnread", f"{most('unread_queues')} > 0",
        "Tasks are in {{ $value }} queues or stores that no worker reads.",
        "A queue's name or a worker's -Q is wrong, or a process has another delayq_prefix; `celery "
        "-A APP delayq health` says which.",
        "10m", line="workers",
    ),
    Alert(
        "DelayqUnscheduled",
        f"sum by (job, error) (increase({PREFIX}schedule_failures_total[5m])) > 0",
        "Tasks cannot be scheduled, with {{ $labels.error }}.",
        "StoreFull means that the store's Redis is at its maxmemory, StoreUnavailable that it is "
        "away; `celery -A APP delayq doctor` says more.",
        "1m", "critical", "rights",
    ),
    Alert(
        "DelayqBrokerDown", _RATE.format(f"{PREFIX}broker_failures"),
        "Scanners cannot reach the broker.",
        "Due tasks wait until it is back; no attempt is counted.",
        "5m", line="broker",
    ),
    Alert(
        "DelayqUnreplicated", _RATE.format(f"{PREFIX}unreplicated"),
        "Fewer replicas have the scheduled tasks than delayq_wait_replicas requires.",
        "A replica is down or behind, or Redis refuses to wait; the log of the scheduling process "
        "shows why. A failover would lose these tasks.",
        "5m", line="wait for replicas",
    ),
    Alert(
        "DelayqClockDifference", f"max by (job) (abs({_CLOCK})) > 1",
        "Redis's clock differs by {{ $value | humanizeDuration }} from the clock of a scraped "
        "machine.",
        "Due times are compared with Redis's clock. If it is wrong, tasks are delivered too early "
        "or too late.",
        "5m", line="clock",
    ),
    Alert(
        "DelayqClockStepped",
        f"max by (job) (max_over_time({_CLOCK}[5m]) - min_over_time({_CLOCK}[5m])) > 1",
        "A clock was set by {{ $value | humanizeDuration }}.",
        "It is Redis's, or that of a scraped machine. If Redis's clock was set forward, tasks were "
        "delivered that much too early.",
        line="clock",
    ),
)  # fmt: skip


def gauges() -> list[Metric]:
    """List what a scrape reads: the gauges of checks, and of the metrics' own."""
    checked = (gauge for check in quick() for gauge in check.gauges)
    return [*(Metric(gauge.name, "gauge", gauge.says) for gauge in checked), *_READ]


def metrics() -> list[Metric]:
    """List all metrics."""
    return [*gauges(), *COUNTED]


def alerts() -> list[Alert]:
    """List the alerts: those of checks, and the metrics' own."""
    return [*(alert for check in quick() for alert in check.alerts), *ALERTS]

"""Every line of the table, the figure beside it, and the goal: the one place to change them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A bound for a figure, or for its ratio to the figure beside it."""

    at_least: bool
    bound: float
    of_ratio: bool

    def met(self, value: float, ratio: float | None) -> bool:
        seen = ratio if self.of_ratio else value
        return seen is not None and (seen >= self.bound if self.at_least else seen <= self.bound)

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:,g}{' x' if self.of_ratio else ''}"


def at_least(bound: float) -> Goal:
    return Goal(at_least=True, bound=bound, of_ratio=False)


def at_most(bound: float) -> Goal:
    return Goal(at_least=False, bound=bound, of_ratio=False)


def times_at_least(bound: float) -> Goal:
    return Goal(at_least=True, bound=bound, of_ratio=True)


def times_at_most(bound: float) -> Goal:
    return Goal(at_least=False, bound=bound, of_ratio=True)


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        figure: ``measure.figure``.
        says: Its description.
        unit: Of the figure.
        beside: The figure it is compared with, of the same measurement; a ratio is taken round by
            round, then its median.
        other: The description of that figure.
        goals: All of them have to be met.
    """

    figure: str
    says: str
    unit: str
    beside: str = ""
    other: str = ""
    goals: tuple[Goal, ...] = ()

    @property
    def measure(self) -> str:
        return self.figure.partition(".")[0]

    @property
    def name(self) -> str:
        return self.figure.partition(".")[2]


def _handover(measure: str, due: str) -> tuple[Line, ...]:
    return (
        Line(
            f"{measure}.rate",
            f"hand over {due} due, one scanner",
            "tasks/s",
            "raw_rate",
            "barest script",
            (at_least(100_000), times_at_least(0.8)),
        ),
        Line(
            f"{measure}.longest_script_ms",
            "its longest script call",
            "ms",
            "raw_longest_script_ms",
            "barest script",
            (at_most(5),),
        ),
        Line(
            f"{measure}.script_p99_ms",
            "the p99 of its script calls",
            "ms",
            "raw_script_p99_ms",
            "barest script",
        ),
    )


def _operation(name: str) -> Line:
    beside, other, goal = f"{name}_bare_rate", "bare round trip", times_at_least(0.9)
    return Line(f"by_id.{name}_rate", f"{name} by id", "calls/s", beside, other, (goal,))


def _of_redis(name: str) -> Line:
    says = f"of that, Redis's time: {name}"
    return Line(f"by_id.{name}_redis_us", says, "us", "bare_redis_us", "bare script")


def _script(name: str, says: str, times: float = 0, commands: int = 0) -> tuple[Line, ...]:
    figure = f"script_parts.{name}"
    beside = ("us", "bare_us", "bare script", (times_at_most(times),) if times else ())
    whole = Line(f"{figure}_whole_us", f"Redis's time, warm: {says}", *beside)
    goals = (at_most(commands),) if commands else ()
    return (whole, Line(f"{figure}_commands", "the commands that it runs", "", goals=goals))


def _arrival(scanners: int) -> tuple[Line, ...]:
    words = f"arrival, idle system, {scanners} scanner{'s' * (scanners > 1)}"
    figure = f"lateness.scanners_{scanners}"
    return (
        Line(f"{figure}_min_ms", f"{words}: earliest", "ms", goals=(at_least(0),)),
        Line(f"{figure}_p50_ms", f"{words}: p50", "ms", "raw_p50_ms", "bare timer", (at_most(1),)),
        Line(f"{figure}_p99_ms", f"{words}: p99", "ms", "raw_p99_ms", "bare timer", (at_most(4),)),
    )


def _start(workers: int) -> tuple[Line, ...]:
    words, figure = f"start, {workers} worker{'s' * (workers > 1)}", f"delayq_workers_{workers}"
    native = f"native_workers_{workers}"
    of_one = {50: (at_most(5),), 99: (at_most(20),)} if workers == 1 else {}
    return (
        *(
            Line(
                f"execution.{figure}_p{percent}_ms",
                f"{words}: p{percent}",
                "ms",
                f"{native}_p{percent}_ms",
                "Celery eta",
                of_one.get(percent, ()),
            )
            for percent in (50, 99)
        ),
        Line(
            f"execution.later_workers_{workers}_ms",
            f"{words}: p50, later than Celery eta",
            "ms",
            goals=(at_most(2),),
        ),
    )


def _thousand() -> tuple[Line, ...]:
    figure, words = "thousand_scanners", "1,000 idle scanners"
    after = (
        (name, f"1,000 scanners, Redis down for {seconds} s")
        for name, seconds in (("short", 0), ("long", 10))
    )
    return (
        Line(f"{figure}.idle_redis_cpu_percent", f"{words}: Redis CPU", "%", goals=(at_most(1),)),
        Line(f"{figure}.idle_scripts_per_s", f"{words}: script calls", "1/s"),
        Line(f"{figure}.idle_commands_per_s", f"{words}: commands, also of scripts", "1/s"),
        Line(f"{figure}.connections", f"{words}: connections", ""),
        Line(f"{figure}.due_scripts", "and one task due each second: script calls for it", ""),
        Line(f"{figure}.due_redis_cpu_percent", "and the Redis CPU meanwhile", "%"),
        *(
            line
            for name, says in after
            for line in (
                Line(f"{figure}.{name}_back_s", f"{says}: all back", "s", goals=(at_most(5),)),
                Line(f"{figure}.{name}_connections_per_s", "most connections in a second", ""),
                Line(f"{figure}.{name}_commands_per_s", "most commands in a second", ""),
                Line(f"{figure}.{name}_redis_cpu_s", "Redis CPU until then", "s"),
                Line(f"{figure}.{name}_slowest_ping_ms", "slowest answer to a PING", "ms"),
            )
        ),
    )


def _split(measure: str, redis: str, other: str, says: str) -> tuple[Line, ...]:
    return (
        Line(f"{measure}.{redis}", "for each of those: Redis's time", "us"),
        Line(f"{measure}.{other}", f"for each of those: {says}", "us"),
    )


def _weight() -> tuple[Line, ...]:
    worker = "worker with two children"
    beside = (
        ("call_s", "start and first call", "s"),
        ("call_memory_mb", "a process that made it: memory", "MB"),
        ("worker_s", f"{worker}: ready after", "s"),
        ("worker_main_mb", "its main process: memory", "MB"),
        ("worker_child_mb", "each child: memory", "MB"),
        ("worker_threads", "threads of the main process", ""),
        ("worker_connections", "connections to Redis", ""),
    )
    loaded = (("call", "a process that made a call"), ("worker", "a worker's main process"))
    passed = (
        ("sender", "functions in the sender"),
        ("main", "functions in the worker's main process"),
        ("child", "functions in its child"),
        ("scripts", "scripts in Redis"),
    )
    return (
        *(
            Line(f"weight.delayq_{figure}", says, unit, f"plain_{figure}", "without the package")
            for figure, says, unit in beside
        ),
        *(
            Line(
                f"weight.delayq_{process}_{what}",
                f"{says}: {what} loaded",
                "",
                f"all_{what}",
                "all",
            )
            for process, says in loaded
            for what in ("modules", "lines")
        ),
        *(
            Line(f"weight.passed_{place}", f"a task that never waits: {says}", "")
            for place, says in passed
        ),
    )


LINES: tuple[Line, ...] = (
    *_handover("direct_handover", "200,000"),
    *_handover("million_handover", "1,000,000"),
    *(
        Line(
            f"move_profile.{figure}", f"Redis's time per entry: {words}", "us", "bare_us", "barest"
        )
        for figure, words in (
            ("joined_us", "barest script + joining"),
            ("traced_us", "and keeping a trace"),
            ("whole_us", "the package's script"),
        )
    ),
    *(
        Line(
            f"many_scanners.rate_{scanners}",
            f"hand over, {scanners} scanners",
            "tasks/s",
            "rate_1",
            "one scanner",
            (times_at_least(1),),
        )
        for scanners in (2, 8)
    ),
    Line(
        "relay_rabbitmq.rate",
        "hand over to RabbitMQ, confirmed",
        "tasks/s",
        "kombu_rate",
        "kombu loop",
        (times_at_least(3),),
    ),
    *_split("relay_rabbitmq", "redis_us", "scanner_us", "the scanner's CPU"),
    Line(
        "relay_redis.rate",
        "hand over to another Redis",
        "tasks/s",
        "kombu_rate",
        "kombu loop",
        (at_least(25_000),),
    ),
    *_split("relay_redis", "redis_us", "scanner_us", "the scanner's CPU"),
    *(
        Line(
            f"cluster.{what}_{where}",
            f"{says}, {words}",
            unit,
            f"{what}_plain",
            "one plain Redis",
        )
        for what, says, unit in (
            ("schedule", "one delay_until", "calls/s"),
            ("bulk", "schedule_many", "tasks/s"),
            ("handover", "hand over to another Redis", "tasks/s"),
            ("cancel", "cancel by id", "calls/s"),
            ("page", "a page of 200 of tasks()", "ms"),
            ("idle", "an idle scanner, at the busiest node", "commands/s"),
        )
        for where, words in (("slot", "in a slot of a Cluster"), ("shards", "in six shards of it"))
    ),
    *(
        Line(
            f"one_task.delay_until{variant}_us",
            f"delay_until, {words}",
            "us",
            f"apply_async{variant}_us",
            "apply_async",
            (times_at_most(1),),
        )
        for variant, words in (
            ("", "no result backend"),
            ("_ignored", "Redis results, ignored"),
            ("_backend", "Redis results"),
        )
    ),
    Line(
        "put_off.put_off_us",
        "a task puts itself off",
        "us",
        "schedule_us",
        "delay_for",
        (times_at_most(2),),
    ),
    Line("many_tasks.at_rate", "schedule_many, one time", "tasks/s", goals=(at_least(25_000),)),
    *_split("many_tasks", "at_redis_us", "at_caller_us", "the caller's CPU"),
    Line("many_tasks.spread_rate", "schedule_many, spread", "tasks/s", goals=(at_least(25_000),)),
    *map(_operation, ("cancel", "reschedule", "get")),
    *map(_of_redis, ("cancel", "reschedule", "get")),
    *_script("schedule", "delay_until", 32, 11),
    *_script("replace", "the same, in place of another under its key", 70, 25),
    *_script("reschedule", "reschedule by id", 28, 11),
    *_script("cancel", "cancel by id", 32, 14),
    *_script("get", "get by id", 10, 6),
    *_script("hand_over", "hand over one that is due"),
    *_script("claim", "claim one that is due"),
    Line(
        "selections.cancel_rate",
        "cancel 100,000 by tag",
        "tasks/s",
        "one_by_one_rate",
        "cancel one by one",
        (at_least(10_000),),
    ),
    Line("selections.script_p99_ms", "its script calls, p99", "ms", goals=(at_most(10),)),
    Line("selections.page_ms", "a page of 50 by cursor, p90", "ms", goals=(at_most(10),)),
    Line(
        "preflight.seconds",
        "preflight of 100,000 that wait",
        "s",
        "bare_seconds",
        "a bare HSCAN of their records",
        (times_at_most(5),),
    ),
    Line("preflight.longest_script_ms", "its longest script call", "ms", goals=(at_most(10),)),
    *_arrival(1),
    *_arrival(10),
    *_start(1),
    *_start(10),
    Line("crowd.burst_p99_ms", "arrival in a burst of 20,000: p99", "ms", goals=(at_most(50),)),
    Line("crowd.stream_p99_ms", "arrival beside 5,000/s: p99", "ms", goals=(at_most(50),)),
    Line("idle.commands_per_s", "idle scanner: commands", "1/s", goals=(at_most(0.3),)),
    Line("idle.cpu_percent", "idle scanner: CPU", "%", goals=(at_most(0.1),)),
    Line(
        *("memory.bytes_per_task", "Redis memory of a waiting task", "B"),
        *("eta_bytes_per_task", "Celery eta", (at_most(500),)),
    ),
    Line("memory.bytes_per_left", "Redis memory of a task that left", "B", goals=(at_most(130),)),
    Line(
        "memory.bytes_per_undo",
        "Redis memory of a cancelled task, with an undo",
        "B",
        goals=(at_most(1600),),
    ),
    Line(
        "memory.worker_bytes_per_task",
        "worker memory of a waiting task",
        "B",
        "eta_worker_bytes_per_task",
        "Celery eta",
    ),
    Line("growth.least_kept", "least rate kept, 10,000 to largest", "x", goals=(at_least(0.7),)),
    Line("growth.page_ms", "a page of 200 tasks(), p90", "ms", goals=(at_most(10),)),
    Line("worker_memory.added_mb", "a million waiting: worker", "MB", goals=(at_most(5),)),
    *(
        Line(
            f"worker_start.delayq_{figure}",
            f"a worker and its child: {words}",
            unit,
            f"plain_{figure}",
            "without the package",
        )
        for figure, words, unit in (
            ("start_s", "start", "s"),
            ("pss_mb", "PSS", "MB"),
            ("rss_mb", "RSS, shared pages twice", "MB"),
        )
    ),
    *_weight(),
    *(
        line
        for broker in ("redis", "rabbitmq")
        for line in (
            Line(
                f"adoption.{broker}_adopted_rate",
                f"adopt from {broker}, one worker",
                "tasks/s",
                f"{broker}_received_rate",
                "receive and ack",
                (at_least(2000),),
            ),
            Line(
                f"adoption.{broker}_adopted_cpu_us",
                "its CPU, each",
                "us",
                f"{broker}_received_cpu_us",
                "receive and ack",
            ),
            Line(
                f"adoption.{broker}_adopted_grown_mb",
                "the worker's largest growth",
                "MB",
                goals=(at_most(5),),
            ),
        )
    ),
    Line(
        "hundred_scanners.idle_redis_cpu_percent",
        "100 idle scanners: Redis CPU",
        "%",
        goals=(at_most(20),),
    ),
    Line(
        "hundred_scanners.busy_redis_cpu_percent",
        "and 1,000 due times/s",
        "%",
        goals=(at_most(20),),
    ),
    Line("hundred_scanners.busy_script_us", "Redis's time for one call of those", "us"),
    *_thousand(),
    Line("busy_worker.arrival_p99_ms", "arrival, cores busy: p99", "ms", goals=(at_most(20),)),
)


# Further tables: a row for each of something, and the names of its figures.
PEERS = {
    "delayq": "celery_delayq",
    "celery_eta": "Celery eta (executed; start)",
    "longterm": "celery-longterm-scheduler",
    "textbook": "textbook loop, 1 s",
    "rq": "RQ (ids only)",
    "huey": "huey",
    "bullmq": "BullMQ (ids only; start)",
}
PEER_FIGURES = {
    "schedule_rate": "schedule/s",
    "bulk_rate": "bulk/s",
    "drain_rate": "due -> queue/s",
    "late_min_ms": "late by, ms: min",
    "late_p50_ms": "p50",
    "late_p99_ms": "p99",
    "idle_per_s": "idle commands/s",
    "bytes_per_task": "B/task",
}

SCRIPTS = {
    "schedule": "delay_until",
    "replace": "in place of another",
    "reschedule": "reschedule",
    "cancel": "cancel",
    "get": "get",
    "hand_over": "hand over one",
    "claim": "claim one",
}
SCRIPT_FIGURES = {
    "whole_us": "whole",
    "passed_us": "passing",
    "made_us": "making",
    "commands_us": "commands",
    "rest_us": "rest",
    "times": "whole / bare",
    "first_functions": "functions: at first",
    "functions": "in all",
    "commands": "commands run",
}


@dataclass(frozen=True)
class Table:
    """A table of its own, of one measurement.

    Attributes:
        measure: The measurement.
        says: The heading of the first column.
        rows: By the first part of a figure's name, the description.
        figures: By the second part of a figure's name, the heading.
    """

    measure: str
    says: str
    rows: dict[str, str]
    figures: dict[str, str]


TABLES = (
    Table("script_parts", "us of Redis for one", SCRIPTS, SCRIPT_FIGURES),
    Table("peers", "in the same run", PEERS, PEER_FIGURES),
)

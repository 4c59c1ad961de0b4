"""The ways of delaying a job, in the order of the table's columns.

Their drivers are imported by name, each in a process of its own, as each needs its own packages.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Column:
    """One way.

    Attributes:
        name: Its module in this folder.
        title: Its name in the table.
        packages: The packages whose versions the table shows.
        rabbit: Whether its broker is RabbitMQ.
        environment: The variable that names the environment of its packages, if not this one.
        told: How the job is delayed, in one sentence.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    told: str
    rabbit: bool = False
    environment: str = ""

    @property
    def python(self) -> str:
        """The interpreter that its driver and its processes run with."""
        if not self.environment:
            return sys.executable
        return str(Path(os.environ[self.environment]).absolute() / "bin" / "python")


COLUMNS = (
    Column(
        "delayq",
        "celery_delayq",
        ("celery_delayq",),
        "`task.delay_for(delay, …)`; broker and store are one Redis",
    ),
    Column(
        "celery_redis",
        "Celery `countdown`, Redis",
        ("celery", "kombu", "redis"),
        "`apply_async(countdown=…)`",
    ),
    Column(
        "celery_rabbitmq",
        "Celery `countdown`, RabbitMQ",
        ("celery", "kombu"),
        "the same, with a classic queue",
        rabbit=True,
    ),
    Column(
        "celery_quorum",
        "Celery native delay, RabbitMQ",
        ("celery", "kombu"),
        "the same, with quorum queues, so that the broker delays it",
        rabbit=True,
    ),
    Column(
        "celery_beat",
        "django-celery-beat",
        ("django-celery-beat", "Django"),
        "a `PeriodicTask` with a `ClockedSchedule` and `one_off`, in SQLite; broker Redis",
    ),
    Column("rq", "RQ", ("rq",), "`queue.enqueue_in(…)`, and `rq worker --with-scheduler`"),
    Column("dramatiq", "dramatiq", ("dramatiq",), "`actor.send_with_options(delay=…)`, with Redis"),
    Column(
        "arq",
        "arq",
        ("arq",),
        "`enqueue_job(…, _defer_by=…)`, with `allow_abort_jobs`",
        environment="COMPARISON_ARQ",
    ),
    Column("huey", "huey", ("huey",), "`task.schedule(delay=…)`, with Redis"),
)

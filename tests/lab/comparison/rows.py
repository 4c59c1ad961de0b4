"""The questions, in the order of the table, each with the probe that answers it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.lab.comparison import answers, figures
from tests.lab.comparison.answers import NONE
from tests.lab.comparison.site import SHORT_TIMEOUT

Measured = Mapping[str, float]


@dataclass(frozen=True)
class Row:
    """One question.

    Attributes:
        name: Its name on the command line.
        title: Its name in the table.
        says: One sentence, by which a cell can be checked.
        probe: The function that does it.
    """

    name: str
    title: str
    says: str
    probe: Callable[..., answers.Answer]


@dataclass(frozen=True)
class MeasuredRow:
    """One figure; ``cell`` writes it, from the medians of its rounds.

    Attributes:
        rounds: In how many rounds over all ways it is measured.
    """

    name: str
    title: str
    says: str
    probe: Callable[..., figures.Figures]
    cell: Callable[[Measured], str]
    rounds: int = 1


def _memory(found: Measured) -> str:
    # If a worker takes jobs in slowly, those still in the broker are missing in the figure.
    if not found["still"] or not found["behind_ran"]:
        return "not all taken in"
    return f"{max(0.0, found['memory_mb']):.0f} MB"


def _behind(found: Measured) -> str:
    if not found["behind_ran"]:
        return f"not within {figures.BEHIND_TIMEOUT:.0f} s"
    return f"{max(0.0, found['behind_s']):.1f} s"


def _late(found: Measured) -> str:
    early = f", up to {-found['least_ms']:.0f} ms early" * (found["least_ms"] < -10)
    return f"{found['late_ms']:.0f} ms{early}"


def _rate(found: Measured) -> str:
    return f"{found['ratio']:.1f}" if "ratio" in found else NONE


ANSWERS = (
    Row(
        "cancel",
        "Cancel while every worker is offline",
        "Two jobs are scheduled and one is cancelled while no process runs; then all are "
        "started, and the other one alone runs.",
        answers.cancel,
    ),
    Row(
        "truth",
        "The answer to a cancel is true",
        "With all running, the cancel of a job that has run does not report success; and the "
        "answer to the cancel of a job that is due in a second comes true.",
        answers.truth,
    ),
    Row(
        "reschedule",
        "Reschedule, keeping the id",
        "While no process runs a job gets another time twice, by the same id; it then runs once,"
        " at the last one.",
        answers.reschedule,
    ),
    Row(
        "list",
        "List waiting jobs, with times, without workers",
        "While no process runs, two jobs that wait are listed with their ids and due times, right"
        " to the second.",
        answers.listing,
    ),
    Row(
        "kill",
        "A waiting job survives kill -9, and is not late",
        "Everything that runs is killed while a job waits, and started anew; the job runs within"
        f" {answers.AT_ONCE:.0f} s of the restart or of its due time, or so much later as the "
        "cell says.",
        answers.kill,
    ),
    Row(
        "timeout",
        "Runs once if it waits longer than the broker's time-out",
        f"The visibility time-out (of RabbitMQ the delivery time-out) is {SHORT_TIMEOUT} "
        f"s, two workers run, and one job waits for {answers.HELD:.0f} s. The broker "
        "or kombu looks for it once a second. A way whose time-outs do not concern waiting jobs "
        "is run as it is.",
        answers.timeout,
    ),
    Row(
        "process",
        "Needs a scheduler process beside the workers",
        "Workers alone run; if a job that is due in a second does not run, the missing "
        "processes are started, and it does.",
        answers.process,
    ),
    Row(
        "crowd",
        "Two of every process: each job runs once",
        "Two of each process run, schedulers too; of twenty jobs none runs twice.",
        answers.crowd,
    ),
    Row(
        "key",
        "One waiting job under a key",
        "Two calls under one key, the second one later and with another argument; one of the two"
        " runs.",
        answers.key,
    ),
    Row(
        "tag",
        "Cancel all of a tag",
        "While no process runs, one call cancels three jobs with a tag, and leaves one with "
        "another tag; if that did nothing, it is tried with all running.",
        answers.tag,
    ),
)

FIGURES = (
    MeasuredRow(
        "lateness",
        "Lateness if no other job waits, p50",
        f"The median of {figures.SAMPLES} jobs, from the due time to the start of the function.",
        figures.load,
        _late,
    ),
    MeasuredRow(
        "memory",
        "Memory of all processes per 10,000 waiting jobs",
        "The extra memory of workers and schedulers (proportional set size) when"
        f" {figures.WAITING:,} jobs wait for an hour, once it no longer grows; as much as that"
        " would be for 10,000.",
        figures.load,
        _memory,
    ),
    MeasuredRow(
        "behind",
        f"A short delay behind {figures.WAITING:,} long ones: lateness",
        "How late one job starts that is scheduled behind those.",
        figures.load,
        _behind,
    ),
    MeasuredRow(
        "rate",
        "Scheduling calls a second, beside celery_delayq",
        f"{figures.CALLS} calls one by one in one process, as a ratio to celery_delayq's in the"
        " same round; the median of three rounds.",
        figures.rate,
        _rate,
        rounds=3,
    ),
)

ROWS = (*ANSWERS, *FIGURES)

"""Four screens at two widths, as text files in the folder ``shown``.

python -m tests.cli.screens    writes them anew
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click

from celery_delayq.core.store import Counts, Pause, State
from celery_delayq.core.tasks.scheduled_task import ScheduledTask
from celery_delayq.operations.cli import delayq, lists
from celery_delayq.operations.cli.output import text_of
from celery_delayq.operations.queues import QueueCounts
from celery_delayq.operations.status import ScannerSeen, Status

FOLDER = Path(__file__).parent / "shown"
WIDTHS = (80, 120)

UTC = timezone.utc
NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
UUID = "8b0ce8b4-1f0f-4cd5-9a1c-9d1f7b6f7a53"


def ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


PAUSES = [
    Pause("mail", None, ago(minutes=2), late=False, parked=2, resumed=False, rate=None),
    Pause(None, "shop.report", ago(hours=5), late=False, parked=1200, resumed=True, rate=0.5),
]
COUNTS = Counts(
    scheduled=10_007, in_flight=0, dead=3, scanners=0, overdue=1, paused=2, refused=1,
    next_due_ms=ms(ago(seconds=-4)), now_ms=ms(NOW), oldest_overdue_ms=ms(ago(seconds=21)),
)  # fmt: skip
STATUS = Status(
    store="redis://red:6379/0", prefix="delayq", path="direct", counts=COUNTS, pauses=PAUSES,
    scanners=[], queues_complete=True,
    queues=[QueueCounts("mail", 10, 0), QueueCounts("celery", 9_997, 1)],
)  # fmt: skip
SCANNED = Status(
    store="redis://red:6379/0", prefix="delayq", path="direct",
    counts=replace(COUNTS, scanners=2), pauses=[],
    scanners=[ScannerSeen(f"web{number}:4711:ab12", NOW) for number in (1, 2)], queues=[],
    queues_complete=True,
)  # fmt: skip


def task(task_id: str, due: datetime, name: str, *, args: str, **more: Any) -> ScheduledTask:
    given = {"queue": "celery", "state": State.SCHEDULED, **more}
    headers = {"argsrepr": args, "kwargsrepr": "{}", "origin": "gen4711@web1"}
    made = ScheduledTask(
        task_id, name, due=due, created=ago(hours=1), changed=ago(hours=1),
        revision=1_895_996_800_000_000, **given,
    )  # fmt: skip
    vars(made)["_envelope"] = {"headers": headers}
    return made


ORDER = task(UUID, ago(seconds=21), "shop.mail.send_invoice", args="(42, 'de')", queue="mail")
REFUSED = {"error": "celery: WRONGTYPE no list", "next_try": ago(seconds=-4)}
TASKS = [
    ORDER,
    task("order-43", ago(seconds=0), "shop.remind", args="(43,)", **REFUSED),
    task("order-44", ago(minutes=-19), "shop.remind", args="(44, 'a rather long argument')"),
    task("order-45", ago(days=-3, hours=-5), "shop.remind", args="(45,)", state=State.PAUSED),
]


def screen(name: str, width: int) -> str:
    """The text of a screen."""
    if name == "help":
        context = click.Context(delayq, info_name="celery -A shop delayq", terminal_width=width)
        return f"{delayq.get_help(context)}\n"
    lines = {
        "status": lambda: lists.status_screen(STATUS, "direct", UTC, width),
        "list": lambda: lists.rows_of(TASKS, NOW, UTC, width),
        "show": lambda: lists.show_screen(ORDER, COUNTS, PAUSES, UTC, width),
    }[name]()
    return "".join(f"{text_of(line)}\n" for line in lines)


def files() -> dict[Path, str]:
    """The files, and the text that each must have."""
    names = ("status", "list", "show", "help")
    return {
        FOLDER / f"{name}-{width}.txt": screen(name, width) for name in names for width in WIDTHS
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")

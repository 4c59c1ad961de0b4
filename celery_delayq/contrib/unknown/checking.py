"""What ``health`` and the doctor say of tasks that no worker knew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...core.clock import from_ms
from ...core.message.headers import unknown_in
from ...core.servers.risks import WARNING, Line
from ...core.tasks.reading import UNKNOWN
from ...core.tasks.selection import select
from ...core.text import counted, plain
from ...operations.health import Alert, Check, Gauge, Sight, most

LOOKED_AT = 500  # tasks whose names are read
SHOWN = 3  # names

_FOUND = Line(
    "unknown", WARNING,
    "workers did not know {}, which come again within the hour, since {} UTC: {}",
    "start a worker that has the task, or edit these tasks; to drop them: "
    "celery -A proj delayq cancel --state unknown --task NAME",
)  # fmt: skip


def _look(sight: Sight) -> Iterator[Line]:
    """Tell how many there are, if any, and the names of the first :data:`LOOKED_AT`."""
    count = sight.counts.unknown
    if not count:
        return
    names, since_ms = Counter[str](), sight.counts.now_ms
    for task in select(sight.services.app.delayq, state=UNKNOWN, limit=LOOKED_AT):
        names[task.task] += 1
        since_ms = min(since_ms, unknown_in(task.headers).get("since", since_ms))
    shown = [f"{plain(name) or '?'} ({times:,})" for name, times in names.most_common(SHOWN)]
    more = ", ..." if len(names) > SHOWN or count > LOOKED_AT else ""
    since = f"{from_ms(since_ms):%Y-%m-%d %H:%M}"
    yield _FOUND.filled(counted(count), since, ", ".join(shown) + more)


CHECK = Check[Sight](
    "unknown", "tasks that workers did not know", _look,
    "workers did not know a task, or could not read it",
    gauges=(
        Gauge(
            "unknown_tasks", "tasks that workers did not know, and that wait to come again",
            lambda seen: seen.counts.unknown,
        ),
    ),
    alerts=(
        Alert(
            "DelayqUnknownTasks", f"{most('unknown_tasks')} > 0",
            "{{ $value }} tasks are unknown to the workers that got them; they are kept.",
            "`celery -A APP delayq list --state unknown` shows them. Start a worker that has the "
            "task, or edit them; `delayq cancel --state unknown --task NAME` drops them.",
            "15m",
        ),
    ),
)  # fmt: skip

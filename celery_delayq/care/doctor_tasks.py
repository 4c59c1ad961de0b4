"""Whether tasks are handed over, as `health` says it; and what is paused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone
from shlex import quote

from ..logs import plain
from ..operations.health import judged
from ..servers.risks import ERROR, OK, WARNING, Line
from ..services import Services
from ..store import Pause

# What to do where `health` finds something wrong; of an agreement its sentence says it.
_ADVICE = {
    "store": "see whether its Redis user has every right, and Redis's own log",
    "scanners": "start a worker, or a scanner by itself: celery -A proj delayq scan",
    "overdue": "celery -A proj delayq list --overdue has them; see a worker's log",
    "dead": "celery -A proj delayq list --dead says why; retry or remove them",
}


def health(services: Services) -> Iterator[Line]:
    """What `health` asks for, and what it finds."""
    for one in judged(services):
        about, found, advice = one.about, one.wrong, _ADVICE.get(one.about, "")
        if found and not advice:
            found, _, advice = found.partition("; ")
        if found:
            yield Line(about, WARNING if about == "dead" else ERROR, found, advice)
        elif about == "scanners":
            hosts = sorted({scanner.host for scanner in services.entries.scanners()})
            yield Line(about, OK, f"{one.well}, on {', '.join(map(plain, hosts))}")
        else:
            yield Line(about, OK, one.well)


def pauses(services: Services) -> Iterator[Line]:
    """What is paused since when; a warning if something of it is due: it may be forgotten."""
    entries = services.entries
    found = entries.pauses()
    held = [one for one in found if not one.resumed]
    if not held:
        yield Line("pauses", OK, "nothing is paused")
        return
    said = "; ".join(
        f"{plain(one.what)} is paused since {one.since.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
        for one in held
    )
    # What comes back at a rate is counted as paused as well, until it has gone.
    back = sum(one.parked for one in found if one.resumed and one.rate is not None)
    due = entries.counts().paused - back
    if due > 0:
        advice = f"if that is over: {', '.join(map(_resume, held))}"
        yield Line("pauses", WARNING, f"{said}: {due:,} due and not handed over", advice)
    else:
        yield Line("pauses", OK, f"{said}: nothing of it is due")


def _resume(pause: Pause) -> str:
    for option, name in (("--queue", pause.queue), ("--task", pause.task)):
        if name is not None:
            return f"celery -A proj delayq resume {option} {quote(plain(name))}"
    return "celery -A proj delayq resume"

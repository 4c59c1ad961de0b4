"""Whether tasks are handed over, as `health` says it; and what is paused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone
from shlex import quote

from ..errors import StoreDiffers
from ..logs import plain
from ..operations.health import MAX_OVERDUE, problems
from ..servers.risks import ERROR, OK, WARNING, Line
from ..services import Services
from ..store import Pause

# What `health` tells of, and what to do about it; of an agreement its sentence says that.
_HEALTH = {
    "store": "see whether its Redis user has every right, and Redis's own log",
    "agreement": "",
    "scanners": "start a worker, or a scanner by itself: celery -A proj delayq scan",
    "overdue": "celery -A proj delayq list --overdue has them; see a worker's log",
    "dead": "celery -A proj delayq list --dead says why; retry or remove them",
}


def health(services: Services) -> Iterator[Line]:
    """What `health` finds, and of the rest that it is well."""
    wrong = {one.about: one.sentence for one in problems(services)}
    well = _well(services) if "store" not in wrong else {}
    for about, advice in _HEALTH.items():
        if about in wrong:
            found, _, does = (wrong[about], "", advice) if advice else wrong[about].partition("; ")
            yield Line(about, WARNING if about == "dead" else ERROR, found, does)
        elif about in well:
            yield Line(about, OK, well[about])


def _well(services: Services) -> dict[str, str]:
    entries = services.entries
    try:
        hosts, counts = sorted({one.host for one in entries.scanners()}), entries.counts()
    except StoreDiffers:
        return {}
    return {
        "agreement": "who shares the store agrees on its layout, shards and broker",
        "scanners": f"{counts.scanners} alive, on {', '.join(map(plain, hosts))}",
        "overdue": f"of {counts.scheduled:,} that wait, none by more than {MAX_OVERDUE:g} s",
        "dead": "none",
    }


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

"""What is paused: somebody may have forgotten to resume it, and nothing else is wrong then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone
from shlex import quote

from ..logs import plain
from ..servers.risks import OK, WARNING, Line
from ..store import Pause
from .patient import Patient


def pauses(patient: Patient) -> Iterator[Line]:
    """What is paused since when; a warning where something of it is due."""
    entries = patient.services.entries
    found = entries.pauses()
    held = [one for one in found if not one.resumed]
    if not held:
        yield Line("pauses", OK, "nothing is paused")
        return
    said = "; ".join(map(_said, held))
    # What comes back at a rate is counted as paused as well, until it has gone.
    back = sum(one.parked for one in found if one.resumed and one.rate is not None)
    due = entries.counts().paused - back
    if due > 0:
        advice = f"if that is over: {', '.join(map(_resume, held))}"
        yield Line("pauses", WARNING, f"{said}: {due:,} due and not handed over", advice)
    else:
        yield Line("pauses", OK, f"{said}: nothing of it is due")


def _said(pause: Pause) -> str:
    since = pause.since.astimezone(timezone.utc)
    return f"{plain(pause.what)} is paused since {since:%Y-%m-%d %H:%M} UTC"


def _resume(pause: Pause) -> str:
    for option, name in (("--queue", pause.queue), ("--task", pause.task)):
        if name is not None:
            return f"celery -A proj delayq resume {option} {quote(plain(name))}"
    return "celery -A proj delayq resume"

"""Whether somebody hands over, and all agree on what they share; as `health` says it."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import StoreDiffers
from ..logs import plain
from ..operations.health import MAX_OVERDUE, problems
from ..servers.risks import ERROR, OK, WARNING, Line
from .patient import Patient

_ADVICE = {
    "store": "see whether its Redis user has every right, and Redis's own log",
    "scanners": "start a worker, or a scanner by itself: celery -A proj delayq scan",
    "overdue": "celery -A proj delayq list --overdue has them; see a worker's log",
    "dead": "celery -A proj delayq list --dead says why; retry or remove them",
}


def scanners(patient: Patient) -> Iterator[Line]:
    """What `health` finds, and of the rest that it is well."""
    wrong = {one.about: one.sentence for one in problems(patient.services)}
    well = _well(patient) if "store" not in wrong else {}
    for about in ("store", "agreement", "scanners", "overdue", "dead"):
        if about in wrong:
            yield _line(about, wrong[about])
        elif about in well:
            yield Line(about, OK, well[about])


def _line(about: str, sentence: str) -> Line:
    level = WARNING if about == "dead" else ERROR
    if about in _ADVICE:
        return Line(about, level, sentence, _ADVICE[about])
    found, _, advice = sentence.partition("; ")  # it says what to do
    return Line(about, level, found, advice)


def _well(patient: Patient) -> dict[str, str]:
    entries = patient.services.entries
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

"""Whether somebody hands over, and all agree on what they share; as `health` says it."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ..errors import StoreDiffers
from ..logs import plain
from ..operations.health import MAX_OVERDUE, problems
from ..store.risks import ERROR, OK, WARNING, Line
from .patient import Patient

_ADVICE = {
    "store": "see whether its Redis user has every right, and Redis's own log",
    "scanners": "start a worker, or a scanner by itself: celery -A proj delayq scan",
    "overdue": "celery -A proj delayq list --overdue has them; see a worker's log",
    "dead": "celery -A proj delayq list --dead says why; retry or remove them",
}


def scanners(patient: Patient) -> Iterator[Line]:
    """What `health` finds, and what it does not."""
    wrong = {one.about: one.sentence for one in problems(patient.services)}
    for about, sentence in wrong.items():
        level = WARNING if about == "dead" else ERROR
        if about in _ADVICE:
            yield Line(about, level, sentence, _ADVICE[about])
        else:
            found, _, advice = sentence.partition("; ")  # it says what to do
            yield Line(about, level, found, advice)
    if "store" not in wrong:
        yield from _well(patient, wrong)


def _well(patient: Patient, wrong: Container[str]) -> Iterator[Line]:
    if "agreement" not in wrong:
        yield Line("agreement", OK, "who shares the store agrees on its layout, shards and broker")
    entries = patient.services.entries
    try:
        hosts, counts = sorted({one.host for one in entries.scanners()}), entries.counts()
    except StoreDiffers:
        return
    if "scanners" not in wrong:
        yield Line("scanners", OK, f"{counts.scanners} alive, on {', '.join(map(plain, hosts))}")
    if "overdue" not in wrong:
        said = f"of {counts.scheduled:,} that wait, none by more than {MAX_OVERDUE:g} s"
        yield Line("overdue", OK, said)
    if "dead" not in wrong:
        yield Line("dead", OK, "none")

"""How far Redis is, and whether its clock and this machine's are the same."""

from __future__ import annotations

from collections.abc import Iterator

from ..care.observed import TRIPS, Trips, trips
from ..servers.risks import OK, WARNING, Line
from .patient import Patient

SLOW_MS = 5.0  # a round trip that makes callers wait
WRONG = 2.0  # seconds

_ADVICE = "let both machines take their time from NTP"
_MEANS = (
    "due times go by Redis's clock alone; but a captured eta is computed by a caller's, and "
    "expires is judged by a worker's"
)


def clocks(patient: Patient) -> Iterator[Line]:
    """Round trips to Redis, each of which asks for its time."""
    seen = trips(patient.connection)
    yield _round_trip(seen)
    yield _clock(seen)


def _round_trip(seen: Trips) -> Line:
    said = f"{seen.median_ms:.2f} ms, and {seen.worst_ms:.2f} ms at worst, of {TRIPS} calls"
    if seen.median_ms <= SLOW_MS:
        return Line("round trip", OK, said)
    return Line(
        "round trip", WARNING,
        f"{said}: each call waits as long, and each hand-over",
        "run callers and workers nearer to the store's Redis; schedule many tasks in bulk",
    )  # fmt: skip


def _clock(seen: Trips) -> Line:
    least, most = seen.ahead
    off = max(0.0, least) or min(0.0, most)
    if abs(off) <= WRONG:
        within = max(abs(least), abs(most))
        return Line("clock", OK, f"Redis's and this machine's agree within {within:.3f} s")
    said = f"Redis's clock is {_by(off)} this machine's: {_MEANS}"
    return Line("clock", WARNING, said, _ADVICE)


def _by(ahead: float) -> str:
    return f"{abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'}"

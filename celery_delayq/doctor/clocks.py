"""How far Redis is, and whether its clock, this machine's and the workers' are the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from ..handover.link import bounded, connect
from ..logs import plain
from ..servers.risks import OK, WARNING, Line
from ..store.observed import TRIPS, Trips, trips
from .patient import Patient

SLOW_MS = 5.0  # a round trip that makes callers wait
WRONG = 2.0  # seconds
ANSWER_WITHIN = 1.0  # seconds that workers have
SENT_WITHIN = 3.0  # seconds that the broker has for the question, on top of those

_WORKERS = "workers' clocks"
_ADVICE = "let both machines take their time from NTP"
_UNHEARD = "see whether the broker runs, and its user's rights"
_LACKING = (
    "give the broker's user what Celery needs, which is more than the store does: "
    "~* &* +@all -@dangerous"
)
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


def workers(patient: Patient) -> Iterator[Line]:
    """What clocks workers have, of those that answer in time; they are asked over the broker."""
    services = patient.services
    if "broker" in patient.wrong:
        return  # its own line says why
    sent = time.time()
    try:
        told = _asked(services.app)
    except Exception as error:
        said = f"not known, as no worker can be asked: {plain(error)}"
        yield Line(_WORKERS, WARNING, said, _LACKING if "permission" in said else _UNHEARD)
        return
    answers = {name: answer for one in told or () for name, answer in one.items()}
    off = {name: _ahead(answer, sent, time.time()) for name, answer in answers.items()}
    wrong = {name: ahead for name, ahead in off.items() if abs(ahead) > WRONG}
    for name, ahead in sorted(wrong.items()):
        said = f"that of {plain(name)} is {_by(ahead)} this machine's: {_MEANS}"
        yield Line(_WORKERS, WARNING, said, _ADVICE)
    if not off:
        yield Line(_WORKERS, OK, f"not known, as none answered within {ANSWER_WITHIN:g} s")
    elif not wrong:
        yield Line(_WORKERS, OK, f"those of {len(off)} that answered agree with this machine's")


def _asked(app: Any) -> Any:
    """What workers answer, all that do so in time: how many there are is known to nobody.

    A worker may hand nothing over, and so not be known to the store.

    In a thread, which is left behind where the broker hangs: the question goes over a connection of
    Celery's pool, which has no time limit.

    Raises:
        Exception: the broker cannot be reached, refuses, or does not answer in time.
    """
    told: list[Any] = []
    failed: list[Exception] = []

    def ask() -> None:
        connection = bounded(app.connection_for_write(), SENT_WITHIN, SENT_WITHIN)
        try:
            connect(connection, SENT_WITHIN)
            question = {"reply": True, "timeout": ANSWER_WITHIN}
            told.append(app.control.broadcast("delayq_clock", connection=connection, **question))
        except Exception as error:
            failed.append(error)
        finally:
            connection.collect()

    thread = threading.Thread(target=ask, name="delayq doctor", daemon=True)
    thread.start()
    thread.join(ANSWER_WITHIN + SENT_WITHIN)
    if failed:
        raise failed[0]
    if not told:
        raise TimeoutError(f"no answer within {ANSWER_WITHIN + SENT_WITHIN:g} s")
    return told[0]


def _ahead(answer: Any, sent: float, came: float) -> float:
    """Seconds by which a clock that was read in between is ahead, at least."""
    now = answer.get("now") if isinstance(answer, dict) else None
    if not isinstance(now, (int, float)):
        return 0.0  # a worker of an earlier version
    return max(0.0, now - came) or min(0.0, now - sent)


def _by(ahead: float) -> str:
    return f"{abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'}"

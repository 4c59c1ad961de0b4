"""Scripts that held Redis for long, by its own slow log."""

from __future__ import annotations

from collections.abc import Iterator

from ..servers.risks import OK, WARNING, Line
from ..store.observed import slow_calls
from .patient import Patient

LONG_MS = 100.0  # for which nobody else is served; a step takes some 5 ms


def scripts(patient: Patient) -> Iterator[Line]:
    """The worst of those that Redis has noted."""
    found = slow_calls(patient.connection, patient.services.scripts)
    if found is None:
        yield Line("slow scripts", OK, "the store's Redis does not tell this user of its slow log")
        return
    if not found:
        yield Line("slow scripts", OK, "none in Redis's slow log")
        return
    worst = max(found, key=lambda one: one.ms)
    said = (
        f"{len(found)} in Redis's slow log; {worst.script} took longest, {worst.ms:,.1f} ms at "
        f"{worst.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    if worst.ms <= LONG_MS:
        yield Line("slow scripts", OK, said)
    else:
        yield Line(
            "slow scripts", WARNING,
            f"{said}: nobody else was served meanwhile",
            "see what else its machine does, and whether a message is large; a lower "
            "delayq_batch_size makes each step of a scanner shorter",
        )  # fmt: skip

"""All that the doctor looks at, in the order in which it tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import StoreError
from ..logs import plain
from ..services import Services
from ..store.risks import ERROR, Line
from .broker import broker
from .clocks import clocks, workers
from .patient import Patient
from .rights import rights
from .scanners import scanners
from .server import server
from .slow import scripts

Look = Callable[[Patient], Iterator[Line]]

#: What each looks at is in its own file.
AT_THE_STORE: tuple[Look, ...] = (server, rights, clocks, scripts, scanners)
ELSEWHERE: tuple[Look, ...] = (broker, workers)


def examine(services: Services) -> Iterator[Line]:
    """Look at everything; for a second or two, and some five where the broker is away.

    What it writes are scratch keys, removed in the same step.

    Raises:
        InvalidSetting: a setting is out of its range, or there is no Redis to keep tasks in.
    """
    patient = Patient(services)
    try:
        away = patient.why_away()
        if away is not None:
            yield away
        for look in (*(() if away else AT_THE_STORE), *ELSEWHERE):
            yield from _seen(look, patient)
    finally:
        patient.close()


def _seen(look: Look, patient: Patient) -> Iterator[Line]:
    try:
        yield from look(patient)
    except StoreError as error:
        said = f"the store's Redis would not say: {plain(error.why)}"
        yield Line(look.__name__, ERROR, said, "see Redis's own log, and its user's rights")

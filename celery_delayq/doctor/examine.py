"""All that the doctor looks at, in the order in which it tells of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from ..errors import StoreError, StoreUnavailable
from ..logs import plain
from ..servers.risks import ERROR, Line
from ..services import Services
from .broker import broker, unusable
from .clocks import clocks
from .patient import Patient
from .pauses import pauses
from .rights import rights
from .scanners import scanners
from .server import server

Look = Callable[[Patient], Iterator[Line]]

#: What each looks at is in its own file.
AT_THE_STORE: tuple[Look, ...] = (server, rights, clocks, scanners, pauses)
ELSEWHERE: tuple[Look, ...] = (broker,)


def examine(services: Services) -> Iterator[Line]:
    """Look at everything; for a second or two, and some ten where the store or the broker hangs.

    What is away is asked once, and nothing that goes by it.

    What it writes are scratch keys, removed in the same step.

    Raises:
        InvalidSetting: a setting is out of its range, or there is no Redis to keep tasks in.
    """
    wrong = unusable(services)
    if wrong is not None:
        yield wrong  # whatever else there is to look at goes by the broker
        return
    patient = Patient(services)
    try:
        for line in _looked(patient):
            if line.level == ERROR:
                patient.wrong.add(line.name)
            yield line
    finally:
        patient.close()


def _looked(patient: Patient) -> Iterator[Line]:
    away = patient.why_away()
    for look in AT_THE_STORE:
        if away is None:
            away = yield from _seen(look, patient)
    if away is not None:
        yield away
    if away is None or not patient.services.store_is_broker:
        for look in ELSEWHERE:
            yield from _seen(look, patient)


def _seen(look: Look, patient: Patient) -> Generator[Line, None, Line | None]:
    """What is found; and what keeps one from asking the store anything more."""
    try:
        yield from look(patient)
    except StoreError as error:
        away = patient.why_away() if isinstance(error, StoreUnavailable) else None
        if away is not None:
            return away
        said = f"the store's Redis would not say: {plain(error.why)}"
        yield Line(look.__name__, ERROR, said, "see Redis's own log, and its user's rights")
    return None

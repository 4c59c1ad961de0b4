"""Whether what is scheduled will be handed over in time; and what is wrong if it will not."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..clock import from_ms
from ..errors import InvalidOption, StoreDiffers, StoreError
from ..logs import plain
from ..services import Services
from ..store import Counts, Scanner

MAX_OVERDUE = 60.0  # seconds
MAX_DEAD = 0

_NOBODY = "no scanner is alive: nothing is handed over until a worker of this app is started"
_OTHER_BROKER = (
    "this store's scanners have the broker {}, this app has {} on {}: what it schedules goes to "
    "theirs; give each app a delayq_prefix of its own, or both the same broker_url"
)
_NOT_HERE = "no scanner of this host, {}, is alive"


@dataclass(frozen=True)
class Problem:
    """What is wrong, and with what: ``store, agreement, scanners, overdue, dead``."""

    about: str
    sentence: str


def health(
    services: Services,
    *,
    max_overdue: float = MAX_OVERDUE,
    max_dead: int = MAX_DEAD,
    here: bool = False,
) -> list[str]:
    """What is wrong; see :meth:`DelayQ.health`."""
    _check(max_overdue, max_dead, here)
    return [one.sentence for one in problems(services, max_overdue, max_dead, here)]


def problems(
    services: Services,
    max_overdue: float = MAX_OVERDUE,
    max_dead: int = MAX_DEAD,
    here: bool = False,
) -> list[Problem]:
    """The same, each with what it is about."""
    entries = services.entries
    try:
        other_broker = entries.look()
        if here:
            return [*_here(entries.scanners())]
        counts = entries.counts()
    except StoreDiffers as error:
        return [Problem("agreement", str(error))]
    except StoreError as error:
        why = f"the store {services.endpoint.url} cannot be read: {plain(error.why)}"
        return [Problem("store", why)]
    found = [*_problems(counts, max_overdue, max_dead)]
    if other_broker and counts.scanners:
        ours = services.broker
        sentence = _OTHER_BROKER.format(other_broker, ours.kind, ours.hosts)
        found.append(Problem("agreement", sentence))
    return found


def _here(scanners: Iterable[Scanner]) -> Iterator[Problem]:
    host = socket.gethostname()
    if all(one.host != host for one in scanners):
        yield Problem("scanners", _NOT_HERE.format(host))


def _problems(counts: Counts, max_overdue: float, max_dead: int) -> Iterator[Problem]:
    if not counts.scanners:
        yield Problem("scanners", _NOBODY)
    due_ms = counts.oldest_overdue_ms
    late = 0 if due_ms is None else (counts.now_ms - due_ms) / 1000
    if due_ms is not None and late > max_overdue:
        yield Problem(
            "overdue",
            f"a task that was due at {from_ms(due_ms):%Y-%m-%d %H:%M:%S} UTC is overdue by "
            f"{late:.0f} seconds; {max_overdue:g} are allowed",
        )
    if counts.dead > max_dead:
        what = "1 task is" if counts.dead == 1 else f"{counts.dead} tasks are"
        yield Problem("dead", f"{what} dead; {max_dead} are allowed")


def _check(max_overdue: Any, max_dead: Any, here: Any) -> None:
    if not _is_number(max_overdue, int, float) or not 0 <= max_overdue < math.inf:
        raise InvalidOption("max_overdue", max_overdue, "a number of seconds from 0")
    if not _is_number(max_dead, int) or max_dead < 0:
        raise InvalidOption("max_dead", max_dead, "a whole number of tasks from 0")
    if not isinstance(here, bool):
        raise InvalidOption("here", here, "true or false")


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)

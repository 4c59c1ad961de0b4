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
from ..services import HasServices, Services
from ..store import Counts, Scanner

MAX_OVERDUE = 60.0  # seconds
MAX_DEAD = 0

_NOBODY = "no scanner is alive: nothing is handed over until a worker of this app is started"
_OTHER_BROKER = (
    "this store's scanners have the broker {}, this app has {} on {}: what it schedules goes to "
    "theirs; give each app a delayq_prefix of its own, or both the same broker_url"
)
_AGREED = "who shares the store agrees on its layout, shards and broker"
_NOT_HERE = "no scanner of this host, {}, is alive"


@dataclass(frozen=True)
class Judged:
    """One thing that has to be right: ``store, agreement, scanners, overdue, dead``.

    Attributes:
        about: Which.
        wrong: What is wrong with it; or nothing.
        well: What there is to say of it otherwise.
    """

    about: str
    wrong: str
    well: str = ""


def health(
    delayq: HasServices,
    *,
    max_overdue: float = MAX_OVERDUE,
    max_dead: int = MAX_DEAD,
    here: bool = False,
) -> list[str]:
    """The problems, a sentence each; an empty list if tasks are delivered in time.

    It is wrong that no scanner is alive or that they have another broker than this app, that a
    task has been overdue for too long or too many are dead, that the store cannot be read, or
    is used in another way than by this process.
    What is paused is not overdue. It takes two calls of the store, and no broker.

    Args:
        max_overdue: For how many seconds a task may be overdue, from 0.
        max_dead: How many tasks may be dead, from 0.
        here: Ask for nothing but a scanner of this very host that is alive, as a probe of a
            worker's container does.

    Raises:
        InvalidOption: *max_overdue*, *max_dead* or *here* cannot be what it is.
        InvalidSetting: the app's configuration is wrong.
    """
    _check(max_overdue, max_dead, here)
    all_of_it = judged(delayq.services, max_overdue, max_dead, here)
    return [one.wrong for one in all_of_it if one.wrong]


def judged(
    services: Services,
    max_overdue: float = MAX_OVERDUE,
    max_dead: int = MAX_DEAD,
    here: bool = False,
) -> list[Judged]:
    """All that health asks for, wrong or not; of a store that does not answer, only that."""
    entries = services.entries
    try:
        other_broker = entries.look()
        if here:
            return [_here(entries.scanners())]
        counts = entries.counts()
    except StoreDiffers as error:
        return [Judged("agreement", str(error))]
    except StoreError as error:
        why = f"the store {services.endpoint.url} cannot be read: {plain(error.why)}"
        return [Judged("store", why)]
    agreement = ""
    if other_broker and counts.scanners:
        ours = services.broker
        agreement = _OTHER_BROKER.format(other_broker, ours.kind, ours.hosts)
    return [Judged("agreement", agreement, _AGREED), *_judged(counts, max_overdue, max_dead)]


def _here(scanners: Iterable[Scanner]) -> Judged:
    host = socket.gethostname()
    is_here = any(one.host == host for one in scanners)
    return Judged("scanners", "" if is_here else _NOT_HERE.format(host))


def _judged(counts: Counts, max_overdue: float, max_dead: int) -> Iterator[Judged]:
    yield Judged("scanners", "" if counts.scanners else _NOBODY, f"{counts.scanners} alive")
    due_ms, overdue = counts.oldest_overdue_ms, ""
    late = 0 if due_ms is None else (counts.now_ms - due_ms) / 1000
    if due_ms is not None and late > max_overdue:
        overdue = (
            f"a task that was due at {from_ms(due_ms):%Y-%m-%d %H:%M:%S} UTC is overdue by "
            f"{late:.0f} seconds; {max_overdue:g} are allowed"
        )
    bound = f"of {counts.scheduled:,} that wait, none by more than {max_overdue:g} s"
    yield Judged("overdue", overdue, bound)
    what = "1 task is" if counts.dead == 1 else f"{counts.dead} tasks are"
    dead = f"{what} dead; {max_dead} are allowed" if counts.dead > max_dead else ""
    yield Judged("dead", dead, "none")


def _check(max_overdue: Any, max_dead: Any, here: Any) -> None:
    if not _is_number(max_overdue, int, float) or not 0 <= max_overdue < math.inf:
        raise InvalidOption("max_overdue", max_overdue, "a number of seconds from 0")
    if not _is_number(max_dead, int) or max_dead < 0:
        raise InvalidOption("max_dead", max_dead, "a whole number of tasks from 0")
    if not isinstance(here, bool):
        raise InvalidOption("here", here, "true or false")


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)

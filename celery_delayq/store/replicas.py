"""Waiting until replicas have what a call has written.

    the call is answered --> replicate + WAIT, on one connection --> how many replicas have it

``WAIT`` counts what its own connection has written, and where that has written nothing, it proves
nothing: Redis 7.2 and later answer at once that all replicas have that. The call may have been
answered on another connection, and even by another Redis, that was the master before. So a script
is sent along that writes, if this Redis knows of the call, and changes nothing.

Whatever becomes of it, the call is done: what goes wrong here is told, and not raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import clock
from ..errors import StoreError, StoreUnavailable
from ..logs import logger_of
from ..servers.connection import packed
from .shard import Shard
from .values import Receipt

# Redis looks for a WAIT that has timed out ten times a second, where nobody has set another `hz`.
GRACE = 1.5  # seconds after which there is no answer, on top of those that are waited
TOLD_EVERY = 60.0  # seconds between two warnings that say the same

logger = logger_of(__name__)


@dataclass(frozen=True)
class Wanted:
    """What is waited for; see the setting ``delayq_wait_replicas``.

    Attributes:
        replicas: How many have to have it.
        seconds: For how long that is waited for.
        kind: ``"aof"``: also on disk, in the append-only files of theirs and of the master.
    """

    replicas: int
    seconds: float
    kind: str = ""

    @property
    def command(self) -> str:
        return "WAITAOF" if self.kind else "WAIT"

    def packed(self, seconds: float) -> list[bytes]:
        """The command, to wait so long."""
        local = [1] if self.kind else []
        # 0 would be for ever.
        return packed([self.command, *local, self.replicas, max(1, round(seconds * 1000))])


class Shortfalls:
    """Warns of what too few replicas have: seldom, and with the number of tasks."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._untold = 0

    def note(self, kind: str, why: str, tasks: int, *, again: bool = True) -> int:
        """Tell it, unless it was told lately; what does not pass by itself is told once.

        Returns:
            0: how many replicas are known to have them.
        """
        self._untold += tasks
        now = clock.monotonic()
        last = self._told.get(kind)
        if last is None or (again and now >= last + TOLD_EVERY):
            untold, self._untold = self._untold, 0
            self._told[kind] = now
            logger.warning(
                "%d tasks are scheduled, but not known to be on as many replicas as "
                "delayq_wait_replicas asks for: %s",
                untold,
                why,
            )
        return 0


def wait(
    link: Shard, wanted: Wanted, receipts: Sequence[Receipt], until: float, shortfalls: Shortfalls
) -> int:
    """Wait until replicas of a shard's Redis have what calls have written.

    Args:
        link: To the shard.
        wanted: How many, and how.
        receipts: What the calls answered, just now.
        until: For how long, by the monotonic clock.
        shortfalls: Where it is told what was not reached.

    Returns:
        How many replicas have it; 0 where that is not known. Where the append-only files were
        wanted as well, and the master's has not got it, 0 too.
    """
    seconds, tasks = until - clock.monotonic(), len(receipts)
    try:
        is_known, told = link.scripts.call_and(
            "replicate",
            wanted.packed(seconds),
            until=clock.monotonic() + max(0.0, seconds) + GRACE,
            operations={one.operation for one in receipts},
        )
    except StoreUnavailable as error:
        return shortfalls.note("away", error.why, tasks)
    except StoreError as error:
        why = f"{wanted.command} is refused, {error.why}"
        return shortfalls.note(why, why, tasks, again=False)
    if not is_known:
        return shortfalls.note("unknown", "the Redis that answers has lost them", tasks)
    local, reached = told if wanted.kind else (1, told)
    if not local:
        own = f"not even Redis's own file had them within {wanted.seconds:g} s"
        return shortfalls.note("own", own, tasks)
    if reached < wanted.replicas:
        few = f"{reached} of {wanted.replicas} replicas had them within {wanted.seconds:g} s"
        shortfalls.note("few", few, tasks)
    return int(reached)

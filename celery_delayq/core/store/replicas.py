"""Waits until replicas have the changes of a call.

    the call is answered --> replicate + WAIT, on one connection --> how many replicas have it

``WAIT`` covers the writes of its own connection. If there were none, it proves nothing: Redis 7.2
and later answer at once that all replicas are up to date. The call may have used another
connection, or even another Redis, the master at that time. So a script goes before it: if this
Redis knows the call, it writes, but changes nothing.

The call itself is done, so failures here are logged, not raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import clock
from ..errors import StoreError, StoreUnavailable
from ..logs import logger_of
from ..servers.connection import packed
from .shard import Shard
from .values import Receipt

# By default (`hz`), Redis checks ten times a second whether a WAIT has timed out.
GRACE = 1.5  # seconds to wait for the reply, in addition to the time of the WAIT
TOLD_EVERY = 60.0  # seconds between two warnings of the same kind

logger = logger_of(__name__)


@dataclass(frozen=True)
class Wanted:
    """The replication to wait for; see the setting ``delayq_wait_replicas``.

    Attributes:
        replicas: How many replicas must have the changes.
        seconds: The longest wait.
        kind: ``"aof"``: also on disk, in the append-only files of these replicas and the master.
    """

    replicas: int
    seconds: float
    kind: str = ""

    @property
    def command(self) -> str:
        return "WAITAOF" if self.kind else "WAIT"

    def packed(self, seconds: float) -> list[bytes]:
        """Return the command for a wait of so many seconds."""
        local = [1] if self.kind else []
        # 0 would mean for ever.
        return packed([self.command, *local, self.replicas, max(1, round(seconds * 1000))])

    def reached(self, answer: Any) -> tuple[bool, int]:
        """Return whether the master did its part, and how many replicas did theirs."""
        local, replicas = answer if self.kind else (True, answer)
        return bool(local), int(replicas)


class Shortfalls:
    """Warns of tasks that too few replicas have: seldom, with their number."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._untold = 0

    def note(self, kind: str, why: str, tasks: int, *, again: bool = True) -> int:
        """Log it, unless that was done lately; a failure that does not pass is logged once.

        Returns:
            0: the number of replicas known to have the tasks.
        """
        self._untold += tasks
        now = clock.monotonic()
        last = self._told.get(kind)
        if last is None or (again and now >= last + TOLD_EVERY):
            untold, self._untold = self._untold, 0
            self._told[kind] = now
            logger.warning(
                "%d tasks are scheduled, but not known to be on as many replicas as "
                "delayq_wait_replicas requires: %s",
                untold,
                why,
            )
        return 0


def wait(
    shard: Shard, wanted: Wanted, receipts: Sequence[Receipt], until: float, shortfalls: Shortfalls
) -> int:
    """Wait until replicas of a shard's Redis have the changes of calls.

    Args:
        shard: The shard.
        wanted: How many replicas, and how.
        receipts: The calls' answers, just received.
        until: When to give up, by the monotonic clock.
        shortfalls: Logs failures.

    Returns:
        How many replicas have the changes; 0 if that is not known, or if the master's append-only
        file is wanted too and does not have them.
    """
    seconds, tasks = until - clock.monotonic(), len(receipts)
    try:
        is_known, offsets = shard.scripts.call_and(
            "replicate",
            wanted.packed(seconds),
            until=clock.monotonic() + max(0.0, seconds) + GRACE,
            operations={receipt.operation for receipt in receipts},
        )
    except StoreUnavailable as error:
        return shortfalls.note("away", error.why, tasks)
    except StoreError as error:
        why = f"Redis refused {wanted.command}: {error.why}"
        return shortfalls.note(why, why, tasks, again=False)
    if not is_known:
        return shortfalls.note("unknown", "the Redis that answered does not have them", tasks)
    local, reached = wanted.reached(offsets)
    if not local:
        own = f"not even Redis's own file had them within {wanted.seconds:g} s"
        return shortfalls.note("own", own, tasks)
    if reached < wanted.replicas:
        few = f"{reached} of {wanted.replicas} replicas had them within {wanted.seconds:g} s"
        shortfalls.note("few", few, tasks)
    return reached

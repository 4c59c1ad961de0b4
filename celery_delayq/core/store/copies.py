"""Tells first copies of a message from later ones.

Which delivery of a relayed task reached a worker first:

    delivery, attempt 1 -----> worker    marked: 1
    the same, attempt 2 -----> worker    1 was first: a duplicate
    the same, attempt 1 -----> worker    1 was first: the broker redelivers it

Which message became an entry of the store, so that it becomes one only once:

    adopted, put off --------> store     marked by the script that writes the entry
    redelivered -------------> worker    it was taken: nothing is left to do
    another one redelivered -> worker    marked: it runs. A request of its first worker that is
                                         still under way makes no entry any more

A mark is kept for at least one generation: the seconds of ``delayq_remember``, plus a lease or the
broker's visibility timeout, not counting pauses of more than a minute; or as many marks as tasks
in that setting, 85 bytes each. There are two generations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from .. import clock
from .keys import shard_of
from .scripts import Scripts
from .values import Delivery


class Copies:
    """Answers a worker whose message may be one of several copies.

    Args:
        shards: The scripts of each shard. The mark of a delivery is in its task's shard, the
            mark of a message in the shard of its entry.
        keep: Seconds after which a copy may still come: a lease, or a visibility timeout.
        remember: How many seconds longer marks are kept, and how many in each shard.
    """

    def __init__(self, shards: Sequence[Scripts], keep: float, remember: Sequence[Any]) -> None:
        seconds, self._most = remember
        self._shards = shards
        self._keep_ms = round((seconds + keep) * 1000)

    def first(self, hand_over: tuple[str, ...], attempt: int, until: float) -> int:
        """Return the attempt that reached a worker first; *attempt*, if there was none before.

        Args:
            hand_over: Texts that together name one delivery of one task; the task's id is first.
            attempt: The attempt that has arrived.
            until: When to give up, by the monotonic clock.

        Raises:
            StoreError: the first attempt is not known.
        """
        shard = shard_of(hand_over[0], len(self._shards))
        return self._arrive(self._shards[shard], hand_over, attempt, until)

    def delivery(
        self, message: tuple[str, ...], *, again: bool, received: float | None = None
    ) -> Delivery:
        """Describe a message that is to become an entry, once; see :class:`Delivery`.

        Args:
            message: Texts that together name it; the task's id is first.
            again: Whether it may have been delivered before, or its name is certainly unique.
            received: When it arrived, by the monotonic clock; since then the broker may have
                redelivered it to another worker. By default now; with *again*, none, for then its
                running task makes the call.
        """
        if received is None and not again:
            received = clock.monotonic()
        mark = _mark(("taken", *message))
        return Delivery(mark, again, received, self._keep_ms, self._most, message[1])

    def is_taken(self, message: tuple[str, ...], until: float) -> bool:
        """Return whether a redelivered message became an entry before; if not, it may run.

        If it may run, a late request of its earlier worker (which may have died) makes no entry.

        Raises:
            StoreError: it is not known.
        """
        # An entry with a key may be in any shard.
        firsts = (self._arrive(shard, ("taken", *message), 0, until) for shard in self._shards)
        return any(first == 0 for first in firsts)

    def _arrive(self, scripts: Scripts, texts: tuple[str, ...], attempt: int, until: float) -> int:
        first: int = scripts.call(
            "arrive",
            until=until,
            mark=_mark(texts),
            attempt=attempt,
            keep_ms=self._keep_ms,
            most=self._most,
        )
        return first


def _mark(texts: tuple[str, ...]) -> bytes:
    # Of one size, however long the id is.
    return hashlib.sha256(repr(texts).encode()).digest()[:16]

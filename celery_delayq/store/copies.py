"""Which copy of a relayed task was at a worker first.

    hand-over, attempt 1 ----> worker    marked: 1
    the same, attempt 2 -----> worker    1 was first: a second copy
    the same, attempt 1 -----> worker    1 was first: the broker delivers it again

A mark is known for as long as a generation lasts, at least: an hour and a lease, in which a pause
of more than a minute does not count; or a million marks, which take some 80 MB. There are two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from .scripts import Scripts

KEEP = 3600.0  # seconds that a generation lasts, and a lease besides
MOST = 1_000_000  # marks of a generation, whatever its age


class Copies:
    """What a worker asks when it is given a relayed task.

    Args:
        shards: The scripts of each shard; a mark is in one of them.
        lease: Seconds after which a scanner may publish once more what another one holds.
    """

    def __init__(self, shards: Sequence[Scripts], lease: float) -> None:
        self._shards = shards
        self._keep_ms = round((KEEP + lease) * 1000)

    def first(self, hand_over: tuple[str, ...], attempt: int, until: float) -> int:
        """Which attempt at a hand-over was at a worker first; *attempt*, if none was before.

        Args:
            hand_over: Texts that together name one hand-over of one task.
            attempt: Which attempt at it has arrived.
            until: When to give up, by the monotonic clock.

        Raises:
            StoreError: it is not known.
        """
        # Of one size, however long an id is.
        mark = hashlib.sha256(repr(hand_over).encode()).digest()[:16]
        scripts = self._shards[int.from_bytes(mark[:4], "big") % len(self._shards)]
        first: int = scripts.call(
            "arrive", until=until, mark=mark, attempt=attempt, keep_ms=self._keep_ms, most=MOST
        )
        return first

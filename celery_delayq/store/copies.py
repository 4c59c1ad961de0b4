"""Which copy of a relayed task was at a worker first.

    hand-over, attempt 1 ----> worker    marked: 1
    the same, attempt 2 -----> worker    1 was first: a second copy
    the same, attempt 1 -----> worker    1 was first: the broker delivers it again

A mark is known for a generation at least, and for two at most. A generation lasts an hour and a
lease, or a million marks (64 MB); and as long as nothing arrives, the present one does not end.
"""

from __future__ import annotations

import hashlib

from .scripts import Scripts

KEEP = 3600.0  # seconds that a generation lasts, and a lease besides
MOST = 1_000_000  # marks of a generation, whatever its age


class Copies:
    """What a worker asks when it is given a relayed task.

    Args:
        scripts: The store's.
        lease: Seconds after which a scanner may publish once more what another one holds.
    """

    def __init__(self, scripts: Scripts, lease: float) -> None:
        self._scripts = scripts
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
        first: int = self._scripts.call(
            "arrive", until=until, mark=mark, attempt=attempt, keep_ms=self._keep_ms, most=MOST
        )
        return first

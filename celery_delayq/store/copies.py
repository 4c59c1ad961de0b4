"""Which copy of a relayed task was at a worker first, and which message was taken.

    hand-over, attempt 1 ----> worker    marked: 1
    the same, attempt 2 -----> worker    1 was first: a second copy
    the same, attempt 1 -----> worker    1 was first: the broker delivers it again

And which message became an entry of the store, so that it does so once, however often it comes:

    adopted, put off --------> store     marked, by the script that writes the entry
    the same once more ------> worker    it was taken: nothing is left to do
    another once more -------> worker    marked: it is let through, and what its first worker has
                                         still under way does not become an entry any more

A mark is known for as long as a generation lasts, at least: an hour, and a lease or the broker's
visibility time-out, in which a pause of more than a minute does not count; or a million marks,
which take some 80 MB. There are two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from .. import clock
from .keys import shard_of
from .scripts import Scripts
from .values import Delivery

KEEP = 3600.0  # seconds that a generation lasts, and what comes on top
MOST = 1_000_000  # marks of a generation, whatever its age


class Copies:
    """What a worker asks when it is given a message that may be one of several.

    Args:
        shards: The scripts of each shard; a mark is in that of its task.
        keep: Seconds after which a copy may still come: a lease, or a visibility time-out.
    """

    def __init__(self, shards: Sequence[Scripts], keep: float) -> None:
        self._shards = shards
        self._keep_ms = round((KEEP + keep) * 1000)

    def first(self, hand_over: tuple[str, ...], attempt: int, until: float) -> int:
        """Which attempt at a hand-over was at a worker first; *attempt*, if none was before.

        Args:
            hand_over: Texts that together name one hand-over of one task; the task's id is first.
            attempt: Which attempt at it has arrived.
            until: When to give up, by the monotonic clock.

        Raises:
            StoreError: it is not known.
        """
        return self._arrive(hand_over, attempt, until)

    def delivery(
        self, message: tuple[str, ...], *, again: bool, received: float | None = None
    ) -> Delivery:
        """A message that is to become an entry, once; see :class:`Delivery`.

        Args:
            message: Texts that together name it; the task's id is first.
            again: Whether it may have been delivered before, or no other message has that name.
            received: When it was, by the monotonic clock: a broker may have taken it back since,
                and given it to somebody else. By default, if *again*, its task runs, and asks for
                this; else now.
        """
        if received is None and not again:
            received = clock.monotonic()
        return Delivery(_mark(("taken", *message)), again, received, self._keep_ms, MOST)

    def is_taken(self, message: tuple[str, ...], until: float) -> bool:
        """Whether a message that came again became an entry before; if not, it is let through.

        What a worker has asked for it until now, one that died, say, makes no entry of it then,
        however late that comes: it runs.

        Raises:
            StoreError: it is not known.
        """
        return self._arrive(message, 0, until, "taken") == 0

    def _arrive(self, texts: tuple[str, ...], attempt: int, until: float, *kind: str) -> int:
        scripts = self._shards[shard_of(texts[0], len(self._shards))]
        first: int = scripts.call(
            "arrive",
            until=until,
            mark=_mark((*kind, *texts)),
            attempt=attempt,
            keep_ms=self._keep_ms,
            most=MOST,
        )
        return first


def _mark(texts: tuple[str, ...]) -> bytes:
    # Of one size, however long an id is.
    return hashlib.sha256(repr(texts).encode()).digest()[:16]

"""What a process knows of a master that may move: where it is, and since when.

    a sentinel, or MOVED --moved--> heard --+
                                            +--> of both, what was said later
    asked, tried ---------learn---> named --+

Each of the two is written in one step, and ``heard`` only by :meth:`MasterCache.moved`. So a
connect that ends late does not overwrite what was heard meanwhile. A lock, an interrupted caller
could leave locked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import clock
from .endpoint import Address

# Seconds after a word of a new master in which the old one is believed in only where no sentinel
# names another. One that is cut off from the others goes on naming it. The others make it a
# replica within ten seconds or so; then it says itself that it is none.
LEFT = 30.0


@dataclass(frozen=True)
class KnownMaster:
    """Who is the master, as a sentinel or a node of a Cluster said.

    Args:
        address: Where it is; ``None`` where nobody is known.
        at: When that was said, by the monotonic clock; or asked, a moment before.
        left: Who was it until then, where it was heard that another took over.
    """

    address: Address | None = None
    at: float = -math.inf
    left: Address | None = None


class MasterCache:
    """What a process knows of who is the master, and whom to ask first."""

    def __init__(self) -> None:
        self._heard = self._named = KnownMaster()
        self.is_doubted = False
        self.first = 0

    @property
    def word(self) -> KnownMaster:
        """What was said last."""
        heard, named = self._heard, self._named
        return heard if heard.at >= named.at else named

    @property
    def address(self) -> Address | None:
        """Who is the master, where that is known."""
        return self.word.address

    @property
    def left(self) -> Address | None:
        """Who was the master until a moment ago, as far as that was heard."""
        heard = self._heard
        is_over = clock.monotonic() >= heard.at + LEFT
        return None if is_over or heard.left == self.address else heard.left

    def moved(self, address: Address, left: Address | None) -> None:
        """It was heard that another is the master from now on, and who was it before."""
        self._heard = KnownMaster(address, clock.monotonic(), left)

    def learn(self, address: Address, at: float) -> bool:
        """Take note of who was named at that time, unless another was later; whether it was."""
        for later in (self._heard, self._named):
            if later.at >= at and later.address not in (None, address):
                return False
        # What is heard at this very moment is later as well, and counts.
        before, self._named = self._named, KnownMaster(address, at)
        if before.at > at and before.address is not None:  # named to another thread meanwhile
            self._named = before
            return before.address == address
        return True

    def forget(self, address: Address) -> None:
        """Know nobody any more, if this was the master."""
        now = clock.monotonic()  # before looking, so that what is heard after that is later
        if self.address == address:
            self._named = KnownMaster(None, now)

"""Remembers a master that may move, for a process, and since when it is known.

    a sentinel or MOVED --moved--> heard --+
                                           +--> the later of the two counts
    asked, tried --------learn---> named --+

Each of the two is written in one step, and only :meth:`MasterCache.moved` writes ``heard``. So a
connect that ends late does not overwrite a newer announcement. No lock: an interrupted caller could
leave it held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core import clock
from ..core.servers.endpoint import Address

# For this many seconds after a new master was announced, the old one counts only if no sentinel
# names another: a sentinel that is cut off still names the old one. The other sentinels make it a
# replica within some ten seconds, and from then on it reports that itself.
LEFT = 30.0


@dataclass(frozen=True)
class KnownMaster:
    """The master, according to a sentinel or a node of a Cluster.

    Args:
        address: Its address; ``None`` if no master is known.
        at: When the sentinel announced it or was queried, by the monotonic clock.
        left: The previous master, if the sentinel announced a failover.
    """

    address: Address | None = None
    at: float = -math.inf
    left: Address | None = None


class MasterCache:
    """The master that a process knows, and the sentinel to ask first."""

    def __init__(self) -> None:
        self._heard = self._named = KnownMaster()
        self.is_doubted = False
        self.first = 0

    @property
    def word(self) -> KnownMaster:
        """The later of the two."""
        heard, named = self._heard, self._named
        return heard if heard.at >= named.at else named

    @property
    def address(self) -> Address | None:
        """The master's address, if known."""
        return self.word.address

    @property
    def left(self) -> Address | None:
        """The address of the master until a moment ago, if its successor was announced."""
        heard = self._heard
        is_over = clock.monotonic() >= heard.at + LEFT
        return None if is_over or heard.left == self.address else heard.left

    def moved(self, address: Address, left: Address | None) -> None:
        """Note an announced new master, and the previous one."""
        self._heard = KnownMaster(address, clock.monotonic(), left)

    def learn(self, address: Address, at: float) -> bool:
        """Note the master named at that time, unless a later one is known; return whether noted."""
        for later in (self._heard, self._named):
            if later.at >= at and later.address not in (None, address):
                return False
        # An announcement at the same moment counts as later.
        before, self._named = self._named, KnownMaster(address, at)
        if before.at > at and before.address is not None:  # another thread learned of it meanwhile
            self._named = before
            return before.address == address
        return True

    def forget(self, address: Address) -> None:
        """Forget the master, if this is its address."""
        now = clock.monotonic()  # before the check, so that a later announcement counts
        if self.address == address:
            self._named = KnownMaster(None, now)

"""The filter of a selection or a listing, as scripts take it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from .record import label_of
from .values import State

# The indexes in which to look for a state. Paused entries move from one to the next, in this order.
_WAYS = {
    State.IN_FLIGHT: ("leased",),
    State.DEAD: ("dead",),
    State.PAUSED: ("refused", "due", "relay", "parked"),
}


@dataclass(frozen=True)
class Filter:
    """The conditions of a selection; times in ms. Of several values of one, any is enough.

    ``whole``: leave nothing out, whether readable or not; see ``dump.lua``.
    """

    tags: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    after_ms: int | None = None
    before_ms: int | None = None
    whole: bool = False

    @property
    def text(self) -> str:
        """The filter as scripts take it; see ``lua/prelude/targets.lua``."""
        times = (
            "-" if time_ms is None else str(time_ms) for time_ms in (self.after_ms, self.before_ms)
        )
        states = ",".join(sorted(self.states))
        labels = (
            "".join(label_of(name).hex() for name in some) for some in (self.tasks, self.queues)
        )
        words = (*times, *(word or "-" for word in (states, *labels)))
        return " ".join((*words, "\0".join(self.tags)) if self.tags else words)

    @property
    def digest(self) -> str:
        """Identifies this filter."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()[:16]

    @property
    def is_found_by_way(self) -> bool:
        """Whether the way finds only matching entries, provided that the tags are consistent."""
        if self.tags:
            return self == Filter(tags=self.tags[:1])
        return not self.states

    @property
    def ways(self) -> tuple[str, ...]:
        """The indexes to search, one after the other, without a tag; see ``sift.lua``."""
        if self.whole:
            return ("all",)
        # Between the ways of two states, an entry could go from the later to the earlier one.
        return _WAYS.get(self.states[0], ("records",)) if len(self.states) == 1 else ("records",)

"""How far a selection has come, as text that can be stored."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace

from ..errors import InvalidOption
from ..store.selection_scan import Position

LAST_NUMBER = 2**47  # of insertion


@dataclass(frozen=True)
class Cursor:
    """How far a selection has come.

    Attributes:
        store: The store's name.
        digest: Of what the selection picks by.
        starts: The last insertion number of each shard when it began.
        shard: Which of them it has come to.
        place: How far it has come there.
    """

    store: str
    digest: str
    starts: tuple[int, ...]
    shard: int = 0
    place: Position = field(default_factory=Position)

    def behind(self, shard: int, place: Position) -> Cursor:
        """The same selection, further on."""
        return replace(self, shard=shard, place=place)

    def place_in(self, shard: int) -> Position | None:
        """How far it has come in a shard; ``None``: it is through with that."""
        if shard == self.shard:
            return self.place
        return Position() if shard > self.shard else None

    @property
    def text(self) -> str:
        facts = [self.store, self.digest, self.starts, self.shard, self.place.number]
        facts += [self.place.task_id] if self.place.task_id else []
        packed = json.dumps(facts, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, now: Cursor) -> Cursor:
        """The cursor that *text* names, of a selection that is *now* made anew.

        Raises:
            InvalidOption: it is none, or one of another selection or store.
        """
        made = _unpacked(text)
        if made is None:
            raise InvalidOption("cursor", text, "the cursor of a selection")
        if made.store != now.store:
            raise InvalidOption("cursor", text, "a cursor of this store")
        if made.digest != now.digest:
            raise InvalidOption("cursor", text, "a cursor of a selection by the same arguments")
        # A start that is still to come would take in what is scheduled later.
        fits = len(made.starts) == len(now.starts) and 0 <= made.shard < len(now.starts)
        if not fits or any(one > last for one, last in zip(made.starts, now.starts, strict=True)):
            raise InvalidOption("cursor", text, "the cursor of a selection")
        return made


def _unpacked(text: str) -> Cursor | None:
    try:
        padded = text + "=" * (-len(text) % 4)
        facts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        store, digest, starts, shard, number, *task_id = facts
        words, numbers = [store, digest, *task_id], [*starts, shard]
        is_place = type(number) is int and -1 <= number <= LAST_NUMBER and len(task_id) <= 1
        if not is_place or {type(one) for one in words} != {str}:
            return None
        if any(type(one) is not int or not 0 <= one <= LAST_NUMBER for one in numbers):
            return None
        return Cursor(store, digest, tuple(starts), shard, Position(number, *task_id))
    except (TypeError, ValueError, AttributeError, RecursionError):
        return None

"""The position of a selection, as text that you can store."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace

from ..errors import InvalidOption
from ..store import Position

LAST_NUMBER = 2**47  # of insertion


@dataclass(frozen=True)
class SelectionCursor:
    """The position of a selection.

    Attributes:
        store: The store's name.
        digest: A digest of the selection's filters.
        starts: The last insertion number of each shard when the selection began.
        shard: The current shard.
        place: The position in that shard.
    """

    store: str
    digest: str
    starts: tuple[int, ...]
    shard: int = 0
    place: Position = field(default_factory=Position)

    def behind(self, shard: int, place: Position) -> SelectionCursor:
        """Return a cursor of the same selection, further on."""
        return replace(self, shard=shard, place=place)

    def place_in(self, shard: int) -> Position | None:
        """Return the position in a shard; ``None`` if that shard is finished."""
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
    def read(cls, text: str, now: SelectionCursor) -> SelectionCursor:
        """Parse *text*, the cursor of an earlier selection; *now* is that of the new one.

        Raises:
            InvalidOption: it is not a cursor, or belongs to another selection or store.
        """
        made = _unpacked(text)
        if made is None:
            raise InvalidOption("cursor", text, "the cursor of a selection")
        if made.store != now.store:
            raise InvalidOption("cursor", text, "a cursor of this store")
        if made.digest != now.digest:
            raise InvalidOption("cursor", text, "a cursor of a selection by the same arguments")
        # A start in the future would include tasks that are scheduled later.
        fits = len(made.starts) == len(now.starts) and 0 <= made.shard < len(now.starts)
        if not fits or any(
            start > last for start, last in zip(made.starts, now.starts, strict=True)
        ):
            raise InvalidOption("cursor", text, "the cursor of a selection")
        return made


def _unpacked(text: str) -> SelectionCursor | None:
    try:
        padded = text + "=" * (-len(text) % 4)
        facts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        store, digest, starts, shard, number, *task_id = facts
        words, numbers = [store, digest, *task_id], [*starts, shard]
        is_place = type(number) is int and -1 <= number <= LAST_NUMBER and len(task_id) <= 1
        if not is_place or {type(word) for word in words} != {str}:
            return None
        if any(type(figure) is not int or not 0 <= figure <= LAST_NUMBER for figure in numbers):
            return None
        return SelectionCursor(store, digest, tuple(starts), shard, Position(number, *task_id))
    except (TypeError, ValueError, AttributeError, RecursionError):
        return None

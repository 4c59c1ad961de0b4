r"""Extras, at the end of some records: a unique key, tags, a late policy.

    key NUL policy NUL tag NUL \xff more NUL ... 0042  their length, in 4 digits
       \xff f3600000                     |             how long the key holds, if so
                                         of a later release; a change keeps it

``lua/prelude/extras.lua`` describes the same to the scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

HAS_KEY, HAS_TAGS, HAS_POLICY = 1, 2, 4  # flags of the record
LENGTH_DIGITS = 4
MOST_TAGS = 16

Tags = Union[list[str], tuple[str, ...], set[str], frozenset[str]]
HELD = b"\xff"  # in no key: they are UTF-8
UNTIL_FINISHED, WINDOW = "f", "w"


def hold_of(ms: int, *, until_finished: bool) -> str:
    """Return how a key holds, as :class:`Extras` has it."""
    return f"{UNTIL_FINISHED if until_finished else WINDOW}{ms}" if ms else ""


@dataclass(frozen=True)
class Extras:
    """The extras of an entry.

    Attributes:
        key: Its unique key, 1 to 255 bytes of text without NUL; or empty.
        tags: Its tags, at most 16, each within the same limits.
        grace_ms: How late it may leave; ``None``: however late.
        excused_ms: Since when that counts, if that is later than its due time: unix ms.
        hold: How the key holds, if longer than the entry waits: a letter and ms; see
            ``extras.lua``.
        others: What a later release added, each part beginning with :data:`HELD`.
    """

    key: str = ""
    tags: tuple[str, ...] = ()
    grace_ms: int | None = None
    excused_ms: int = 0
    hold: str = ""
    others: tuple[bytes, ...] = ()

    @property
    def is_until_finished(self) -> bool:
        """Whether the key holds until the run has finished."""
        return self.hold.startswith(UNTIL_FINISHED)

    @property
    def unique_ms(self) -> int:
        """How long the key holds, at most or at least; 0: while the entry waits."""
        return int(self.hold[1:] or 0)

    @property
    def flags(self) -> int:
        has = HAS_KEY * bool(self.key) + HAS_TAGS * bool(self.tags or self.others)
        return has + HAS_POLICY * (self.grace_ms is not None)

    def text(self) -> bytes:
        """Return the extras as they end a record; empty, if there are none."""
        if not self.flags:
            return b""
        policy = "" if self.grace_ms is None else f"{self.grace_ms}:{self.excused_ms:013d}"
        key = self.key.encode() + (HELD + self.hold.encode() if self.hold else b"")
        parts = (key, *map(str.encode, (policy, *self.tags)), *self.others)
        text = b"".join(b"%s\0" % part for part in parts)
        return text + b"%0*d" % (LENGTH_DIGITS, len(text))

    @classmethod
    def ending(cls, record: bytes) -> Extras:
        """Read the output of :meth:`text` at the end of a record."""
        length = int(record[-LENGTH_DIGITS:])
        named, policy, *rest = record[-LENGTH_DIGITS - length : -LENGTH_DIGITS].split(b"\0")[:-1]
        key, _, hold = (part.decode(errors="replace") for part in named.partition(HELD))
        grace, _, excused = policy.partition(b":")
        others = tuple(part for part in rest if part.startswith(HELD))
        tags = tuple(part.decode(errors="replace") for part in rest if part not in others)
        return cls(key, tags, int(grace) if policy else None, int(excused or 0), hold, others)

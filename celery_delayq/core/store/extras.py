r"""Extras, at the end of some records: a unique key, tags, a late policy.

    key NUL policy NUL tag NUL tag NUL ... 0042        their length, in 4 digits
       \xff f3600000                                   how long the key holds, if so

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
    """

    key: str = ""
    tags: tuple[str, ...] = ()
    grace_ms: int | None = None
    excused_ms: int = 0
    hold: str = ""

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
        has = HAS_KEY * bool(self.key) + HAS_TAGS * bool(self.tags)
        return has + HAS_POLICY * (self.grace_ms is not None)

    def text(self) -> bytes:
        """Return the extras as they end a record; empty, if there are none."""
        if not self.flags:
            return b""
        policy = "" if self.grace_ms is None else f"{self.grace_ms}:{self.excused_ms:013d}"
        key = self.key.encode() + (HELD + self.hold.encode() if self.hold else b"")
        text = b"".join(b"%s\0" % part for part in (key, *map(str.encode, (policy, *self.tags))))
        return text + b"%0*d" % (LENGTH_DIGITS, len(text))

    @classmethod
    def ending(cls, record: bytes) -> Extras:
        """Read the output of :meth:`text` at the end of a record."""
        length = int(record[-LENGTH_DIGITS:])
        named, _, others = record[-LENGTH_DIGITS - length : -LENGTH_DIGITS].partition(b"\0")
        policy, *tags = others.decode(errors="replace").split("\0")[:-1]
        key, _, hold = (part.decode(errors="replace") for part in named.partition(HELD))
        grace, _, excused = policy.partition(":")
        return cls(key, tuple(tags), int(grace) if policy else None, int(excused or 0), hold)

"""Extras, at the end of some records: a unique key, tags, a late policy.

    key NUL policy NUL tag NUL tag NUL ... 0042        their length, in 4 digits

``lua/prelude/extras.lua`` describes the same to the scripts.
"""

from __future__ import annotations

from dataclasses import dataclass

HAS_KEY, HAS_TAGS, HAS_POLICY = 1, 2, 4  # flags of the record
LENGTH_DIGITS = 4


@dataclass(frozen=True)
class Extras:
    """The extras of an entry.

    Attributes:
        key: Its unique key, 1 to 255 bytes of text without NUL; or empty.
        tags: Its tags, at most 16, each within the same limits.
        grace_ms: How late it may leave; ``None``: however late.
        excused_ms: Since when that counts, if that is later than its due time: unix ms.
    """

    key: str = ""
    tags: tuple[str, ...] = ()
    grace_ms: int | None = None
    excused_ms: int = 0

    @property
    def flags(self) -> int:
        has = HAS_KEY * bool(self.key) + HAS_TAGS * bool(self.tags)
        return has + HAS_POLICY * (self.grace_ms is not None)

    def text(self) -> bytes:
        """Return the extras as they end a record; empty, if there are none."""
        if not self.flags:
            return b""
        policy = "" if self.grace_ms is None else f"{self.grace_ms}:{self.excused_ms:013d}"
        text = "".join(f"{part}\0" for part in (self.key, policy, *self.tags)).encode()
        return text + b"%0*d" % (LENGTH_DIGITS, len(text))

    @classmethod
    def ending(cls, record: bytes) -> Extras:
        """Read the output of :meth:`text` at the end of a record."""
        length = int(record[-LENGTH_DIGITS:])
        text = record[-LENGTH_DIGITS - length : -LENGTH_DIGITS]
        key, policy, *tags = text.decode(errors="replace").split("\0")[:-1]
        grace, _, excused = policy.partition(":")
        return cls(key, tuple(tags), int(grace) if policy else None, int(excused or 0))

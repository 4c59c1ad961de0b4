"""What one entry is in Redis. The scripts put it together; this side writes two parts of it.

    1 L 6:celery | ...... 1767225600000 1767222000000 abcdefgh T ............ ...
    | | |          |      |             |             |        | |            what differs
    | | |          |      |             |             |        | name of the template, 12 bytes
    | | |          |      |             |             |        form: shares a template, or whole (I)
    | | |          |      |             |             operation id of the call that scheduled it
    | | |          |      |             when it was scheduled, ms
    | | |          |      due time, ms
    | | |          insertion number, 6 bytes
    | | destination: its length, ':', and it
    | bound for a list (L) or a relay through the broker (R)
    format version                                          (no blanks between the parts)

Of the 956 bytes of a no-op task's message some 150 differ between two calls of the same task. The
rest is a **template**, kept once and counted, which brings a waiting task from 1,260 to 460 bytes
of Redis's memory and, there being less to copy, costs the hand-over nothing. A message that is
sent for the first time, or large, or unlike the usual, is kept whole.

The message ends where its due time belongs, and a script fills that in: moving an entry never
touches its message. ``scripts/_prelude.lua`` describes the same layout to the scripts. What was
written is read by every later version with the same first byte; a record that begins with another
one is set aside whole and left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

#: Name of the message header that says when the task was due, in ms since 1970.
DUE_HEADER = "delayq_due"

#: Header, on the way to the store only: how many ms after the due time the task expires.
EXPIRES_HEADER = "delayq_expires_ms"

NAME_BYTES = 12
LINES = 10


@dataclass(frozen=True)
class Draft:
    """What the scheduling side writes of a record."""

    destination: bytes
    body: bytes
    template: bytes = b""

    @property
    def name(self) -> bytes | None:
        """The name of the template that the body shares, if it does."""
        return self.body[1 : 1 + NAME_BYTES] if self.template else None


def destination_for(kind: str, place: str) -> bytes:
    """The record's part before the seam; *kind* is ``"L"`` (a list's key) or ``"R"``."""
    where = place.encode()
    return b"%s%d:%s" % (kind.encode(), len(where), where)


def whole(destination: bytes, message: str) -> Draft:
    """A record that carries its message; *message* is JSON up to the due time at its end."""
    return Draft(destination, b"I" + message.encode())


@dataclass(frozen=True)
class Template:
    """What the messages of one task share, in :data:`LINES` lines, and its name.

    ``message_of`` in the prelude puts a message together from it.
    """

    text: bytes
    name: bytes

    @classmethod
    def of(cls, lines: list[str]) -> Template:
        text = "\n".join(lines).encode()
        return cls(text, hashlib.blake2b(text, digest_size=NAME_BYTES).digest())

    def draft(self, destination: bytes, differing: Iterable[str]) -> Draft:
        """A record that shares it; *differing* belongs between the lines."""
        return Draft(destination, b"T" + self.name + "\n".join(differing).encode(), self.text)

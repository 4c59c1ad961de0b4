"""Reads a script's reply by the names in its header.

    reply    now, dead of id why, known in words of attempts refusals

A part is a value or rows. The fields of all rows stand one after the other in the reply (``of``),
or in one text with blanks between (``in words of``), which a client reads faster. If there is
nothing but rows, the name may be left out.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_REPLY = re.compile(r"^reply +(.+(?:\n {9}.+)*)", re.MULTILINE)
_PART = re.compile(r"(\w*?) ?((?:in words )?)of ([\w ]+)")
_new_type: Callable[..., Any] = namedtuple  # noqa: PYI024 - the names are known when it is called


@dataclass(frozen=True)
class _Part:
    """A part of a reply: rows if it has *fields*, else a value."""

    name: str
    fields: tuple[str, ...] = ()
    is_text: bool = False

    @classmethod
    def parse(cls, text: str) -> _Part:
        found = _PART.fullmatch(text)
        return cls(found[1], tuple(found[3].split()), bool(found[2])) if found else cls(text)

    def reader(self) -> Callable[[Any], Any]:
        """Return a function that makes rows of this part."""
        make, size = _new_type(self.name or "Row", self.fields)._make, len(self.fields)

        def read(value: Any) -> list[Any]:
            flat = value.split() if self.is_text else value
            return [make(row) for row in zip(*[iter(flat)] * size, strict=True)]

        return read


def reader_of(header: str) -> Callable[[Any], Any]:
    """Return a function that makes a named tuple of a script's reply, by the names in its header.

    Parts missing at the end of a reply are ``None``. If the reply does not fit the header, the
    function raises ``ValueError`` or ``TypeError``.
    """
    found = _REPLY.search(header)
    if not found:
        return lambda reply: reply
    parts = [_Part.parse(" ".join(part.split())) for part in found[1].split(",")]
    if not parts[0].name:
        return parts[0].reader()
    names = [part.name for part in parts]
    reply_type = _new_type("Reply", names, defaults=[None] * len(names))
    readers = [(place, part.reader()) for place, part in enumerate(parts) if part.fields]

    def read(reply: Sequence[Any]) -> Any:
        values = list(reply)
        for place, rows in readers:
            if place < len(values):
                values[place] = rows(values[place])
        return reply_type(*values)

    return read

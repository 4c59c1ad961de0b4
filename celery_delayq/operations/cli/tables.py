"""Tables: the first rows set the column widths; the other rows follow as they are read.

    ID        DUE (UTC)            IN      TASK         ARGS   QUEUE  STATE
    order-42  2030-01-01 09:00:00  19 min  shop.remind  (42,)  mail   scheduled

A pipe gets whole lines. On a terminal, a line that is too long is shortened column by column: texts
are cut, with an ellipsis, or columns left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from .screen import Line

FIRST = 100  # rows that set the column widths
_GAP = "  "
_CUT = "…"


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        title: Its heading.
        styles: Rich styles by the first word of a text; ``""`` is for all others.
        is_number: Whether its texts are right-aligned.
        is_id: Whether texts are cut in the middle, as related ids often start alike.
    """

    title: str
    styles: Mapping[str, str] = field(default_factory=dict)
    is_number: bool = False
    is_id: bool = False

    def style_of(self, text: str) -> str:
        return self.styles.get(text.partition(",")[0]) or self.styles.get("", "")

    def fitted(self, text: str, width: int, *, cuts: bool) -> str:
        """Pad a text to the column's width; if it is wider, cut it only if *cuts*."""
        if cuts and len(text) > width:
            tail = (width - 1) // 2 if self.is_id else 0
            text = f"{text[: width - 1 - tail]}{_CUT}{text[len(text) - tail :]}"
        return text.rjust(width) if self.is_number else text.ljust(width)


@dataclass(frozen=True)
class Room:
    """A terminal's width, and how to shorten wider lines.

    Attributes:
        width: The number of characters in a line.
        gives: Pairs, tried in order: the index of a column, and its minimum width; 0: leave the
            column out.
    """

    width: int
    gives: Sequence[tuple[int, int]]

    def widths(self, wanted: Sequence[int]) -> list[int]:
        """Return the widths of the columns; 0 for a column to leave out."""
        widths = list(wanted)
        for place, least in self.gives:
            over = sum(width + len(_GAP) for width in widths if width) - len(_GAP) - self.width
            if over > 0:
                widths[place] = min(widths[place], max(least, widths[place] - over) * (least > 0))
        return widths


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], room: Room | None = None
) -> Iterator[Line]:
    """Yield the lines of a table; it reads its rows, which are plain text, as you iterate."""
    rows = iter(rows)
    first = list(islice(rows, FIRST))
    titles = [column.title for column in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *first, strict=True)]
    if room is not None:
        widths = room.widths(widths)
    for row in chain([titles], first, rows):
        styles = [
            "bold" if row is titles else column.style_of(text)
            for column, text in zip(columns, row, strict=True)
        ]
        texts = [
            column.fitted(text, width, cuts=room is not None)
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        yield _line(texts, widths, styles)


def _line(texts: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> Line:
    whole = zip(texts, styles, widths, strict=True)
    shown = [(text, style) for text, style, width in whole if width]
    while len(shown) > 1 and not shown[-1][0].strip():
        shown.pop()
    last, style = shown.pop()
    return [*((text + _GAP, style) for text, style in shown), (last.rstrip(), style)]

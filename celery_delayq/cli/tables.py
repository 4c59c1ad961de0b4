"""Tables: the first rows say how wide the columns are; the others follow while they are read.

    ID        DUE (UTC)            IN      TASK         ARGS   QUEUE  STATE
    order-42  2030-01-01 09:00:00  19 min  shop.remind  (42,)  mail   scheduled

A pipe gets whole lines. On a terminal a line that is too long gives way, column by column: a text
is cut, with an ellipsis, or a column is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from .screen import Line

FIRST = 100  # rows that are looked at before the first is printed
_GAP = "  "
_CUT = "…"


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        title: Its heading.
        styles: Styles of rich's by the first word of a text; of all others that of ``""``.
        is_number: Whether its texts stand on the right.
        is_id: Whether a text is cut in its middle: ids of one kind often begin alike.
    """

    title: str
    styles: Mapping[str, str] = field(default_factory=dict)
    is_number: bool = False
    is_id: bool = False

    def style_of(self, text: str) -> str:
        return self.styles.get(text.partition(",")[0]) or self.styles.get("", "")

    def fitted(self, text: str, width: int, *, cuts: bool) -> str:
        """A text that is as wide as the column; one that is wider is cut, or stays as it is."""
        if cuts and len(text) > width:
            tail = (width - 1) // 2 if self.is_id else 0
            text = f"{text[: width - 1 - tail]}{_CUT}{text[len(text) - tail :]}"
        return text.rjust(width) if self.is_number else text.ljust(width)


@dataclass(frozen=True)
class Room:
    """A terminal's width, and how a line that is wider gives way.

    Attributes:
        width: In columns.
        gives: Pairs in the order in which they are tried: the place of a column, and how narrow
            its texts may become; 0: it is left out.
    """

    width: int
    gives: Sequence[tuple[int, int]]

    def widths(self, wanted: Sequence[int]) -> list[int]:
        """The widths of columns; 0 for one that is left out."""
        widths = list(wanted)
        for place, least in self.gives:
            over = sum(one + len(_GAP) for one in widths if one) - len(_GAP) - self.width
            if over > 0:
                widths[place] = min(widths[place], max(least, widths[place] - over) * (least > 0))
        return widths


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], room: Room | None = None
) -> Iterator[Line]:
    """The lines of a table; its rows, which are plain text, are taken while the lines are."""
    rows = iter(rows)
    first = list(islice(rows, FIRST))
    titles = [one.title for one in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *first, strict=True)]
    if room is not None:
        widths = room.widths(widths)
    for row in chain([titles], first, rows):
        styles = [
            "bold" if row is titles else one.style_of(text)
            for one, text in zip(columns, row, strict=True)
        ]
        texts = [
            one.fitted(text, width, cuts=room is not None)
            for one, text, width in zip(columns, row, widths, strict=True)
        ]
        yield _line(texts, widths, styles)


def _line(texts: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> Line:
    whole = zip(texts, styles, widths, strict=True)
    shown = [(text, style) for text, style, width in whole if width]
    while len(shown) > 1 and not shown[-1][0].strip():
        shown.pop()
    last, style = shown.pop()
    return [*((text + _GAP, style) for text, style in shown), (last.rstrip(), style)]

"""Tables: the first rows say how wide the columns are; the others follow while they are read.

    ID        DUE (UTC)                QUEUE  TASK         STATE      ERROR
    order-42  2030-01-01 09:00:00.000  mail   shop.remind  scheduled

A line is never cut or broken, as its texts may have to be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from .screen import Line

FIRST = 100  # rows that are looked at before the first is printed
_GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        title: Its heading.
        styles: Styles of rich's by the first word of a text; of all others that of ``""``.
    """

    title: str
    styles: Mapping[str, str] = field(default_factory=dict)

    def style_of(self, text: str) -> str:
        return self.styles.get(text.partition(",")[0]) or self.styles.get("", "")


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterator[Line]:
    """The lines of a table; its rows, which are plain text, are taken while the lines are."""
    rows = iter(rows)
    first = list(islice(rows, FIRST))
    titles = [one.title for one in columns]
    widths = [max(map(len, texts)) for texts in zip(titles, *first, strict=True)]
    yield _line(titles, widths, ["bold"] * len(columns))
    for row in chain(first, rows):
        styles = [one.style_of(text) for one, text in zip(columns, row, strict=True)]
        yield _line(row, widths, styles)


def _line(texts: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> Line:
    last = max((at for at, text in enumerate(texts) if text), default=0)
    padded = [text.ljust(width) + _GAP for text, width in zip(texts[:last], widths, strict=False)]
    return list(zip([*padded, texts[last]], styles, strict=False))

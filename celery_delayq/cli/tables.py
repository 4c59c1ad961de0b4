"""Tables that stream: the first rows say how wide the columns are, the others follow as they come.

    wide     ID        DUE (UTC)                QUEUE  TASK
             order-42  2030-01-01 09:00:00.000  mail   shop.remind

    narrow   ID
               DUE (UTC)                QUEUE  TASK
             order-42
               2030-01-01 09:00:00.000  mail   shop.remind

Only a terminal is ever too narrow. There the fractions of seconds go first, and long errors are
cut; nothing else is, as it may have to be copied.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from .screen import Line

FIRST = 100  # rows that are looked at before the first is printed
_GAP = "  "
_CUT = "..."


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        title: Its heading.
        usual: What needs no column: where all of the first rows have it, there is none.
        least: To how many characters its texts may be cut on a terminal; ``None``: never.
        mark: What a text that was cut ends in.
        styles: Styles of rich's by the first word of a text; of all others that of ``""``.
    """

    title: str
    usual: str | None = None
    least: int | None = None
    mark: str = _CUT
    styles: Mapping[str, str] = field(default_factory=dict)

    @property
    def shortest(self) -> int:
        """To how many characters it may be cut."""
        return sys.maxsize if self.least is None else max(self.least, len(self.title))

    def style_of(self, text: str) -> str:
        if not self.styles:
            return ""
        word = text.partition(",")[0]
        return self.styles.get(word) or self.styles.get("", "")

    def cut(self, text: str, width: int) -> str:
        """A text in so many columns, or as few as it can be cut to."""
        if self.least is None or width_of(text) <= (width := max(width, self.least)):
            return text
        kept = width - len(self.mark)
        while width_of(text[:kept]) > width - len(self.mark):
            kept -= 1
        return text[:kept] + self.mark


def due(title: str) -> Column:
    """A column of times, from which the fractions of seconds may go."""
    return Column(title, least=len("2030-01-31 09:00:00"), mark="")


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None
) -> Iterator[Line]:
    """The lines of a table, whose first column says which row it is.

    Args:
        columns: Its columns.
        rows: Its cells, which are plain text; taken while the lines are.
        width: Columns of the terminal, or ``None``.
    """
    rows = iter(rows)
    first = list(islice(rows, FIRST))
    shape = _Shape(columns, first, width)
    yield from shape.head()
    for row in chain(first, rows):
        yield from shape.row(row)


@dataclass(frozen=True)
class _Cell:
    text: str
    width: int
    style: str
    is_usual: bool = False

    @property
    def part(self) -> tuple[str, str]:
        return _padded(self.text, self.width), self.style


class _Shape:
    """How wide the columns are, and whether a row is one line or more."""

    def __init__(
        self, columns: Sequence[Column], first: Sequence[Sequence[str]], width: int | None
    ) -> None:
        self._columns = columns
        self._width = width
        self._shown = [
            place
            for place, one in enumerate(columns)
            if one.usual is None or any(row[place] != one.usual for row in first)
        ]
        self._without = [
            (place, one.usual) for place, one in enumerate(columns) if place not in self._shown
        ]
        texts = [[columns[place].title for place in self._shown]]
        texts += [[row[place] for place in self._shown] for row in first]
        self._widths = [max(map(width_of, column)) for column in zip(*texts, strict=True)]
        narrow = self._widths if width is None else self._cut_to(width)
        self._is_stacked = width is not None and _length(narrow) > width
        if not self._is_stacked:
            self._widths = narrow

    def _cut_to(self, width: int) -> list[int]:
        """How wide the columns are when their texts are cut, as far as need be and may be."""
        widths = list(self._widths)
        for at, place in enumerate(self._shown):
            column, beyond = self._columns[place], max(0, _length(widths) - width)
            shortest = min(column.shortest, widths[at])
            # Of a time all digits go that can, or none.
            left = widths[at] - beyond if column.mark else shortest
            widths[at] = max(shortest, left) if beyond else widths[at]
        return widths

    def head(self) -> Iterator[Line]:
        titles = [self._columns[place].title for place in self._shown]
        both = zip(titles, self._widths, strict=True)
        return self._lines([_Cell(title, width, "bold") for title, width in both])

    def row(self, row: Sequence[str]) -> Iterator[Line]:
        if self._width is None:
            return iter([[(self._whole(row), "")]])
        cells = [
            self._cell(place, row[place], width)
            for place, width in zip(self._shown, self._widths, strict=True)
        ]
        cells += [self._cell(place, row[place], 0) for place in self._hidden(row)]
        return self._lines(cells)

    def _whole(self, row: Sequence[str]) -> str:
        """A row without styles, for what is no terminal; there may be very many."""
        both = zip(self._shown, self._widths, strict=True)
        texts = [_padded(row[place], width) for place, width in both]
        return _GAP.join([*texts, *(row[place] for place in self._hidden(row))]).rstrip()

    def _hidden(self, row: Sequence[str]) -> list[int]:
        """What a later row has to tell that none of the first had."""
        return [place for place, usual in self._without if row[place] != usual]

    def _cell(self, place: int, text: str, width: int) -> _Cell:
        column, most = self._columns[place], width
        if self._is_stacked or not width:
            most = (self._width or 0) - len(_GAP)
        is_usual = text == column.usual
        return _Cell(column.cut(text, most), width, column.style_of(text), is_usual)

    def _lines(self, cells: Sequence[_Cell]) -> Iterator[Line]:
        lengths = [width_of(one.text) for one in cells[-1:]]
        lengths += [max(one.width, width_of(one.text)) for one in cells[:-1]]
        if not self._is_stacked and (self._width is None or _length(lengths) <= self._width):
            yield _joined(cells)
            return
        yield [(cells[0].text, cells[0].style)]
        for some in self._packed([one for one in cells[1:] if not one.is_usual]):
            yield [(_GAP, ""), *_joined(some)]

    def _packed(self, cells: Sequence[_Cell]) -> Iterator[Sequence[_Cell]]:
        """The cells by lines that are narrow enough, as far as single cells are."""
        line: list[_Cell] = []
        used = 0
        for cell in cells:
            if line and used + 2 * len(_GAP) + width_of(cell.text) > (self._width or 0):
                yield line
                line, used = [], 0
            line.append(cell)
            used += len(_GAP) + max(cell.width, width_of(cell.text))
        yield line


def _joined(cells: Sequence[_Cell]) -> Line:
    *others, last = cells[: 1 + max(at for at, cell in enumerate(cells) if cell.text or not at)]
    parts = [part for cell in others for part in (cell.part, (_GAP, ""))]
    return [*parts, (last.text, last.style)]


def _padded(text: str, width: int) -> str:
    return text.ljust(width) if text.isascii() else text + " " * (width - width_of(text))


def _length(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def width_of(text: str) -> int:
    """How many columns of a terminal a plain text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) > 0 for one in text)

"""The table: each line's median, its spread, the figure beside it, the ratio, and the goal."""

import sys
from collections.abc import Iterator, Sequence

from tests.lab.benchmarks.goals import LINES, TABLES, Line, Table
from tests.lab.benchmarks.stats import Figures, medians, ratio

HEADINGS = ("what", "median", "range", "unit", "beside it", "ratio", "goal", "")
RIGHT = {1, 5}

Rounds = dict[str, list[Figures]]
Row = tuple[str, ...]


def rows(rounds: Rounds) -> Iterator[Row]:
    """A row for each line whose figure was measured."""
    for line in LINES:
        measured = rounds.get(line.measure, [])
        if any(line.name in figures for figures in measured):
            yield _row(line, measured)


def _row(line: Line, measured: Sequence[Figures]) -> Row:
    values = [figures[line.name] for figures in measured if line.name in figures]
    median = medians(measured)
    value, beside = median[line.name], median.get(line.beside)
    quotient = ratio(measured, line.name, line.beside)
    met = all(goal.met(value, quotient) for goal in line.goals)
    return (
        line.says,
        number(value),
        f"{number(min(values))}..{number(max(values))}" if len(values) > 1 else "",
        line.unit,
        "" if beside is None else f"{number(beside)} {line.other}",
        "" if quotient is None else f"{quotient:.2f}",
        ", ".join(map(str, line.goals)),
        "" if not line.goals else "ok" if met else "MISSED",
    )


def number(value: float) -> str:
    """Three significant digits: 98,200, 12.5, 0.031."""
    if abs(value) >= 1000:
        return f"{round(value, 2 - len(str(int(abs(value)))) + 1):,.0f}"
    return f"{value:.3g}"


def table_rows(table: Table, rounds: Rounds) -> Iterator[Row]:
    """The rows of which something was measured; a dash for what was not."""
    measured = medians(rounds.get(table.measure, []))
    for row, says in table.rows.items():
        figures = [measured.get(f"{row}_{figure}") for figure in table.figures]
        if any(figure is not None for figure in figures):
            cells = ("-" if figure is None else number(figure) for figure in figures)
            yield (says, *cells)


def show(rounds: Rounds) -> None:
    """Print all tables."""
    _print(HEADINGS, list(rows(rounds)), right=RIGHT)
    for table in TABLES:
        beside = list(table_rows(table, rounds))
        if beside:
            print()
            headings = (table.says, *table.figures.values())
            _print(headings, beside, right=set(range(1, len(headings))))


def _print(headings: Row, lines: list[Row], *, right: set[int]) -> None:
    """With rich, if that is installed."""
    if not lines:
        return
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _plain([headings, *lines], right)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="right" if at in right else "left", no_wrap=at != 0)
    for line in lines:
        table.add_row(*line, style="red" if line[-1] == "MISSED" else None)
    # Output to a file has no width to fit.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _plain(lines: list[Row], right: set[int]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())

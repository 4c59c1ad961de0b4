"""The table, and the README that it stands in."""

import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from tests.lab.comparison.rows import ROWS
from tests.lab.comparison.ways import COLUMNS, Column
from tests.support.rabbit_server import rabbit_binary
from tests.support.redis_programs import redis_binaries

README = Path(__file__).with_name("README.md")
FAILED = "(failed)"
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
CORNER = "question"

Cells = dict[tuple[str, str], str]


def table(cells: Cells, ways: list[str] | None = None, rows: list[str] | None = None) -> str:
    """The table in Markdown, of all ways and rows or of some."""
    columns = [one for one in COLUMNS if ways is None or one.name in ways]
    lines = [(CORNER, *(one.title for one in columns)), ("---",) * (len(columns) + 1)]
    lines += [
        (row.title, *(cells.get((one.name, row.name), "") for one in columns))
        for row in ROWS
        if rows is None or row.name in rows
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def heading() -> str:
    """Date, versions and machine, in one line."""
    installed = {name: _version(column, name) for column in COLUMNS for name in column.packages}
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    servers = f"Redis {redis_binaries()[0][0]}, RabbitMQ {_rabbit_version()}"
    machine = (
        f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} shared cores"
    )
    today = datetime.now(timezone.utc).date()
    return f"{today}: {versions}; {servers}; {machine}; all on loopback."


def _rabbit_version() -> str:
    # The distribution's folder has it in its name.
    found = re.search(r"rabbitmq_server-([\d.]+)", rabbit_binary() or "")
    return found[1] if found else "?"


def _version(column: Column, package: str) -> str:
    say = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.check_output([column.python, "-c", say], text=True).strip()


def definitions() -> str:
    """The question of each row, and each column's way of delaying a job."""
    rows = "".join(f"- **{row.title}.** {row.says}\n" for row in ROWS)
    ways = "".join(f"- **{one.title}**: {one.told}\n" for one in COLUMNS)
    return f"{rows}\n### How each delays\n\n{ways}"


def part(cells: Cells) -> str:
    """The text between the two marks."""
    return f"{BEGIN}\n{heading()}\n\n{table(cells)}\n### What each row asks\n\n{definitions()}{END}"


def written() -> Cells:
    """The cells in the README, by way and row."""
    lines = [line for line in README.read_text("utf-8").splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    columns = {column.title: column.name for column in COLUMNS}
    rows = {row.title: row.name for row in ROWS}
    ways = next(([columns.get(one) for one in each[1:]] for each in found if each[0] == CORNER), [])
    return {
        (way, rows[title]): cell
        for title, *cells in found
        if title in rows
        for way, cell in zip(ways, cells, strict=True)
        if way
    }


def write(cells: Cells) -> None:
    """Replace the cells of the README."""
    cells = {**written(), **cells}
    pattern = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
    README.write_text(pattern.sub(lambda _: part(cells), README.read_text("utf-8")), "utf-8")

"""The README's table has the shape that the code gives, and this package's column is true."""

import json
import subprocess
import sys

import pytest

from tests.comparison import report
from tests.comparison.rows import ANSWERS, ROWS
from tests.comparison.ways import COLUMNS
from tests.support.worker import ROOT

# What takes half a minute is asked by the command alone.
FAST = ("cancel", "reschedule", "list", "process", "tag")


@pytest.fixture(scope="module")
def cells():
    """The cells of the written table, by way and row."""
    text = report.README.read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert head == [report.CORNER, *(column.title for column in COLUMNS)]
    assert [row[0] for row in rows] == [row.title for row in ROWS]
    return {
        (column.name, row.name): cell
        for row, (_, *written) in zip(ROWS, rows, strict=True)
        for column, cell in zip(COLUMNS, written, strict=True)
    }


def test_every_cell_of_the_table_has_an_answer(cells):
    assert [job for job, cell in cells.items() if cell in ("", report.FAILED)] == []


def test_what_stands_beside_the_table_is_what_the_code_says(cells):
    text = report.README.read_text("utf-8")
    assert report.table(cells) in text
    assert report.definitions() in text


@pytest.mark.parametrize(
    "row", [row for row in ANSWERS if row.name in FAST], ids=lambda row: row.name
)
def test_a_cell_of_this_package_is_what_its_probe_gives(cells, row, redis_server):
    asked = subprocess.run(
        [sys.executable, "-m", "tests.comparison.ask", "delayq", row.name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout.splitlines()[-1])[0] == cells["delayq", row.name]

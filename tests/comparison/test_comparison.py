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
    return report.written()


def test_every_cell_of_the_table_has_an_answer(cells):
    assert set(cells) == {(column.name, row.name) for column in COLUMNS for row in ROWS}
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

"""The README's table has the shape that the code gives, and this package's column is true."""

import json
import subprocess
import sys

import pytest

from tests.lab.comparison import report
from tests.lab.comparison.rows import ANSWERS, ROWS
from tests.lab.comparison.ways import COLUMNS
from tests.readme.document import README as PROJECT
from tests.support.worker import ROOT

# Rows that take half a minute run only with the command.
FAST = ("cancel", "reschedule", "list", "process", "tag")

# The project's README has less room: its rows and columns, and its shorter words for answers.
SHORT_ROWS = ("cancel", "truth", "reschedule", "kill", "timeout", "memory", "rate")
SHORT_COLUMNS = (
    "delayq", "celery_redis", "celery_rabbitmq", "celery_beat", "rq", "huey"
)  # fmt: skip
SHORTER = {
    "none": "no",
    "only while workers run": "no",
    "not within 75 s": "over 75 s late",
    "ran 8 times": "8 times",
    "under a new id": "new id",
    "1.0": "1",
}


@pytest.fixture(scope="module")
def cells():
    return report.written()


def test_every_cell_of_the_table_has_an_answer(cells):
    assert set(cells) == {(column.name, row.name) for column in COLUMNS for row in ROWS}
    assert [job for job, cell in cells.items() if cell in ("", report.FAILED)] == []


def test_the_table_and_its_definitions_are_those_of_the_code(cells):
    text = report.README.read_text("utf-8")
    assert report.table(cells) in text
    assert report.definitions() in text


def test_the_readme_of_the_project_says_the_same(cells):
    rows = PROJECT.rows("Comparison")
    said = {
        (way, row): cell
        for row, (_, *told) in zip(SHORT_ROWS, rows, strict=True)
        for way, cell in zip(SHORT_COLUMNS, told, strict=True)
    }
    assert said == {job: SHORTER.get(cells[job], cells[job]) for job in said}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "row", [row for row in ANSWERS if row.name in FAST], ids=lambda row: row.name
)
def test_a_cell_of_this_package_is_what_its_probe_gives(cells, row, redis_server):
    asked = subprocess.run(
        [sys.executable, "-m", "tests.lab.comparison.ask", "delayq", row.name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout.splitlines()[-1])[0] == cells["delayq", row.name]

"""Four screens equal the files in `shown`: see `python -m tests.cli.screens`.

Tables print each row as it is read, and keep the width of their columns.
"""

from dataclasses import replace

import pytest

from celery_delayq.operations.cli import lists
from celery_delayq.operations.cli.output import FIRST, Column, Room, table, text_of
from tests.cli.screens import COUNTS, FOLDER, ORDER, SCANNED, UTC, WIDTHS, files, ms


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_a_screen_is_as_its_file_has_it(path):
    assert files()[path] == path.read_text(encoding="utf-8")


def test_the_folder_has_no_screen_beside_those_that_are_made():
    assert {*FOLDER.iterdir()} == {*files()}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_its_terminal(width):
    texts = [text for path, text in files().items() if path.stem.endswith(f"-{width}")]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width


def test_scanners_are_counted_with_their_hosts():
    lines = [text_of(line) for line in lists.status_screen(SCANNED, "direct", UTC, None)]
    assert lines[1].endswith("   next in 4 s   scanners 2 on web1, web2")
    assert "no scanner" not in "".join(lines)


@pytest.mark.parametrize(("early_ms", "said"), [(1, False), (0, True)])
def test_a_task_is_overdue_from_its_due_time_on(early_ms, said):
    counts = replace(COUNTS, now_ms=ms(ORDER.due) - early_ms)
    lines = [text_of(line) for line in lists.show_screen(ORDER, counts, [], UTC, None)]
    assert ("! it is overdue by 0 s" in lines) is said


# Tables.

COLUMNS = (Column("ID"), Column("NAME"), Column("ERROR"))


def shown(rows):
    return [text_of(line) for line in table(COLUMNS, rows)]


def test_the_first_lines_come_before_the_later_rows_are_there():
    taken = []

    def rows():
        for number in range(10 * FIRST):
            taken.append(number)
            yield (str(number), "x", "")

    lines = table(COLUMNS, rows())

    next(lines)
    assert len(taken) == FIRST
    for _ in range(FIRST + 1):
        next(lines)
    assert len(taken) == FIRST + 1


def test_columns_keep_the_width_that_the_first_rows_gave_them():
    rows = [("a", "b", "")] * FIRST + [("a-long-id", "b", "why"), ("a", "b", "why")]
    head, *lines = shown(rows)
    assert head == "ID  NAME  ERROR"
    assert {*lines[:FIRST]} == {"a   b"}
    assert lines[FIRST:] == ["a-long-id  b     why", "a   b     why"]


def test_a_terminal_gets_whole_lines_if_they_fit_and_else_columns_give_way():
    columns = (Column("ID", is_id=True), Column("DUE"), Column("N", is_number=True), Column("ARGS"))
    gives = ((3, 6), (1, 0), (0, 5))
    rows = [("0123456789", "2030-01-31", "7", "('a', 'b')"), ("0123456789abc", "", "42", "()")]

    def lines(width):
        return [text_of(line) for line in table(columns, rows, Room(width, gives))]

    assert lines(80)[1] == "0123456789     2030-01-31   7  ('a', 'b')"
    assert lines(38)[1] == "0123456789     2030-01-31   7  ('a', …"
    assert lines(30)[1:] == ["0123456789      7  ('a',…", "0123456789abc  42  ()"]
    assert lines(18)[1:] == ["012…89   7  ('a',…", "012…bc  42  ()"]
    assert max(map(len, lines(30))) <= 30


def test_a_table_of_nothing_is_its_heading():
    assert shown([]) == ["ID  NAME  ERROR"]

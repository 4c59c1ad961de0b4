"""Tables print each row as it is read, and keep the width of their columns."""

import os
import subprocess
import sys

import pytest

from celery_delayq.operations.cli.screen import text_of
from celery_delayq.operations.cli.tables import FIRST, Column, Room, table
from tests.app.support import FAR
from tests.support.waiting import PATIENCE

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


@pytest.fixture
def shop(url, tmp_path):
    """Start ``celery -A shop delayq …`` in a process of its own."""
    (tmp_path / "shop.py").write_text(
        f"from celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={url!r})\napp.conf.delayq_timeout = {PATIENCE}\n"
        "delayq = DelayQ(app)\n",
        encoding="utf-8",
    )

    def start(*arguments, **more):
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "delayq", *arguments], cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding=more.get("PYTHONIOENCODING", "utf-8"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more},
        )  # fmt: skip

    return start


@pytest.mark.parametrize("option", [["-n", "5000"], ["--json"], ["--ids"], ["--tag", "x", "--ids"]])
def test_a_closed_pipe_ends_it_and_it_says_nothing(app, shop, option):
    task = app.signature("t", delayq_tags=["x"])
    assert app.delayq.schedule_many(
        task, [((), {}, FAR, f"{number}" * 20) for number in range(5000)]
    )

    lister = shop("list", *option)
    lister.stdout.readline()
    lister.stdout.close()

    assert lister.stderr.read() == ""
    lister.stderr.close()
    lister.wait(60)


def test_a_terminal_that_knows_fewer_characters_gets_escapes(app, shop):
    app.send_task("日本", task_id="süß", delayq_at=FAR)

    out, error = shop("list", PYTHONIOENCODING="latin-1", PYTHONUTF8="0").communicate(timeout=60)

    assert error == ""
    assert out.splitlines()[1].endswith("\\u65e5\\u672c          celery  scheduled")

"""Tables: they stream, their columns keep their width, and nothing that has to be copied is cut."""

import os
import subprocess
import sys

import pytest

from celery_delayq.cli.screen import text_of
from celery_delayq.cli.tables import FIRST, Column, due, table, width_of
from tests.app.support import FAR

COLUMNS = (
    Column("ID"), Column("NAME"), Column("STATE", usual="waits"),
    Column("ERROR", usual="", least=10),
)  # fmt: skip
USUAL = ("waits", "")


def shown(rows, width=None, columns=COLUMNS):
    return [text_of(line) for line in table(columns, rows, width)]


def test_the_first_lines_come_before_the_later_rows_are_there():
    taken = []

    def rows():
        for number in range(10 * FIRST):
            taken.append(number)
            yield (str(number), "x", *USUAL)

    lines = table(COLUMNS, rows())

    next(lines)
    assert len(taken) == FIRST
    for _ in range(FIRST + 1):
        next(lines)
    assert len(taken) == FIRST + 1


def test_columns_keep_the_width_that_the_first_rows_gave_them():
    rows = [("a", "b", *USUAL)] * FIRST + [("a-long-id", "b", *USUAL), ("a", "b", *USUAL)]
    head, *lines = shown(rows)

    assert head == "ID  NAME"
    assert {*lines[:FIRST], lines[-1]} == {"a   b"}
    assert lines[FIRST] == "a-long-id  b"


def test_a_column_that_tells_nothing_is_not_there():
    assert shown([("a", "b", *USUAL)]) == ["ID  NAME", "a   b"]
    assert shown([]) == ["ID  NAME"]
    assert shown([("a", "b", "dead", ""), ("a", "b", *USUAL)]) == [
        "ID  NAME  STATE", "a   b     dead", "a   b     waits"
    ]  # fmt: skip


@pytest.mark.parametrize("width", [None, 30])
def test_what_only_a_later_row_tells_is_told(width):
    rows = [("a", "b", *USUAL)] * FIRST + [("a", "b", "dead", "why")]
    assert shown(rows, width)[-1] == "a   b     dead  why"


def test_errors_are_cut_before_a_row_gets_more_lines():
    rows = [("an-id", "name", "dead", "because of this")]
    assert shown(rows, 40)[1] == "an-id  name  dead   because of this"
    assert shown(rows, 30)[1] == "an-id  name  dead   because..."
    assert shown(rows, 32)[1] == "an-id  name  dead   because o..."
    assert shown(rows, 29) == [
        "ID", "  NAME  STATE  ERROR", "an-id", "  name  dead", "  because of this"
    ]  # fmt: skip
    assert shown(rows, 12)[-1] == "  because..."


def test_of_a_time_all_digits_go_that_can_or_none():
    columns = (Column("ID"), due("DUE (UTC)"))
    rows = [("an-id", "2030-01-01 09:00:00.123")]
    assert shown(rows, 30, columns)[1] == "an-id  2030-01-01 09:00:00.123"
    assert shown(rows, 29, columns)[1] == "an-id  2030-01-01 09:00:00"
    assert shown(rows, 26, columns)[1] == "an-id  2030-01-01 09:00:00"
    assert shown(rows, 25, columns) == [
        "ID", "  DUE (UTC)", "an-id", "  2030-01-01 09:00:00.123"
    ]  # fmt: skip


def test_a_heading_that_says_the_zone_is_whole():
    title = "DUE (America/Argentina/Buenos_Aires)"
    rows = [("an-id", "2030-01-01 09:00:00.123")]
    for width in (43, 42):
        assert title in " ".join(shown(rows, width, (Column("ID"), due(title))))


def test_a_later_row_that_is_too_wide_gets_more_lines():
    rows = [("a", "b", *USUAL)] * FIRST + [("an-id-of-some-length", "name", *USUAL)]
    assert shown(rows, 20)[-2:] == ["an-id-of-some-length", "  name"]


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("abc", 3), ("süß", 3), ("日本", 4), ("e\u0301", 1)]
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text, columns):
    assert width_of(text) == columns


def test_wide_characters_are_aligned(app, printed):
    app.send_task("t", task_id="日本", delayq_at=FAR)
    app.send_task("t", task_id="abcd", delayq_at=FAR)
    assert [line[: line.index("2100")] for line in printed("list")[1:]] == ["日本  ", "abcd  "]


@pytest.fixture
def shop(url, tmp_path):
    """Start ``celery -A shop delayq …`` in a process of its own."""
    (tmp_path / "shop.py").write_text(
        f"from celery import Celery\nfrom celery_delayq import DelayQ\n"
        f"app = Celery('shop', broker={url!r})\ndelayq = DelayQ(app)\n",
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
    assert out.splitlines()[1].endswith("\\u65e5\\u672c")

"""Ids through a pipe: `list --ids`, and `-` for those of standard input."""

import io
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest

from celery_delayq.operations.cli import output
from tests.app.support import FAR, LONG_AGO
from tests.cli.shop import shop
from tests.operations.test_cli import HOSTILE
from tests.support.network import AWAY


@pytest.fixture
def many(app):
    for number in range(5):
        app.send_task("t", task_id=f"task-{number}", delayq_at=FAR + number, delayq_tags=["x"])


def waiting(app):
    return [task.id for task in app.delayq.tasks()]


def test_ids_are_all_that_is_printed(many, printed):
    assert printed("list", "--ids") == [f"task-{number}" for number in range(5)]
    assert printed("list", "--ids", "--tag", "x") == [f"task-{number}" for number in range(5)]
    assert printed("list", "--ids", "-n", "2") == ["task-0", "task-1"]
    assert printed("list", "--ids", "--dead") == []


def test_an_id_that_no_line_can_have_is_left_out_and_that_is_said(many, app, run):
    for text in HOSTILE:
        app.send_task("t", task_id=text, delayq_at=FAR)
    app.send_task("t", task_id=" two words ", delayq_at=FAR)

    result = run("list", "--ids")

    later = [f"task-{number}" for number in range(1, 5)]
    assert result.stdout.split("\n") == ["task-0", " two words ", *later, ""]
    assert result.stderr == (
        f"Error: left out {len(HOSTILE)} ids with unprintable characters; --json has them\n"
    )
    assert result.exit_code == 1


def test_a_list_of_ids_is_no_json(misused):
    assert misused("list", "--ids", "--json") == "Error: --json and --ids exclude each other."


@pytest.mark.parametrize(
    ("line", "said", "left"),
    [
        (["cancel", "-"], "3 tasks cancelled", ["task-1", "task-3"]),
        (["reschedule", "-", "by:+1h"], "3 tasks rescheduled",
         ["task-1", "task-3", "task-0", "task-2", "task-4"]),
        (["run-now", "-"], "3 tasks made due now",
         ["task-0", "task-2", "task-4", "task-1", "task-3"]),
        (["edit", "-", "--add-tag", "t"], "3 tasks edited", [f"task-{n}" for n in range(5)]),
    ],
)  # fmt: skip
def test_ids_come_from_standard_input(many, app, run, line, said, left):  # noqa: PLR0917
    result = run(*line, "--yes", stdin="task-0\ntask-2\r\n\ntask-4")

    assert (result.exit_code, result.output) == (0, f"{said}\n")
    assert waiting(app) == left


def test_each_id_that_was_not_cancelled_has_a_line_and_the_status_is_1(many, app, run):
    app.send_task("t", task_id="left", delayq_at=LONG_AGO)
    app.delayq.hand_over()

    result = run("cancel", "-", "--yes", stdin="task-0\nleft\nnobody\n" + "x" * 600 + "\ntask-1\n")

    assert result.stdout == "2 tasks cancelled\n"
    left, nobody, long = result.stderr.splitlines()
    assert re.match(r"task left has been handed over to its queue already, \d+ s ago \(", left)
    assert nobody.startswith("task nobody is not scheduled in redis")
    assert long.startswith("Error: task_id is 'xxx")
    assert result.exit_code == 1


@pytest.mark.parametrize("command", ["cancel", "run-now", "retry", "remove"])
def test_ids_from_standard_input_need_yes(many, app, run, command):
    result = run(command, "-", stdin="task-0\n")

    assert result.exit_code == 2
    assert result.output.endswith("Error: Ids come from standard input: pass --yes.\n")
    assert len(waiting(app)) == 5


def test_a_cancel_of_ids_from_standard_input_stops_where_redis_goes_away(between, many, app, run):
    between.before("cancel", lambda: AWAY if between.asked["cancel"] == 3 else None)
    result = run("cancel", "-", "--yes", stdin="task-0\ntask-1\ntask-2\ntask-3\n")

    assert result.exit_code == 1
    assert result.output.splitlines()[0] == "2 tasks cancelled so far"
    assert result.output.splitlines()[1].startswith("Error: cancel failed: ")
    assert len(waiting(app)) == 3


def test_a_line_that_never_ends_is_refused_without_reading_all_of_it(many, app, run):
    result = run("cancel", "-", "--yes", stdin="task-0\n" + "x" * 4096 + "task-1\n")

    assert result.output.splitlines() == [
        "1 task cancelled so far", "Error: line 2 of standard input is too long for an id",
    ]  # fmt: skip
    assert result.exit_code == 1
    assert "task-1" in waiting(app)


@pytest.mark.parametrize("given", [b"\xff\xfe\ntask-0\n", b"a\x00b\ntask-0\n"])
def test_bytes_that_are_no_text_are_the_id_of_no_task(many, run, given):
    result = run("cancel", "-", "--yes", stdin=given)

    assert (result.exit_code, result.stdout) == (1, "1 task cancelled\n")
    assert len(result.stderr.splitlines()) == 1


class Lines(io.BytesIO):
    """A standard input that notes how many tasks wait whenever it is read."""

    def __init__(self, text, note):
        super().__init__(text)
        self.read1 = lambda _=-1: note() or self.readline()


def test_a_task_is_cancelled_before_the_next_line_is_read(many, app, run):
    left = []
    stdin = Lines(b"task-0\ntask-1\ntask-2\n", lambda: left.append(len(waiting(app))))
    run("cancel", "-", "--yes", stdin=stdin)
    assert left == [5, 4, 3, 2]


def test_progress_counts_them(many, run, monkeypatch):
    told = []
    monkeypatch.setattr(output, "_progress_of", lambda *_: nullcontext(told.append))

    # An id may be named beside standard input.
    assert run("cancel", "task-4", "-", "--yes", stdin="task-0\nnobody\n").exit_code == 1

    assert told == [1, 2, 2]


def test_two_real_processes_and_a_pipe(many, app, url, tmp_path):
    app.send_task("t", task_id="other", delayq_at=FAR)
    for task_id in (" two words ", "-"):
        app.send_task("t", task_id=task_id, delayq_at=FAR, delayq_tags=["x"])
    celery = f"{sys.executable} -m celery -A shop delayq"
    line = f"set -o pipefail; {celery} list --ids --tag x | {celery} cancel - --yes"

    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, timeout=60, check=False, **shop(tmp_path, url)
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "7 tasks cancelled\n", "")
    assert waiting(app) == ["other"]

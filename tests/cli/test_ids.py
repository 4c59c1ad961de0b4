"""Many tasks: their ids through a pipe, and Ctrl-C while they are changed."""

import io
import re
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest

from celery_delayq.operations.cli import output
from tests.app.support import FAR, LONG_AGO
from tests.cli.shop import shop
from tests.operations.test_cli import HOSTILE
from tests.support.network import AWAY, CUT
from tests.support.waiting import eventually


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


# Ctrl-C while many tasks are changed: the command ends at once, and reports its progress.


CTRL_C = 130
GOES = "a scanner sends released tasks"


@pytest.fixture
def ten(app, limits):
    """Ten of them, and steps of two."""
    limits(selection_chunk=2, release_step=2)
    for number in range(10):
        app.send_task("t", task_id=f"task-{number}", delayq_at=FAR + number)


@pytest.fixture
def ctrl_c(between, sigint):
    """Press it before the second of some steps: ``ctrl_c("cancel")``."""

    def press(script):
        def at_the_second():
            if between.asked[script] != 2:
                return None
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return CUT

        between.before(script, at_the_second)

    return press


@pytest.mark.parametrize(
    ("line", "script", "said"),
    [
        (["cancel"], "cancel", "2 tasks cancelled"),
        (["reschedule", "by:+1h"], "reschedule", "2 tasks rescheduled"),
        (["run-now"], "reschedule", "2 tasks made due now"),
        (["release"], "rewrite", f"2 tasks released; {GOES}, or run this command again"),
    ],
    ids=["cancel", "reschedule", "run-now", "release"],
)
@pytest.mark.usefixtures("ten")
def test_an_interrupted_change_of_a_selection_ends_and_says_how_many(
    app, run, ctrl_c, *, line, script, said
):
    ctrl_c(script)

    result = run(*line, "--all", "--yes")

    assert result.stderr == f"interrupted: at least {said}\n"
    assert (result.stdout, result.exit_code) == ("", CTRL_C)
    ids = [task.id for task in app.delayq.tasks() if FAR <= task.due.timestamp() < FAR + 10]
    assert ids == [f"task-{number}" for number in range(2, 10)]
    # Released tasks need a scanner.
    assert app.delayq.hand_over() == (2 if line[0] in ("run-now", "release") else 0)


@pytest.mark.usefixtures("ten")
def test_an_interrupted_cancel_of_ids_from_standard_input_ends_and_says_how_many(app, run, ctrl_c):
    ctrl_c("cancel")

    result = run("cancel", "-", "--yes", stdin="task-0\ntask-1\ntask-2\n")

    assert result.output == "interrupted: at least 1 task cancelled\n"
    assert result.exit_code == CTRL_C
    assert app.delayq.counts().scheduled == 9


@pytest.mark.usefixtures("ten")
def test_a_real_process_that_waits_for_input_ends_at_once(app, url, tmp_path):
    # A shell that runs the tests in the background ignores SIGINT, and so do the children.
    begun = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from celery.__main__ import main; main()"
    )
    words = ["-A", "shop", "delayq", "cancel", "-", "--yes"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(
        [sys.executable, "-c", begun, *words], **pipes, **shop(tmp_path, url)
    ) as process:
        process.stdin.write("task-0\ntask-1\n")
        process.stdin.flush()
        # By then the first is counted; the signal may come before the second is counted.
        eventually(lambda: app.delayq.get("task-1") is None)
        process.send_signal(signal.SIGINT)
        # Its input stays open all the while.
        assert process.wait(60) == CTRL_C
        said = process.stderr.read()
    assert re.fullmatch(r"interrupted: at least (1 task|2 tasks) cancelled\n", said)


@pytest.mark.usefixtures("ten")
def test_a_dump_that_is_loaded_can_be_loaded_again(app, delayq_app, url, run, limits, ctrl_c):  # noqa: PLR0917
    other = delayq_app(url, delayq_prefix="other")
    limits(load_slice=2)
    dumped = run("dump").stdout
    ctrl_c("load")

    result = run("load", app=other, stdin=dumped)

    assert (
        "interrupted: at least 2 tasks loaded; run the same command to continue\n" in result.stderr
    )
    assert result.exit_code == CTRL_C
    assert other.delayq.counts().scheduled == 2

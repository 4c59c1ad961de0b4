"""Ctrl-C while many tasks are changed: the command ends at once, and reports its progress."""

import re
import signal
import subprocess
import sys
import threading

import pytest

from tests.app.support import FAR
from tests.cli.shop import shop
from tests.support.network import CUT
from tests.support.waiting import eventually

CTRL_C = 130
GOES = "a scanner sends released tasks"


@pytest.fixture
def many(app, limits):
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
@pytest.mark.usefixtures("many")
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


@pytest.mark.usefixtures("many")
def test_an_interrupted_cancel_of_ids_from_standard_input_ends_and_says_how_many(app, run, ctrl_c):
    ctrl_c("cancel")

    result = run("cancel", "-", "--yes", stdin="task-0\ntask-1\ntask-2\n")

    assert result.output == "interrupted: at least 1 task cancelled\n"
    assert result.exit_code == CTRL_C
    assert app.delayq.counts().scheduled == 9


@pytest.mark.usefixtures("many")
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


@pytest.mark.usefixtures("many")
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

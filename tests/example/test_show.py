"""The example as its user starts it, with the scenes of the documentation."""

import os
import signal
import subprocess
import sys

import pytest

from tests.readme.document import ROOT
from tests.support.process import ChildProcess
from tests.support.waiting import eventually

# The show of the example ends every process it starts, and reports errors.


SHOW = ROOT / "example_project" / "show.py"

UP = 180  # seconds; it starts a Redis and a worker first, and ends both


@pytest.fixture
def temporary(tmp_path):
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.fixture
def show(tmp_path, temporary):
    """A show that has begun."""
    started = ChildProcess(
        [sys.executable, str(SHOW), "--only", "scenes"],
        log=tmp_path / "log",
        env={"TMPDIR": str(temporary)},
    )
    started.wait_log("ben pays", timeout=UP)
    yield started
    started.kill()


def started_by(pid):
    """The child processes of this one, and their children: pid -> parent."""
    rows = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    parents = {}
    for child, parent, state in map(str.split, rows.splitlines()):
        if state[0] != "Z":
            parents[int(child)] = int(parent)
    return {child: parents[child] for child in parents if pid in _ancestors(child, parents)}


def _ancestors(pid, parents):
    while pid := parents.get(pid):
        yield pid


def alive(pids):
    rows = subprocess.run(
        ["ps", "-o", "pid=,stat=", "-p", ",".join(map(str, pids))],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return [row for row in rows.splitlines() if row.split()[1][0] != "Z"]


def test_ctrl_c_ends_whatever_was_started(show, temporary):
    processes = started_by(show.pid)
    assert len(processes) >= 3  # a Redis, a worker, and the worker's own
    assert show.stop(signal.SIGINT, UP) == 128 + signal.SIGINT
    assert show.lines[-1] == "interrupted; all started processes have ended"
    eventually(lambda: not alive(processes))
    assert list(temporary.iterdir()) == []


def test_a_worker_that_dies_is_told_and_ends_the_show(show):
    processes = started_by(show.pid)
    # Of the show's processes, only the worker has started others.
    [worker] = {parent for parent in processes.values() if parent != show.pid}

    os.kill(worker, signal.SIGKILL)

    assert show.wait(UP) == 1
    assert show.lines[-1] == "the worker ended with status -9"
    eventually(lambda: not alive(processes))


# The example's own tests, run as a reader runs them, with only the installed plugin.


def test_the_tests_of_the_scenes_pass():
    apart = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "example_project"],
        cwd=ROOT,
        env=apart,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout

import signal
import subprocess
import sys

import pytest

from tests.support.process import ChildProcess, ProcessEndedError, alive
from tests.support.waiting import eventually

IGNORES_TERM = (
    "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
)
HAS_CHILD = """
import signal, subprocess
print(subprocess.Popen(["cat"], stdin=subprocess.PIPE).pid, flush=True)
signal.pause()
"""
DIES_WITH_CHILD = """
import os, sys
from pathlib import Path
from tests.support.process import ChildProcess
child = ChildProcess([sys.executable, "-c", "import signal; signal.pause()"], log=Path(sys.argv[1]))
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start_python(code):
        started.append(ChildProcess([sys.executable, "-c", code], log=tmp_path / "log"))
        return started[-1]

    yield start_python
    for process in started:
        process.kill()


def test_wait_log_returns_the_match(start):
    assert start("print('port 17')").wait_log(r"port (\d+)")[1] == "17"


def test_wait_log_says_how_the_process_ended(start):
    with pytest.raises(ProcessEndedError, match=r"(?s)'ready' was not logged.*boom"):
        start("raise SystemExit('boom')").wait_log("ready")


def test_a_process_that_ignores_term_is_killed_and_reported(start):
    process = start(IGNORES_TERM)
    process.wait_log("up")
    with pytest.raises(ProcessEndedError, match="did not end within"):
        process.stop(timeout=0.1)
    assert process.exit_status == -signal.SIGKILL


def test_a_paused_process_can_be_stopped(start):
    process = start("print('up', flush=True); import signal; signal.pause()")
    process.wait_log("up")
    process.pause()
    assert process.stop() == -signal.SIGTERM


def test_kill_reaches_the_children(start):
    process = start(HAS_CHILD)
    child = int(process.wait_log(r"(\d+)")[1])
    process.kill()
    eventually(lambda: not alive(child))


def test_a_suite_killed_outright_leaves_no_process(tmp_path):
    command = [sys.executable, "-c", DIES_WITH_CHILD, str(tmp_path / "log")]
    suite = subprocess.run(command, capture_output=True, text=True, check=False)
    assert suite.returncode == -signal.SIGKILL
    eventually(lambda: not alive(int(suite.stdout)))


def test_eventually_names_what_did_not_come():
    with pytest.raises(AssertionError, match="not within 0 s: a miracle; last value: 0"):
        eventually(lambda: 0, timeout=0, message="a miracle")

"""A forked process works like any other."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.forked import PythonProcess
from tests.support.process import ProcessEndedError, alive
from tests.support.waiting import eventually

TELLS = """
import json, os, sys, time
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path[:3], "name": __name__,
    "env": dict(os.environ), "zone": time.tzname[0], "leads": os.getpid() == os.getsid(0),
    "stdin": sys.stdin.read(), "files": len(os.listdir("/proc/self/fd")),
    "streams": [
        (one.encoding, one.errors, one.seekable(), one.write_through, one.line_buffering)
        for one in (sys.stdout, sys.stderr)
        if not one.reconfigure(errors="replace")
    ],
}))
"""
WAITS = "import signal; print('up'); signal.pause()"
ENDS = "import atexit, sys; atexit.register(print, 'cleaned up'); sys.exit(7)"
IS_FORKED = "import sys; print('celery.bin.celery' in sys.modules)"
HAS_CHILD = """
import os, signal
if os.fork():
    print("up")
signal.pause()
"""

FORKS_AND_DIES = """
import os, sys
from pathlib import Path
from tests.support.forked import PythonProcess
folder = Path(sys.argv[1])
process = PythonProcess("-m", "http.server", "0", log=folder / "log", env={}, cwd=folder)
process.wait_log("Serving")
me = os.getpid()
print(process.pid, Path(f"/proc/{me}/task/{me}/children").read_text(), flush=True)
os.kill(me, 9)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(code, *arguments, env=None, kind="-m", **options):
        (tmp_path / "told.py").write_text(code, encoding="utf-8")
        how = ("-m", "told") if kind == "-m" else ("-c", code)
        started.append(
            PythonProcess(
                *how, *arguments, log=tmp_path / "log", env=env or {}, cwd=tmp_path, **options
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()


def told_by(process):
    process.wait()
    [line] = process.lines
    return json.loads(line)


@pytest.mark.parametrize("kind", ["-m", "-c"])
def test_it_is_what_a_plain_one_is(start, kind):
    env = {"TZ": "Asia/Tokyo", "ONE": "é", "PYTHONPATH": "/one:/two"}

    forked, plain = (
        told_by(start(TELLS, "a", "-b", env=env, plain=how, kind=kind)) for how in (False, True)
    )

    assert forked == plain
    assert (forked["zone"], forked["env"]["ONE"], forked["leads"]) == ("JST", "é", True)


def test_only_what_is_the_same_is_forked(start):
    def is_forked(*arguments, **options):
        process = start(IS_FORKED, *arguments, **options)
        process.wait()
        return process.lines == ["True"]

    assert is_forked()
    assert not is_forked(plain=True)
    assert not is_forked("-P", "gevent")


def test_it_ends_as_python_does(start):
    process = start(ENDS)

    assert process.wait() == 7
    assert process.lines == ["cleaned up"]


def test_an_error_is_printed_and_is_its_status(start):
    process = start("raise ValueError('boom')")

    assert process.wait() == 1
    assert process.lines[-1] == "ValueError: boom"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_ends_it_and_is_its_status(start, number):
    process = start(WAITS)
    process.wait_log("up")
    assert process.running

    assert process.stop(number) == -number
    assert not process.running


def test_a_deadline_that_passes_kills_it(start):
    process = start("import signal; signal.signal(15, signal.SIG_IGN); " + WAITS)
    process.wait_log("up")

    with pytest.raises(ProcessEndedError, match="did not end within"):
        process.stop(timeout=0.1)
    assert process.exit_status == -signal.SIGKILL


def test_its_output_ends_with_its_last_child(start):
    process = start(HAS_CHILD)
    process.wait_log("up")

    process.kill()

    assert process._wait_end(0)


def test_two_at_a_time_are_two(start):
    first, second = start(WAITS), start(WAITS)
    first.wait_log("up")
    second.wait_log("up")

    first.kill()

    assert second.running
    assert second.stop() == -signal.SIGTERM


def test_the_parent_of_forked_processes_ends_with_the_suite(tmp_path):
    command = [sys.executable, "-c", FORKS_AND_DIES, str(tmp_path)]
    suite = subprocess.run(command, capture_output=True, text=True, check=False)
    assert suite.returncode == -signal.SIGKILL
    for pid in suite.stdout.split():
        eventually(lambda pid=pid: not alive(int(pid)))

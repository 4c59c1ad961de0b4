"""A process that the suite starts works like any other, forked or not."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.forked import PythonProcess
from tests.support.process import ProcessEndedError, alive
from tests.support.waiting import eventually

# The library of ctypes keeps itself open, if it is loaded and new.
TELLS = """
import json, os, sys, time
from pathlib import Path
files = [one for one in Path("/proc/self/fd").iterdir() if "libffi" not in os.path.realpath(one)]
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path[:3], "name": __name__,
    "env": dict(os.environ), "zone": time.tzname[0], "leads": os.getpid() == os.getsid(0),
    "stdin": sys.stdin.read(), "files": len(files),
    "streams": [
        (one.encoding, one.errors, one.seekable(), one.write_through, one.line_buffering)
        for one in (sys.stdout, sys.stderr)
        if not one.reconfigure(errors="replace")
    ],
}))
"""
WAITS = "import signal; print('up'); signal.pause()"
IGNORES_TERM = f"import signal; signal.signal(15, signal.SIG_IGN); {WAITS}"
ENDS = "import atexit, sys; atexit.register(print, 'cleaned up'); sys.exit(7)"
IS_FORKED = "import sys; print('celery.bin.celery' in sys.modules)"
HAS_CHILD = """
import os, signal
if child := os.fork():
    print("child", child)
signal.pause()
"""
STARTS_AND_DIES = """
import os, sys
from pathlib import Path
from tests.support.forked import PythonProcess
folder, plain = Path(sys.argv[1]), sys.argv[2] == "plain"
process = PythonProcess(
    "-m", "http.server", "0", log=folder / "log", env={}, cwd=folder, plain=plain
)
process.wait_log("Serving")
me = os.getpid()
print(process.pid, Path(f"/proc/{me}/task/{me}/children").read_text(), flush=True)
os.kill(me, 9)
"""
each_way = pytest.mark.parametrize("plain", [False, True], ids=["forked", "plain"])


@pytest.fixture
def start(tmp_path):
    started = []

    def start(code, *arguments, env=None, kind="-m", **options):
        (tmp_path / "told.py").write_text(code, encoding="utf-8")
        how = ("-m", "told") if kind == "-m" else ("-c", code)
        words = [*how, *arguments]
        log = tmp_path / "log"
        started.append(PythonProcess(*words, log=log, env=env or {}, cwd=tmp_path, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def waiting(start, plain):
    """A process that waits for a signal."""
    process = start(WAITS, plain=plain)
    process.wait_log("up")
    return process


@pytest.mark.parametrize("kind", ["-m", "-c"])
def test_a_forked_process_is_what_a_plain_one_is(start, kind):
    env = {"TZ": "Asia/Tokyo", "ONE": "é", "PYTHONPATH": "/one:/two"}

    def told(plain):
        process = start(TELLS, "a", "-b", env=env, plain=plain, kind=kind)
        process.wait()
        [line] = process.lines
        return json.loads(line)

    forked, plain = told(False), told(True)
    assert forked == plain
    assert (forked["zone"], forked["env"]["ONE"], forked["leads"]) == ("JST", "é", True)


@pytest.mark.parametrize(
    ("words", "plain", "is_forked"),
    [([], False, True), ([], True, False), (["-P", "gevent"], False, False)],
)
def test_only_what_is_the_same_is_forked(start, words, plain, is_forked):
    process = start(IS_FORKED, *words, plain=plain)
    process.wait()
    assert process.lines == [str(is_forked)]


@each_way
@pytest.mark.parametrize(
    ("code", "status", "last"),
    [(ENDS, 7, "cleaned up"), ("raise ValueError('boom')", 1, "ValueError: boom")],
    ids=["exit", "error"],
)
def test_a_process_ends_as_python_does(start, plain, code, status, last):
    process = start(code, plain=plain)
    assert process.wait() == status
    assert process.lines[-1] == last


@each_way
def test_wait_log_returns_the_match_or_says_how_the_process_ended(start, plain):
    assert start("print('port 17')", plain=plain).wait_log(r"port (\d+)")[1] == "17"
    with pytest.raises(ProcessEndedError, match=r"(?s)'ready' was not logged.*boom"):
        start("raise SystemExit('boom')", plain=plain).wait_log("ready")


@each_way
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_signal_ends_a_process_and_is_its_status(waiting, number):
    assert waiting.running
    assert waiting.stop(number) == -number
    assert not waiting.running


@each_way
def test_a_process_that_ignores_term_is_killed_at_the_deadline_and_reported(start, plain):
    process = start(IGNORES_TERM, plain=plain)
    process.wait_log("up")
    with pytest.raises(ProcessEndedError, match="did not end within"):
        process.stop(timeout=0.1)
    assert process.exit_status == -signal.SIGKILL


@each_way
def test_kill_reaches_the_children_and_the_output_ends(start, plain):
    process = start(HAS_CHILD, plain=plain)
    child = int(process.wait_log(r"child (\d+)")[1])
    process.kill()
    assert process._wait_end(0)
    eventually(lambda: not alive(child))


@each_way
def test_a_suite_killed_outright_leaves_no_process(tmp_path, plain):
    how = "plain" if plain else "forked"
    command = [sys.executable, "-c", STARTS_AND_DIES, str(tmp_path), how]
    suite = subprocess.run(command, capture_output=True, text=True, check=False)
    assert suite.returncode == -signal.SIGKILL
    for pid in suite.stdout.split():
        eventually(lambda pid=pid: not alive(int(pid)))


def test_eventually_names_what_did_not_come():
    with pytest.raises(AssertionError, match="not within 0 s: a miracle; last value: 0"):
        eventually(lambda: 0, timeout=0, message="a miracle")

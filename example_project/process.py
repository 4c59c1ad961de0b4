"""Processes that end when the show ends, for any reason.

    signal --> noted --> the next pause() raises Interrupted --> each `with started()` ends its own

A signal raises nothing by itself. An exception would do harm between the start of a process and the
line that notes it, or while processes are being ended.
"""

import contextlib
import functools
import os
import signal
import subprocess
import time

POLL = 0.05  # seconds
STOP_TIMEOUT = 15  # seconds; Celery's own warm shutdown takes two

_signals = []


class Problem(Exception):
    """An error, as a sentence for you, who run the show."""


class Interrupted(Exception):
    """You pressed Ctrl-C, or another program ended this process."""

    def __init__(self, number):
        super().__init__("interrupted; all started processes have ended")
        self.exit_status = 128 + number


def note_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: _signals.append(number))


def pause(seconds=POLL):
    if not _signals:
        time.sleep(seconds)
    if _signals:
        raise Interrupted(_signals[0])


@contextlib.contextmanager
def started(command, log, **options):
    """Run *command* until the block ends, with both of its streams written to the file *log*."""
    from celery.platforms import set_pdeathsig  # late, so a Ctrl-C meanwhile is noted

    # On Linux, it ends even after a kill -9 of the show.
    end_with_parent = functools.partial(set_pdeathsig, "SIGKILL")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # otherwise Ctrl-C would end all of them at once, in no order
            preexec_fn=end_with_parent,  # noqa: PLW1509 -- the show has no threads
            **options,
        )
    try:
        yield process
    finally:
        _end(process)


def wait_until(ready, process, log, what, timeout=60):
    """Wait for *ready()*; *process* must not end meanwhile."""
    deadline = time.monotonic() + timeout
    while not ready():
        if process.poll() is not None:
            raise Problem(f"{what} ended with status {process.returncode}; {tail(log)}")
        if time.monotonic() > deadline:
            raise Problem(f"{what} was not ready after {timeout} s; {tail(log)}")
        pause()


def tail(log, lines=20):
    """Return the end of a log, for a Problem."""
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n  ".join(["its log ends:", *text]) if text else "its log is empty"


def _end(process):
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

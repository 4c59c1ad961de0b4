"""Processes that end with the show, whatever ends it.

    signal --> noted --> the next pause() raises Interrupted --> each `with started()` ends its own

A signal raises nothing by itself: between a process's start and the line that knows of it, and
while things are being ended, there is no good moment for an exception.
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
    """What went wrong, as a sentence for whoever runs the show."""


class Interrupted(Exception):
    """Somebody pressed Ctrl-C, or told this process to end."""

    def __init__(self, number):
        super().__init__("interrupted; whatever was started has been ended")
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
    """Run *command*, both of its streams going to the file *log*, until the block is left."""
    from celery.platforms import set_pdeathsig  # late: a Ctrl-C during this import is noted, too

    # On Linux, it does not outlive even a kill -9 of the show.
    end_with_parent = functools.partial(set_pdeathsig, "SIGKILL")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # or Ctrl-C would end all of them at once, in no order
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
    """The end of a log, for the end of a Problem."""
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

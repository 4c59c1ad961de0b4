"""A worker of one side, which the show starts, stops and kills several times."""

import contextlib
import sys
import time
from pathlib import Path

from process import Problem, pause, started, tail, wait_until
from story import LATEST

HERE = Path(__file__).parent.parent
# One process each, and no other worker to gossip with.
OPTIONS = ("--pool", "solo", "--loglevel", "INFO", "--without-gossip", "--without-mingle")


class Worker:
    """*app* is its module; its output goes to files beside *log*, a new one each start."""

    def __init__(self, app, log):
        self._app = app
        self._log = log
        self._logs = []
        self._process = None
        self._stack = contextlib.ExitStack()

    def start(self):
        log = self._log.with_suffix(f".{len(self._logs)}.log")
        self._logs.append(log)
        command = [sys.executable, "-m", "celery", "-A", self._app, "worker", *OPTIONS]
        name = ["--hostname", f"{self._app.rpartition('.')[2]}@%h"]
        self._process = self._stack.enter_context(started([*command, *name], log, cwd=HERE))

    def deploy(self, app):
        """Let it run the module of another release from its next start on."""
        self._app = app

    def wait_ready(self):
        log = self._logs[-1]
        wait_until(lambda: " ready." in _text(log), self._process, log, self._app)

    def command(self, *words):
        """Run a command of celery_delayq for its app; return the lines of its output."""
        command = [sys.executable, "-m", "celery", "-A", self._app, "delayq", *words]
        log = self._log.with_suffix(".command.log")
        with started(command, log, cwd=HERE) as process:
            until = time.monotonic() + LATEST
            while process.poll() is None and time.monotonic() < until:
                pause()
        return _text(log).splitlines()

    def stop(self):
        """Stop it as SIGTERM does: it ends the task at hand first."""
        self._process = None
        self._stack.close()

    close = stop

    def kill(self):
        process, self._process = self._process, None
        process.kill()
        process.wait()

    @property
    def up(self):
        """Return whether it was started, and not stopped or killed since."""
        return self._process is not None

    @property
    def status(self):
        """Return its exit status if it ended by itself, else None."""
        return self._process and self._process.poll()

    def check(self):
        """Raise Problem if it ended by itself."""
        if self.status is not None:
            raise Problem(f"{self._app} ended with status {self.status}; {tail(self._logs[-1])}")

    def said(self):
        """Return its output of all runs."""
        return "".join(map(_text, self._logs))


def _text(log):
    return log.read_text(errors="replace") if log.exists() else ""

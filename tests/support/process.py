"""A child process whose output a test can wait for.

start --> a thread reads the pipe, line by line --> wait_log(pattern) wakes
  |
  +--> stop(): a signal to the process; kill(): SIGKILL to its whole group
"""

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

from tests.support import reaper
from tests.support.waiting import PATIENCE

TAIL = 40
# How long the pipe may stay open after the process ended; after that, a child holds it.
STRAGGLER_TIMEOUT = 1.0
# After that child is killed, the last lines are read; a busy machine may need a moment for it.
LAST_LINES_TIMEOUT = PATIENCE


def alive(pid: int) -> bool:
    # A container's first process may never collect the dead: a number may be that of a zombie.
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return state.strip()[:1] not in ("", "Z")


class ProcessEndedError(Exception):
    """The process ended, or the deadline passed, before the expected line came."""

    def __init__(self, what: str, process: "ChildProcess"):
        super().__init__(
            f"{what}; exit status {process.exit_status}; the log ends:\n{process.tail()}"
        )


class ChildProcess:
    """One process in a session of its own, so that a Ctrl-C reaches it only through the fixtures.

    Args:
        command: The program and its arguments.
        log: The file for its output, both streams in one.
        env: Variables on top of this process's own.
        cwd: Its working directory.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd=None
    ):
        self.log = log
        self._lines: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        self._popen = self._start(command, {**os.environ, **(env or {})}, cwd)
        self._pipe = self._popen.stdout
        reaper.watch(self.pid)
        threading.Thread(target=self._read, name=f"log of {self.pid}", daemon=True).start()

    def _start(self, command: Sequence[str], env: Mapping[str, str], cwd) -> subprocess.Popen:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._popen.poll()

    @property
    def lines(self) -> list[str]:
        with self._news:
            return list(self._lines)

    def tail(self) -> str:
        return "\n".join(self.lines[-TAIL:])

    def wait_log(self, pattern: str, timeout: float = PATIENCE, *, since: int = 0) -> re.Match[str]:
        """Wait for a line with *pattern* in it; ``since=len(lines)`` leaves out the old ones."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self._search(pattern, since), timeout)
            match = self._search(pattern, since)
        if match is None:
            raise ProcessEndedError(f"{pattern!r} was not logged within {timeout} s", self)
        return match

    def signal(self, number: Signals) -> None:
        self._popen.send_signal(number)

    def pause(self) -> None:
        os.killpg(self.pid, SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, SIGCONT)

    def stop(self, number: Signals = SIGTERM, timeout: float = PATIENCE) -> int:
        """Signal it, return the exit status; after *timeout* seconds kill the group and fail."""
        if self.running:
            # A stopped process would never handle the signal.
            self.resume()
            self.signal(number)
        return self.wait(timeout)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit status; after *timeout* seconds kill its group and fail."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessEndedError(f"did not end within {timeout} s", self) from None
        self._clear_away()
        return self._popen.returncode

    def kill(self) -> None:
        """SIGKILL for the process and its children."""
        if self.running:
            os.killpg(self.pid, SIGKILL)
            self._popen.wait()
        self._clear_away()

    def _clear_away(self) -> None:
        # The group's number may belong to a stranger once its last member is gone; a pipe that is
        # still open says that it is not.
        if not self._wait_end(STRAGGLER_TIMEOUT):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, SIGKILL)
            self._wait_end(LAST_LINES_TIMEOUT)
        reaper.unwatch(self.pid)

    def _wait_end(self, timeout: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._ended, timeout)

    def _search(self, pattern: str, since: int) -> re.Match[str] | None:
        return next(filter(None, (re.search(pattern, line) for line in self._lines[since:])), None)

    def _read(self) -> None:
        with self.log.open("a", buffering=1, encoding="utf-8") as log, self._pipe:
            for line in self._pipe:
                log.write(line)
                with self._news:
                    self._lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

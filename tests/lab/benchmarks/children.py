"""Helper processes: each does one thing on request, and ends when its parent does.

parent  Child(role, ...)            say("go")         ask("stop")
             |   <-- "ready" ---       |                 |   <-- its report ------
child   sets itself up, waits          works             reports, ends

A child waits on its pipe, so when the parent is gone it sees the end of the file and ends, too.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TIMEOUT = 120

_spawn = multiprocessing.get_context("spawn")


class Child:
    """A process that runs ``role(pipe, *args)``; the role sends a word when it is ready."""

    def __init__(self, role: Callable[..., None], *args: Any):
        self._pipe, other = _spawn.Pipe()
        self._process = _spawn.Process(target=_run, args=(role, other, args), daemon=True)
        self._process.start()
        other.close()
        self.hear()

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, message: Any) -> None:
        self._pipe.send(message)

    def hear(self, timeout: float = TIMEOUT) -> Any:
        if not self._pipe.poll(timeout):
            raise TimeoutError(f"a helper process said nothing for {timeout} s")
        return self._pipe.recv()

    def ask(self, message: Any, timeout: float = TIMEOUT) -> Any:
        self.say(message)
        return self.hear(timeout)

    def close(self) -> None:
        self._pipe.close()
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(role: Callable[..., None], pipe: Connection, args: tuple[Any, ...]) -> None:
    # Ctrl-C reaches the whole group; the parent's clean-up ends the children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        role(pipe, *args)


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """A process's private memory in RAM."""
    pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")

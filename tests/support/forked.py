"""Run `python ...` in a fork of a process that has imported Celery already.

    the suite --request--> the template --fork--> the minder --fork--> the process
        ^                                            |
        '---------- its pid; later, its status ------'

Importing Celery takes most of a worker's start. The forked process is an ordinary one, with its own
session, environment, folder and output. It runs its code as Python does, from the first line to the
clean-up at the end.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

from celery_delayq.core.store import scripts
from tests.support.process import ChildProcess

LARGEST = 128 * 1024  # bytes of a request
NUMBER = struct.Struct("i")
# Modules that a ready worker has imported. None of them starts a thread or opens a connection.
IMPORTED = (
    *("celery.bin.celery", "celery.apps.worker", "celery.worker.worker", "celery.backends.redis"),
    *("celery.worker.consumer", "celery.worker.autoscale", "celery.worker.pidbox"),
    *("celery.concurrency.solo", "celery.concurrency.thread", "celery.concurrency.prefork"),
    *("kombu.transport.redis", "kombu.transport.pyamqp", "celery.fixups.django"),
    "celery_delayq.core.integration",
)


class PythonProcess(ChildProcess):
    """A process of Python, forked; or started plainly, if that is not the same.

    Args:
        arguments: Those of ``python``: ``"-m", module`` or ``"-c", code``, and more.
        log: The file for its output.
        env: Variables on top of this process's own.
        cwd: Its working directory, from which it imports.
        plain: Whether it has to be started plainly.
    """

    def __init__(self, *arguments: str, log, env: Mapping[str, str], cwd: Path, plain=False):
        # gevent patches modules that must not be imported before.
        self._is_plain = plain or "gevent" in arguments
        env = {"PYTHONUNBUFFERED": "1", **env}
        super().__init__([sys.executable, *arguments], log=log, env=env, cwd=cwd)

    def _start(self, command, env, cwd):
        if self._is_plain:
            return super()._start(command, env, cwd)
        read, write = os.pipe()
        process = Forked(command[1:], env=env, cwd=cwd, output=write, error=write)
        os.close(write)
        process.stdout = open(read, errors="replace", encoding="utf-8")  # noqa: PTH123, SIM115
        return process


def run_forked(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess:
    """Run `python arguments` to its end. Its output is text, and not buffered."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as error:
        files = {"output": output.fileno(), "error": error.fileno()}
        process = Forked(arguments, env={**os.environ, **(env or {})}, cwd=cwd, **files)
        try:
            process.wait(timeout)
        finally:
            process.send_signal(signal.SIGKILL)
        for one in (output, error):
            one.seek(0)
        return subprocess.CompletedProcess(
            arguments, process.returncode, output.read(), error.read()
        )


class Forked:
    """A process, as ``subprocess.Popen`` has it.

    Args:
        arguments: Those of ``python``.
        env: All of its variables.
        cwd: Its working directory, from which it imports.
        output: The descriptor that it writes to.
        error: The same for its other stream.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output: int,
        error: int,
    ):
        request = json.dumps([arguments, dict(env), str(cwd)]).encode()
        self._told, tell = os.pipe()
        socket.send_fds(_template(os.getpid()), [request], [output, error, tell])
        os.close(tell)
        self.returncode: int | None = None
        (self.pid,) = NUMBER.unpack(os.read(self._told, NUMBER.size))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            (self.returncode,) = NUMBER.unpack(os.read(self._told, NUMBER.size))
            os.close(self._told)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@functools.cache
def _template(owner: int) -> socket.socket:
    """The process to fork from. A forked child of the suite has its own."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        template = subprocess.Popen(
            [sys.executable, "-u", "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdin=its,
            stdout=subprocess.DEVNULL,
        )
    # It ends when the socket is closed.
    atexit.register(template.wait)
    atexit.register(ours.close)
    return ours


def main() -> None:
    requests = socket.socket(fileno=os.dup(0))
    for module in IMPORTED:
        importlib.import_module(module)
    scripts.load()  # as a worker does when it first asks its store
    gc.freeze()
    while True:
        request, files, *_ = socket.recv_fds(requests, LARGEST, 3)
        _collect_the_dead()
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _mind(json.loads(request), *files)
            return
        for one in files:
            os.close(one)


def _collect_the_dead() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _mind(request: list, output: int, error: int, tell: int) -> None:
    """Fork the process, and wait for its end."""
    if (pid := os.fork()) == 0:
        os.setsid()
        # From now on a signal to its group reaches it.
        os.write(tell, NUMBER.pack(os.getpid()))
        os.close(tell)
        _become(output, error, *request)
        return
    os.close(output)
    os.close(error)
    _, status = os.waitpid(pid, 0)
    os.write(tell, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(output: int, error: int, arguments: list[str], env: dict[str, str], cwd: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (error, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdout, sys.stderr = _stream(sys.stdout), _stream(sys.stderr)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    kind, what, *more = arguments
    path = env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [cwd if kind == "-m" else "", *filter(None, path)]
    sys.argv[:] = [kind, *more]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(what, vars(sys.modules["__main__"]))


def _stream(made: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream for its new descriptor: a stream checks only once whether that is a file."""
    raw = io.FileIO(made.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, made.encoding, made.errors, write_through=True)


if __name__ == "__main__":
    main()

"""A child that C forked, as uWSGI does: Python does not know of it, and runs no hooks."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import wait

from tests.support.waiting import PATIENCE


def c_fork() -> int:
    """Fork as a library in C does, with Python's lock held; return the child's id, and 0 in it.

    A thread that waits for Python's lock asks for it after the switch interval. A child that is
    forked after that gives the lock away, and waits for ever for a thread that it does not have.
    So no thread asks meanwhile; uWSGI forks before there are threads.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1)
    try:
        threading.Event().wait(4 * interval)  # a thread that has asked already gets it
        return ctypes.PyDLL(None).fork()
    finally:
        sys.setswitchinterval(interval)


def in_child(action: Callable[[], bytes]) -> bytes:
    """The result of *action* in such a child, or its error."""
    receive, send = os.pipe()
    child = c_fork()
    if child == 0:
        try:
            answer = action()
        except BaseException as error:
            answer = repr(error).encode()
        os.write(send, answer)
        os._exit(0)
    os.close(send)
    try:
        with os.fdopen(receive, "rb") as pipe:
            # Not select.select, which knows no descriptor past 1023.
            return pipe.read() if wait([pipe], 2 * PATIENCE) else b"no answer"
    finally:
        # A child that waits for a lock would outlive the suite, and hold its output.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

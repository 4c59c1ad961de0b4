"""A child that C forked, as uWSGI does: Python does not know of it, and runs no hooks."""

import ctypes
import os
import signal
from collections.abc import Callable

from tests.support.waiting import PATIENCE


def c_fork() -> int:
    """Fork as a library in C does, with Python's lock held; return the child's id, and 0 in it."""
    return ctypes.PyDLL(None).fork()


def in_child(action: Callable[[], bytes]) -> bytes:
    """The result of *action* in such a child, or its error."""
    receive, send = os.pipe()
    child = c_fork()
    if child == 0:
        # If it waited for a lock, it would outlive the suite.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            answer = action()
        except BaseException as error:
            answer = repr(error).encode()
        os.write(send, answer)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer

"""The one place where a test may poll; and a word to another thread."""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SHORTEST, LONGEST = 0.005, 0.05  # seconds between two looks
SHARE = 20  # a look comes too late by at most this part of the wait
PATIENCE = 30  # seconds: longer than anything takes on a slow machine, unless it hangs


def eventually(predicate: Callable[[], T], timeout: float = PATIENCE, message: str = "") -> T:
    """Return the first true value of *predicate*; fail after *timeout* seconds, with the last."""
    begun = time.monotonic()
    while not (value := predicate()):
        waited = time.monotonic() - begun
        if waited > timeout:
            raise AssertionError(
                f"not within {timeout} s: {message or _name(predicate)}; last value: {value!r}"
            )
        time.sleep(min(max(SHORTEST, waited / SHARE), LONGEST))
    return value


def _name(predicate: Callable[[], object]) -> str:
    code = getattr(predicate, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return getattr(predicate, "__qualname__", repr(predicate)) + where


def interrupt(thread: threading.Thread, kind: type[BaseException]) -> None:
    """Let an exception come up in another thread, as soon as that runs Python again."""
    raised = ctypes.c_long(thread.ident), ctypes.py_object(kind)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(*raised) == 1


def without_threads(monkeypatch, name: str) -> None:
    """Let threads of that name not begin."""
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda one: one.name == name or start(one))

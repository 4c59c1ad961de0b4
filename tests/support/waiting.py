"""The one place where a test may poll."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL = 0.005
PATIENCE = 30  # seconds that nothing takes, however slow the machine; what hangs takes longer


def eventually(predicate: Callable[[], T], timeout: float = PATIENCE, message: str = "") -> T:
    """Return the first true value of *predicate*; fail after *timeout* seconds, with the last."""
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"not within {timeout} s: {message or _name(predicate)}; last value: {value!r}"
            )
        time.sleep(INTERVAL)
    return value


def _name(predicate: Callable[[], object]) -> str:
    code = getattr(predicate, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return getattr(predicate, "__qualname__", repr(predicate)) + where

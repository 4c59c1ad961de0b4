"""Storing ``REVOKED`` where a canceller could not: he was killed, or his result backend was away.

    cancel --> outbox, in the script that removes the entry
       +-----> backend --> mark_stored                       the canceller, as a rule
    Outbox --> owed --> backend --> mark_stored              beside a scanner, a while later

In a thread of its own, as a result backend may take minutes to say that it is away.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from ..errors import StoreError
from ..logs import logger_of
from ..store.scanner_steps import ScannerSteps
from ..store.values import Cancelled

logger = logger_of(__name__)

INTERVAL = 30.0  # seconds between two looks

Mark = Callable[[Cancelled], bool]


class Outbox:
    """Looks for what is owed, and stores it.

    Args:
        engines: Of each shard, over a connection of their own.
        mark: Stores ``REVOKED`` for one; returns whether that is done.
    """

    def __init__(self, engines: Sequence[ScannerSteps], mark: Mark) -> None:
        self._engines = engines
        self._mark = mark
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self.run, name="delayq-outbox", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End after the task at hand; waits at most *timeout* seconds."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Look at once: something has just come to be owed."""
        self._wanted.set()

    def run(self) -> None:
        """Store what is owed until :meth:`stop`."""
        while True:
            self._wanted.wait(INTERVAL * random.uniform(0.8, 1.0))
            self._wanted.clear()
            if self._stopping.is_set():
                break
            try:
                while self.drain():
                    pass
            except StoreError as error:
                logger.debug("what is owed is not known: %s", error)
        for engine in self._engines:
            engine.close()

    def drain(self) -> bool:
        """Store what is owed, as much as is given at a time; returns whether there may be more."""
        return any(self._drain(engine) for engine in self._engines)

    def _drain(self, engine: ScannerSteps) -> bool:
        owed = engine.owed()
        done = []
        for cancelled in owed:
            if self._stopping.is_set():
                break
            if self._mark(cancelled):
                done.append(cancelled)
        if done:
            engine.mark_stored(done)
        return bool(owed) and len(done) == len(owed)

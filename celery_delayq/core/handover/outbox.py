"""Stores ``REVOKED`` if a canceller could not: it was killed, or its result backend was down.

    cancel --> outbox, in the script that removes the entry
       +-----> backend --> mark_stored                       the canceller, as a rule
    Outbox --> owed --> backend --> mark_stored              beside a scanner, a while later

It runs in a thread of its own, as a result backend that is down may take minutes to fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..errors import StoreError
from ..store.delivery import ScannerSteps
from ..store.values import Cancelled
from ..text import logger_of
from ..threads import OwnThread
from .backoff import random

logger = logger_of(__name__)

INTERVAL = 30.0  # seconds between two checks

Mark = Callable[[Cancelled], bool]


class Outbox:
    """Looks for cancelled tasks without ``REVOKED``, and stores it.

    Args:
        steps_by_shard: The steps of each shard, over a connection of their own.
        mark: Stores ``REVOKED`` for a task; returns whether that is done.
        take_back: Resets it for a task whose id was scheduled anew meanwhile.
    """

    def __init__(
        self,
        steps_by_shard: Sequence[ScannerSteps],
        mark: Mark,
        take_back: Callable[[Cancelled], object] = lambda _: None,
    ) -> None:
        self._steps_by_shard = steps_by_shard
        self._mark = mark
        self._take_back = take_back
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._thread = OwnThread("delayq-outbox", self.run, self._stopping)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End after the current task; wait at most *timeout* seconds."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Check at once, as a task was skipped just now."""
        self._wanted.set()

    def run(self) -> None:
        """Store missing ``REVOKED`` until :meth:`stop`."""
        while True:
            self._wanted.wait(INTERVAL * random.uniform(0.8, 1.0))
            self._wanted.clear()
            if self._stopping.is_set():
                break
            while self.drain():
                pass
        for steps in self._steps_by_shard:
            steps.close()

    def drain(self) -> bool:
        """Store ``REVOKED`` for one batch of tasks; return whether there may be more."""
        return any(self._tried(steps) for steps in self._steps_by_shard)

    def _tried(self, steps: ScannerSteps) -> bool:
        try:
            return self._drain(steps)
        except StoreError as error:
            logger.debug("cannot read which tasks lack REVOKED: %s", error)
            return False

    def _drain(self, steps: ScannerSteps) -> bool:
        owed = steps.owed()
        done = []
        for cancelled in owed:
            if self._stopping.is_set():
                break
            if self._mark(cancelled):
                done.append(cancelled)
        if done:
            anew = steps.mark_stored(done)
            for entry in done:
                if entry.task_id in anew:
                    self._take_back(entry)
        return bool(owed) and len(done) == len(owed)

"""The scanner: hands over what is due, and sleeps until there is more.

    loop:  move what is due into lists of this Redis, batch after batch until none is left
           take back leases that ran out; relay what goes elsewhere
           wait until the earliest of: next due time, lease deadline, wake-up token, safety scan

Any number of scanners may run at once; there is no leader. It knows neither Redis, Celery nor
kombu: the store's engine, the wake-up and the relay are given to it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING

from ..errors import BrokerDown, StoreUnavailable

if TYPE_CHECKING:
    from ..store import Engine, Pass, Wakeup
    from .relay import Relay

logger = logging.getLogger(__name__)

GRACE = 0.25  # seconds that a scanner gives the one which watches the next due time
LONGEST_BACKOFF = 30.0  # seconds between tries to reach a Redis or a broker that is away


class Backoff:
    """Doubling pauses with jitter, so that a hundred scanners do not come back as one."""

    def __init__(self, first: float = 0.5) -> None:
        self._first = first
        self._failures = 0

    def next(self) -> float:
        pause = min(LONGEST_BACKOFF, self._first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._failures = 0


class Scanner:
    """One scanner, to be run in a thread of its own."""

    def __init__(
        self, engine: Engine, wakeup: Wakeup, relay: Relay, *, safety_interval: float, lease: float
    ) -> None:
        self._engine = engine
        self._wakeup = wakeup
        self._relay = relay
        self._safety_interval = safety_interval
        self._lease = lease
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._relay_backoff = Backoff()
        self._relay_again = 0.0
        self._reachable = True

    def start(self) -> None:
        """Run in a thread; returns at once, whether or not Redis can be reached."""
        self._thread = threading.Thread(target=self.run, name="delayq-scanner", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Claim nothing more, give back what was not published, and end; waits *timeout* s."""
        self._stopping.set()
        self._wakeup.interrupt()
        if self._thread is not None:
            self._thread.join(timeout)

    def run(self) -> None:
        """Scan until :meth:`stop`. An exception in a pass is logged and does not end it."""
        logger.info("scanner %s started", self._engine.name)
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                self._wakeup.wait(self._pass())
                backoff.reset()
                self._reachable = True
            except StoreUnavailable as error:
                self._reachable = False
                self._pause(backoff.next(), error)
            except Exception:
                logger.exception("a pass failed; the scanner goes on")
                self._stopping.wait(backoff.next())
        self._end()

    def _pause(self, seconds: float, error: Exception) -> None:
        logger.warning("%s; next try in %.1f s", error, seconds)
        self._stopping.wait(seconds)

    def _pass(self) -> float:
        """Hand over all that is due; returns for how many seconds there is nothing to do."""
        while not self._stopping.is_set():
            seen = self._engine.move()
            for task_id, reason in seen.set_aside:
                logger.error("task %s set aside: %s", task_id, reason)
            more = seen.is_past(seen.due)
            more = self._take_back(seen) or more
            more = self._relay_due(seen) or more
            if not more:
                return self._idle_for(seen)
        return 0.0

    def _take_back(self, seen: Pass) -> bool:
        left = seen.seconds_until(seen.leased)
        # Further off than any lease of ours: Redis's clock was set back; the script knows more.
        if left is None or 0 < left <= self._lease:
            return False
        reclaimed = self._engine.reclaim()
        for task_id in reclaimed:
            logger.warning("task %s: its lease ran out; it may be published twice", task_id)
        return bool(reclaimed)

    def _relay_due(self, seen: Pass) -> bool:
        if not seen.is_past(seen.relay) or time.monotonic() < self._relay_again:
            return False
        try:
            claimed = self._relay.batch(self._stopping.is_set)
        except BrokerDown as error:
            pause = self._relay_backoff.next()
            self._relay_again = time.monotonic() + pause
            logger.warning("%s; next try in %.1f s", error, pause)
            return False
        self._relay_backoff.reset()
        return claimed > 0

    def _idle_for(self, seen: Pass) -> float:
        relay = seen.seconds_until(seen.relay)
        if relay is not None:
            relay = max(relay, self._relay_again - time.monotonic())
        # Another scanner is up for the head. Should it be dead, this one comes a little later.
        grace = 0.0 if seen.watching else GRACE * random.uniform(1.0, 2.0)
        waits = (seen.seconds_until(seen.due), seen.seconds_until(seen.leased), relay)
        # With jitter, or all scanners of a deployment look at the same moment.
        safety = self._safety_interval * random.uniform(0.8, 1.0)
        wanted = [max(0.0, wait) + grace for wait in waits if wait is not None]
        return min([safety, *wanted])

    def _end(self) -> None:
        self._relay.close()
        try:
            # A Redis that did not answer would keep a stopping worker waiting once more; without a
            # word from this scanner its sign of life runs out.
            if self._reachable:
                self._engine.leave()
        except Exception as error:
            logger.debug("leaving: %r", error)
        self._engine.close()
        self._wakeup.close()
        logger.info("scanner %s stopped", self._engine.name)

"""The scanner: hands over what is due, and sleeps until there is more.

    loop:  hand over what is due to lists of this Redis, batch after batch until none is left
           take back leases that ran out; relay what goes elsewhere
           wait until the earliest of: next due time, lease deadline, wake-up token, safety scan

Any number of scanners may run at once; there is no leader. It knows neither Redis, Celery nor
kombu: the store's engine, the wake-up and the relay are given to it.
"""

from __future__ import annotations

import random
import threading

from .. import clock
from ..errors import BrokerDown, StoreUnavailable
from ..logs import logger_of
from ..services import Hooks
from ..store import Engine, Seen, Wakeup
from .backoff import Backoff
from .dead import report
from .outbox import Outbox
from .relay import Relay

logger = logger_of(__name__)

GRACE = 0.25  # seconds that a scanner gives the one whose timer is set for the next due time


class Scanner:
    """One scanner, to be run in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        wakeup: Wakeup,
        relay: Relay,
        *,
        safety_interval: float,
        lease: float,
        hooks: Hooks,
        outbox: Outbox | None = None,
    ) -> None:
        self._engine = engine
        self._wakeup = wakeup
        self._relay = relay
        self._safety_interval = safety_interval
        self._lease = lease
        self._hooks = hooks
        self._outbox = outbox
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._relay_backoff = Backoff()
        self._relay_again = 0.0
        self._reachable = True

    def start(self) -> None:
        """Run in a thread; returns at once, whether or not Redis can be reached."""
        self._thread = threading.Thread(target=self.run, name="delayq-scanner", daemon=True)
        self._thread.start()
        if self._outbox is not None:
            self._outbox.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Claim nothing more, give back what was not published, and end; waits *timeout* s."""
        self._stopping.set()
        self._wakeup.interrupt()
        until = clock.monotonic() + timeout
        if self._thread is not None:
            self._thread.join(timeout)
        if self._outbox is not None:
            self._outbox.stop(max(0.0, until - clock.monotonic()))

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
            seen = self._engine.hand_over()
            report(self._hooks, seen)
            more = seen.is_past(seen.due)
            more = self._take_back(seen) or more
            more = self._relay_due(seen) or more
            if not more:
                return self._idle_for(seen)
        return 0.0

    def _take_back(self, seen: Seen) -> bool:
        left = seen.seconds_until(seen.leased)
        # Further off than any lease of ours: Redis's clock was set back; the script knows more.
        if left is None or 0 < left <= self._lease:
            return False
        reclaimed = self._engine.reclaim()
        for task_id in reclaimed:
            logger.warning("task %s: its lease ran out; it may be published twice", task_id)
        return bool(reclaimed)

    def _relay_due(self, seen: Seen) -> bool:
        if not seen.is_past(seen.relay) or clock.monotonic() < self._relay_again:
            return False
        try:
            batch = self._relay.batch(self._stopping.is_set)
        except BrokerDown as error:
            # One that takes some, and then loses a reply, is up: its pauses must not grow.
            if error.sent:
                self._relay_backoff.reset()
            pause = self._relay_backoff.next()
            self._relay_again = clock.monotonic() + pause
            logger.warning("%s; next try in %.1f s", error, pause)
            return False
        self._relay_backoff.reset()
        return batch.claimed > 0

    def _idle_for(self, seen: Seen) -> float:
        relay = seen.seconds_until(seen.relay)
        if relay is not None:
            relay = max(relay, self._relay_again - clock.monotonic())
        # Another scanner has its timer set. Should it be dead, this one comes a little later.
        grace = 0.0 if seen.has_timer else GRACE * random.uniform(1.0, 2.0)
        waits = (seen.seconds_until(seen.due), seen.seconds_until(seen.leased), relay)
        # With jitter, or all scanners of a deployment look at the same moment.
        safety = self._safety_interval * random.uniform(0.8, 1.0)
        wanted = [max(0.0, wait) + grace for wait in waits if wait is not None]
        return min([safety, *wanted])

    def _end(self) -> None:
        self._relay.close()
        try:
            # A Redis that did not answer would keep a stopping worker waiting once more; without a
            # word from this scanner its heartbeat runs out.
            if self._reachable:
                self._engine.leave()
        except Exception as error:
            logger.debug("leaving: %r", error)
        self._engine.close()
        self._wakeup.close()
        logger.info("scanner %s stopped", self._engine.name)

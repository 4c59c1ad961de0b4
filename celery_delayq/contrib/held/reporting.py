"""Sends words about held keys to the store, in a thread of a worker's main process.

The worker's own loop does not wait for the store. While that is away, the thread tries again; a
word that is lost after all costs no more than the rest of the time for which the key is held.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from datetime import datetime

from ...core import clock
from ...core.errors import DelayQError
from ...core.message.headers import Hold, ms_until
from ...core.services import Services
from ...core.store.keys import shard_of
from ...core.text import logger_of
from ...core.threads import OwnThread

Word = tuple[str, str, str, int, int]  # id, key, delivery, ms, lease; see hold.lua

logger = logger_of(__name__)

MOST_KEPT = 100_000  # words; further ones push out the oldest
AT_A_TIME = 100
AGAIN = 1.0  # seconds between two tries
# Seconds for which a run holds its key if its worker does not say again that it goes on. A failover
# of the store takes less; a worker that is away for longer counts as gone.
LEASE = 600.0
RENEW = 120.0  # seconds between two such words
STOP_WITHIN = 5.0  # seconds that a worker which stops waits for the last words


class Reporter:
    """Sends the words of one worker.

    Args:
        services: The services of its app.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._words: deque[Word] = deque(maxlen=MOST_KEPT)
        self._there = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: OwnThread | None = None
        self._left: list[Word] = []  # those that the store could not take
        self._leased: dict[Hold, float] = {}  # and until when each is held at the latest, monotonic
        self._renew_at = 0.0

    def runs(self, hold: Hold) -> None:
        """A run has begun whose message nobody gets again: its key is held while this goes on.

        If the worker is killed, the key is free once the lease has run out.
        """
        if hold.ms <= LEASE * 1000:
            self.goes_on(hold)
            return
        self._leased[hold] = clock.monotonic() + hold.ms / 1000
        self._report(hold, round(LEASE * 1000), lease=1)

    def goes_on(self, hold: Hold, when: datetime | str | float | None = None) -> None:
        """A run has begun; or it begins again at a time, or in so many seconds."""
        self._leased.pop(hold, None)
        self._report(hold, hold.ms + ms_until(when))

    def has_ended(self, hold: Hold) -> None:
        """A run has ended for good."""
        self._leased.pop(hold, None)
        self._report(hold, 0)

    def _report(self, hold: Hold, ms: int, lease: int = 0) -> None:
        self._words.append((hold.id, hold.key, hold.delivery, ms, lease))
        with self._lock:
            # Not before: the pool has forked by now.
            if self._thread is None:
                self._thread = OwnThread("delayq-held", self._run, self._stopping)
                self._thread.start()
        self._there.set()

    def stop(self, **_: object) -> None:
        """Send what there is, and end; a further word begins anew."""
        self._stopping.set()
        self._there.set()
        if self._thread is not None:
            self._thread.join(STOP_WITHIN)
        self._thread = None
        self._stopping.clear()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            if self._left:
                self._stopping.wait(AGAIN)
            else:
                now = clock.monotonic()
                self._there.wait(max(0.0, self._renew_at - now) if self._leased else None)
            self._there.clear()
            self._renew()
            # Before the words are read: those that came before the stop are sent.
            is_last = self._stopping.is_set()
            is_again = bool(self._left)
            while self._words:
                self._left.append(self._words.popleft())
            self._left = self._unsent(self._left[-MOST_KEPT:], say=not is_again)

    def _renew(self) -> None:
        """Say again of all runs under a lease that they go on, if it is time.

        A word that is late, as its run ends meanwhile, does no harm: see ``hold.lua``.
        """
        now = clock.monotonic()
        if now < self._renew_at:
            return
        self._renew_at = now + RENEW
        for hold, ends in self._leased.copy().items():
            ms = round(min(LEASE, ends - now) * 1000)
            if ms < LEASE * 1000:  # the last one
                self._leased.pop(hold, None)
            if ms > 0:
                self._words.append((hold.id, hold.key, hold.delivery, ms, 1))

    def _unsent(self, words: list[Word], *, say: bool) -> list[Word]:
        """Send words; return those of shards that are away, which hold up no others."""
        parts: defaultdict[int, list[Word]] = defaultdict(list)
        for word in words:
            parts[shard_of(word[1], self._services.settings.shards)].append(word)
        left: list[Word] = []
        for some in parts.values():
            for first in range(0, len(some), AT_A_TIME):
                if not self._is_sent(some[first : first + AT_A_TIME], say=say):
                    left += some[first:]
                    break
        return left

    def _is_sent(self, words: list[Word], *, say: bool) -> bool:
        try:
            until = clock.monotonic() + self._services.settings.timeout
            self._services.entries.hold(words, until)
        except DelayQError as error:
            if say:
                logger.warning("%d words about held keys wait for the store: %s", len(words), error)
            return False
        return True

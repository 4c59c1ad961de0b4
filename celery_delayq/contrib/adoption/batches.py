"""Writes messages into the store, in batches, from a thread of its own.

    put --> waiting --> under way --> stored, or refused --> settled, by the consumer's thread
               |            | no answer
               |            +--> doubtful: written again until the store answers
               +--> refused at once, like all new ones, while the store is down or slow

A doubtful message may be in the store, so it is neither run nor acknowledged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ...core import clock
from ...core.errors import AlreadyTaken, DelayQError, StoreUnavailable
from ...core.store import Receipt
from ...core.text import logger_of
from ...core.threads import OwnThread
from .messages import Far

logger = logger_of(__name__)

SLICE = 200  # messages per call of Redis
SLICE_BYTES = 500_000
MOST = 1000  # messages that wait or are under way; further ones are left to Celery
ROOM_WITHIN = 0.1  # seconds that a message waits for room, while the store is quick
SLOW = 1.0  # seconds after which an unanswered call makes the store slow
AWAY = 5.0  # seconds without adoption after the store was down or slow
ASK_AGAIN = 1.0  # seconds between two attempts to write doubtful messages

Answers = Sequence[Receipt | DelayQError]
Write = Callable[[Sequence[Far]], Answers]


class Batches:
    """The batches of one connection from a worker to its broker.

    Args:
        write: Writes entries, and reports those that exist already. Raises the store's errors.
        wake: The thread calls it when a message is settled.
        before: The batches of the previous connection; their call under way ends first.
        sharded: Whether a batch takes several calls now, so that an error leaves it in doubt.
    """

    def __init__(
        self,
        write: Write,
        wake: Callable[[], None],
        before: Batches | None = None,
        *,
        sharded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._write = write
        self._wake = wake
        self._before = before
        self._sharded = sharded
        self._changed = threading.Condition()
        self._waiting: deque[Far] = deque()
        self._under_way: list[Far] = []
        self._settled: list[tuple[Far, bool]] = []
        self._since = 0.0
        self._take_from = 0.0
        self._is_doubtful = False
        self._is_closed = False
        self._over = threading.Event()
        self._thread: OwnThread | None = None

    def __len__(self) -> int:
        """Return how many messages are not settled."""
        return len(self._waiting) + len(self._under_way)

    def put(self, far: Far) -> bool:
        """Take a message; false leaves it to Celery."""
        with self._changed:
            if not self._takes() or not self._has_room():
                return False
            self._waiting.append(far)
            if self._thread is None:
                self._thread = OwnThread("delayq-adopting", self._run, self._over)
                self._thread.start()
            self._changed.notify_all()
            return True

    def _takes(self) -> bool:
        now = clock.monotonic()
        if self._under_way and not self._is_doubtful and now - self._since > SLOW:
            logger.warning("the store is slow; workers hold eta messages for the next %.0f s", AWAY)
            self._refuse_waiting()
        return not self._is_closed and not self._is_doubtful and now >= self._take_from

    def _has_room(self) -> bool:
        if len(self) >= MOST:
            self._changed.wait_for(lambda: len(self) < MOST, ROOM_WITHIN)
        return len(self) < MOST

    def wait_decided(self, seconds: float) -> bool:
        """Wait until every message is settled; return whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self) == 0, seconds)

    def decided(self) -> list[tuple[Far, bool]]:
        """Return each settled message once, and whether it is stored or left to Celery."""
        with self._changed:
            found, self._settled = self._settled, []
            return found

    def close(self) -> None:
        """Take and settle nothing more; the broker has the unacknowledged messages."""
        with self._changed:
            self._is_closed = True
            self._over.set()
            self._waiting.clear()
            self._settled.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the call under way has ended."""
        if self._thread is not None:
            self._thread.join()

    # In the thread.

    def _run(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            before.join()
        while self._next():
            self._decide(self._under_way)

    def _next(self) -> bool:
        with self._changed:
            if self._is_doubtful:
                self._changed.wait_for(lambda: self._is_closed, ASK_AGAIN)
            else:
                self._changed.wait_for(lambda: self._is_closed or self._waiting)
                self._under_way = self._slice()
                self._since = clock.monotonic()
            return not self._is_closed

    def _slice(self) -> list[Far]:
        """The next messages, each id once: the store would refuse the second."""
        batch: dict[str, Far] = {}
        size = 0
        while self._waiting and len(batch) < SLICE and size < SLICE_BYTES:
            if self._waiting[0].task_id in batch:
                break
            far = self._waiting.popleft()
            batch[far.task_id] = far
            size += len(far.message.body)
        return list(batch.values())

    def _decide(self, batch: list[Far]) -> None:
        stored: list[bool] | None = None
        try:
            stored = [is_stored(answer) for answer in self._write(batch)]
        except DelayQError as error:
            may_have_run = isinstance(error, StoreUnavailable) and error.may_have_run
            if not (may_have_run or self._sharded() or self._is_doubtful):
                stored = [False] * len(batch)
            self._keep_away(str(error), doubtful=stored is None)
        except Exception:
            logger.exception("messages with an eta could not be stored; trying again")
            self._keep_away("see above", doubtful=True)
        except BaseException:
            self._is_doubtful = True  # for the thread that takes over from this one
            raise
        with self._changed:
            if stored is not None:
                self._is_doubtful, self._under_way = False, []
                self._tell(zip(batch, stored, strict=True))
            self._changed.notify_all()
        self._wake()

    def _keep_away(self, why: str, *, doubtful: bool) -> None:
        with self._changed:
            if not self._is_doubtful:
                logger.warning("workers hold eta messages for the next %.0f s: %s", AWAY, why)
            self._is_doubtful = doubtful
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        self._take_from = clock.monotonic() + AWAY
        self._tell((far, False) for far in self._waiting)
        self._waiting.clear()
        self._changed.notify_all()

    def _tell(self, found: Any) -> None:
        if not self._is_closed:
            self._settled.extend(found)


def is_stored(answer: Receipt | DelayQError) -> bool:
    """Whether a message needs nothing more."""
    # A message that was taken at an earlier delivery waits, was cancelled, or has been delivered.
    return isinstance(answer, (Receipt, AlreadyTaken))

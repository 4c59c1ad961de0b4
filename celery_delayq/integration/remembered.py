"""Which task was meant by a revoke, of all that come to a worker under its id.

A worker remembers the ids that it was told to revoke, and drops for hours what comes under them.
An id of one's own may be scheduled anew by then, and that is another task:

    revoke, of what is not in the store (any more), told at 12:00
        a message that was due at 11:59   is meant, and dropped as Celery does
        a message that was due at 12:01   was scheduled since, and runs

What had left the store by then was due by then. So the due time tells, which every scheduled
message has, and the revoke brings its own time: both by Redis's clock, with no look at Redis for a
task. What has no due time, or is a retry, is meant, as with Celery alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from typing import Any

from .. import clock
from ..errors import StoreError
from ..logs import logger_of
from ..message.headers import DUE_HEADER
from ..services import Services

logger = logger_of(__name__)

MOST = 50_000  # ids of which is known when they were told; as many as Celery remembers
FOR = 10_800.0  # seconds, as Celery

Strategy = Callable[..., Any]


class Remembered:
    """When a worker was told to revoke which ids.

    Args:
        state: ``celery.worker.state``, which has the ids that are dropped, and the messages that
            wait in the worker.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._ids = state.revoked
        self._told: dict[str, tuple[float, float]] = {}
        self._connected = clock.monotonic()
        self._connected_ms: float | None = None

    def connected(self) -> None:
        """The worker has its broker (again), and was told by other workers what they remember."""
        self._connected, self._connected_ms = clock.monotonic(), None

    def told(self, ids: Iterable[str], at_ms: int | None) -> None:
        """It is told to revoke these; *at_ms* is ``None`` where the store could not be asked."""
        ends = clock.monotonic() + FOR
        for task_id in ids:
            before_ms, _ = self._told.pop(task_id, (0, 0))
            self._told[task_id] = (inf if at_ms is None else max(at_ms, before_ms), ends)
        while len(self._told) > MOST:
            del self._told[next(iter(self._told))]

    def telling_apart(self, services: Services, strategy: Strategy) -> Strategy:
        """*strategy*, which does not drop what was scheduled after its id was revoked."""

        def received(message: Any, *rest: Any) -> Any:
            task_id = message.properties.get("correlation_id")
            if task_id in self._ids:
                if not self._is_meant(services, task_id, message):
                    self._forget(task_id)
            elif task_id in self._told and self._is_late(task_id, message):
                return self._dropped(task_id, strategy, message, *rest)
            return strategy(message, *rest)

        return received

    def knows(self, task_id: str, message: Any) -> bool:
        """Whether a message may be meant by a revoke, of its id or of its stamps."""
        stamped = self._state.revoked_stamps and message.headers.get("stamped_headers")
        return task_id in self._ids or task_id in self._told or bool(stamped)

    def _is_meant(self, services: Services, task_id: str, message: Any) -> bool:
        due_ms = message.headers.get(DUE_HEADER)
        if not isinstance(due_ms, int) or message.headers.get("retries"):
            return True
        if task_id not in self._told:
            # From other workers, or what this one remembered when it was stopped. (Or it has
            # expired, which the message tells by itself.)
            self._told[task_id] = (self._known_from(services), clock.monotonic() + FOR)
        return due_ms <= self._told[task_id][0]

    def _forget(self, task_id: str) -> None:
        waits = self._state.requests.get(task_id)
        if waits is not None and waits not in self._state.active_requests:
            waits.revoked()  # this one is meant, and would look for its id when it is to run
        self._ids.discard(task_id)
        logger.info("task %s: it was scheduled after its id was revoked, and runs", task_id)

    def _is_late(self, task_id: str, message: Any) -> bool:
        """Whether it is what was revoked, and comes after what was scheduled since."""
        told_ms, ends = self._told[task_id]
        if clock.monotonic() > ends:
            del self._told[task_id]
            return False
        if message.headers.get("retries"):
            return False
        due_ms = message.headers.get(DUE_HEADER)
        return not isinstance(due_ms, int) or due_ms <= told_ms

    def _dropped(self, task_id: str, strategy: Strategy, *message: Any) -> Any:
        self._ids.add(task_id)
        try:
            return strategy(*message)
        finally:
            self._ids.discard(task_id)

    def _known_from(self, services: Services) -> float:
        if self._connected_ms is None:
            now_ms = now(services)
            if now_ms is None:
                return inf
            self._connected_ms = now_ms - (clock.monotonic() - self._connected) * 1000
        return self._connected_ms


@cache
def remembered_here() -> Remembered:
    """What this worker remembers, as Celery does: for all apps of the process."""
    # Here, not above: only a worker has this module loaded already.
    from celery.worker import state

    return Remembered(state)


def now(services: Services) -> int | None:
    """The time by Redis's clock in ms, or ``None`` where it cannot be asked."""
    try:
        return services.entries.counts().now_ms
    except StoreError as error:
        logger.warning("when an id was revoked is not known: %s", error)
        return None

"""The ``DelayQ`` of a test; and Celery's own worker for tests, run without a trace."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

from celery import Celery, _state, signals
from celery.app.task import Task

from ... import DelayQ
from ...core import clock
from ...core.clock import TimeInput, from_ms
from ...core.errors import CannotIsolate
from ...core.leaves import ADVANCED, call
from ...core.store import State
from ...core.tasks.reading import OneOf
from ...core.tasks.scheduled_task import ScheduledTask
from .clock import Clock, kept, put, span_of
from .runner import RanTask, Runner

#: How many tasks one ``run_due`` runs, by default.
LIMIT = 1000

# The variables that a worker sets for processes that it might start.
_VARIABLES = (
    "CELERY_LOG_LEVEL",
    "CELERY_LOG_FILE",
    "_MP_FORK_LOGLEVEL_",
    "_MP_FORK_LOGFILE_",
    "_MP_FORK_LOGFORMAT_",
)
_ENDS = 30.0  # seconds for a worker to end, even with a task under way and on a slow machine
_POLLED = 0.01  # seconds between two polls of the queues, and of the request to stop


class IsolatedDelayQ(DelayQ):
    """The app's :class:`DelayQ` while it is isolated, with methods for tests.

    Args:
        app: The app.
        clock: Its clock, which the test moves.
    """

    def __init__(self, app: Celery[Any], clock: Clock) -> None:
        super().__init__(app)
        self._clock = clock
        self._runner = Runner(app, self.hand_over)
        self._worker: Any = None

    @property
    def now(self) -> datetime:
        """Return the store's time in UTC, rounded up to milliseconds."""
        return from_ms(self.counts().now_ms)

    def advance(self, by: timedelta | None = None, **units: float) -> None:
        """Let time pass at once: for the store, for ``app.now()`` and for delays from now.

        A worker's scanner wakes and scans at once. The next runs of rules are written, in this
        process. If something else moved the clock, such as time-machine, call ``advance()`` without
        arguments for the same.

        Args:
            by: How long.
            **units: Or the keywords of a timedelta: ``minutes=30``.

        Raises:
            InvalidOption: it is below 0.
            StoreError: Redis cannot be reached.
        """
        self._clock.advance(self.services.scripts, span_of(by, units))
        call(ADVANCED, self.app)

    def scheduled(
        self,
        *,
        key: str | None = None,
        tag: OneOf[str] | None = None,
        task: OneOf[Task[..., Any] | str] | None = None,
        queue: OneOf[str] | None = None,
        state: OneOf[State | str] | None = None,
        after_due: TimeInput | None = None,
        before_due: TimeInput | None = None,
    ) -> list[ScheduledTask]:
        """Return the tasks in the store that match all filters, in the order of due times.

        The filters are those of :meth:`select`, and take lists too.

        Args:
            key: Tasks with this unique key.
            tag: Tasks with this tag.
            task: Runs of this task, or of the task with this name.
            queue: Tasks sent to this queue.
            state: Tasks in this state.
            after_due: Tasks due at this time or later.
            before_due: Tasks due before this time.

        Raises:
            InvalidOption: a filter is invalid.
            InvalidDueTime: a value is not a time.
        """
        chosen = self.select(
            tag=tag,
            task=task,
            queue=queue,
            state=state,
            after_due=after_due,
            before_due=before_due,
            all=True,
        )
        found = [each for each in chosen if key is None or each.key == key]
        return sorted(found, key=lambda task: task.due)

    def run_due(self, *, propagate: bool | None = None, limit: int = LIMIT) -> list[RanTask]:
        """Deliver due tasks, and run all tasks in the queues, one by one, in this process.

        A task runs as in a worker, with its request, its links and its result in the backend. The
        tasks that it sends run as well, until no due task is left.

        Args:
            propagate: Whether to raise a task's exception here, and leave the rest for the next
                call. The default is the setting ``task_eager_propagates``.
            limit: How many tasks may run.

        Returns:
            The result of each task, in the order in which they ran.

        Raises:
            EndlessTasks: *limit* tasks have run, and more are due.
            CannotIsolate: a worker is running, which would run the same tasks.
        """
        if self._worker is not None:
            raise CannotIsolate(
                "run_due() was called inside worker(), which runs due tasks by itself; wait for a "
                "result instead, with result.get(timeout=10)"
            )
        if propagate is None:
            propagate = bool(self.app.conf.task_eager_propagates)
        return self._runner.run(propagate, limit)

    @contextmanager
    def worker(self, **options: Any) -> Iterator[Any]:
        """Run a Celery worker with its scanner, in a thread of this process.

        Args:
            **options: Options of ``celery.contrib.testing.worker.start_worker``: ``queues``,
                ``concurrency``, ``pool="threads"``.

        Raises:
            CannotIsolate: a worker is running already.
        """
        if self._worker is not None:
            raise CannotIsolate("worker() is running already; one at a time")
        self._runner.close()
        with _running_worker(self.app, **options) as worker:
            self._worker = worker
            try:
                yield worker
            finally:
                self._worker = None

    def close(self) -> None:
        """Close all connections, the broker's too; the next call opens new ones."""
        self._runner.close()
        super().close()


@contextmanager
def _running_worker(app: Celery, **options: Any) -> Iterator[Any]:
    """Run a worker until the block ends; see ``IsolatedDelayQ.worker``."""
    from celery.contrib.testing.worker import start_worker

    given = {"perform_ping_check": False, "shutdown_timeout": _ENDS, "loglevel": "WARNING"}
    given.update(options)
    with _traceless(app), start_worker(app, **given) as worker:
        _hurry(worker)
        yield worker


@contextmanager
def _traceless(app: Celery) -> Iterator[None]:
    """Restore what such a worker changes: logging, the current app, the list of revoked ids."""
    from celery.worker import state

    with ExitStack() as stack:
        stack.callback(_state._set_task_join_will_block, _state.task_join_will_block())
        stack.enter_context(put(vars(_state), "default_app", _state.default_app))
        stack.callback(setattr, _state._tls, "current_app", _state._tls.current_app)
        stack.enter_context(kept(state.revoked_stamps))
        stack.callback(_restore_revoked, state.revoked, set(state.revoked))
        stack.enter_context(_own_logging(app))
        yield


@contextmanager
def _own_logging(app: Celery) -> Iterator[None]:
    """Keep Celery from setting up logging, as pytest does."""
    kind = type(app.log)
    captures = logging._warnings_showwarning is not None  # type: ignore[attr-defined]
    with ExitStack() as stack:
        for name in _VARIABLES:
            stack.callback(_set_variable, name, os.environ.get(name))
        stack.callback(logging.captureWarnings, captures)
        stack.callback(setattr, kind, "_setup", kind._setup)
        signals.setup_logging.connect(_leave_as_it_is, weak=False)
        stack.callback(signals.setup_logging.disconnect, _leave_as_it_is)
        yield


def _leave_as_it_is(**_: Any) -> None:
    """Do nothing: if ``setup_logging`` has a receiver, Celery does not set up logging."""


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _restore_revoked(revoked: Any, before: set[str]) -> None:
    for task_id in set(revoked) - before:
        revoked.discard(task_id)


def _hurry(worker: Any) -> None:
    """Let it notice messages, and the request to stop, soon, even if time stands still.

    By default it waits for two seconds by the monotonic clock, which freezegun stops.
    """
    connection = worker.consumer.connection
    drain = connection.drain_events

    def drained(timeout: float | None = None, **given: Any) -> Any:
        try:
            return drain(timeout=0, **given)
        except TimeoutError:
            clock.sleep(_POLLED if timeout is None else min(timeout, _POLLED))
            raise

    connection.drain_events = drained

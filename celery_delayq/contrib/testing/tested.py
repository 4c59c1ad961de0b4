"""The ``DelayQ`` that a test has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.app.task import Task

from ...clock import TimeInput, from_ms
from ...errors import CannotIsolate
from ...integration.delayq import DelayQ
from ...operations.scheduled_task import ScheduledTask
from ...store import State
from .moved import Clock, span_of
from .runner import RanTask, Runner
from .worker import running_worker

#: How many tasks one ``run_due`` runs, unless told otherwise.
LIMIT = 1000


class IsolatedDelayQ(DelayQ):
    """The app's :class:`DelayQ` while it is isolated, and what a test needs besides.

    Args:
        app: The app.
        clock: By how much its time is ahead.
    """

    def __init__(self, app: Celery[Any], clock: Clock) -> None:
        super().__init__(app)
        self._clock = clock
        self._runner = Runner(app, self.hand_over)
        self._worker: Any = None

    @property
    def now(self) -> datetime:
        """What time it is for the store, in UTC, rounded up to milliseconds."""
        return from_ms(self.counts().now_ms)

    def advance(self, by: timedelta | None = None, **units: float) -> None:
        """Let time pass at once: for the store, for ``app.now()``, for what counts from now.

        A worker's scanner looks at once what has become due. So it does with ``advance()``, which
        is of use where something else moved the clock, such as time-machine.

        Args:
            by: For how long.
            **units: Or the same as a timedelta has it: ``minutes=30``.

        Raises:
            InvalidOption: it is less than nothing.
            StoreError: Redis cannot be reached.
        """
        self._clock.advance(self.services.scripts, span_of(by, units))

    def scheduled(
        self,
        *,
        key: str | None = None,
        tag: str | None = None,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        state: State | str | None = None,
        after_due: TimeInput | None = None,
        before_due: TimeInput | None = None,
    ) -> list[ScheduledTask]:
        """What the store has, in the order of due times; all that is given has to be so.

        Args:
            key: It has this unique key.
            tag: It has this tag.
            task: It is of this task, or of the task of this name.
            queue: It was sent with this queue.
            state: It is in this state.
            after_due: It is due at this time or later.
            before_due: It is due before this time.

        Raises:
            InvalidDueTime: not a time.
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
        found = [one for one in chosen if key is None or one.key == key]
        return sorted(found, key=lambda one: one.due)

    def run_due(self, *, propagate: bool | None = None, limit: int = LIMIT) -> list[RanTask]:
        """Hand over what is due, and run all that is in the queues, here and one by one.

        A task runs as in a worker, with its request, its links and its result in the backend; and
        so do those that it sends, until nothing is left that is due.

        Args:
            propagate: Whether what a task raises is raised here as well, and the rest left for the
                next call. By default what the setting ``task_eager_propagates`` says.
            limit: How many tasks may run.

        Returns:
            What came of each, in the order in which they ran.

        Raises:
            EndlessTasks: *limit* have run, and more are due.
            CannotIsolate: a worker is running, which would run the same tasks.
        """
        if self._worker is not None:
            raise CannotIsolate(
                "run_due() was called inside of worker(), which runs what is due by itself; wait "
                "for a result instead, with result.get(timeout=10)"
            )
        if propagate is None:
            propagate = bool(self.app.conf.task_eager_propagates)
        return self._runner.run(propagate, limit)

    @contextmanager
    def worker(self, **options: Any) -> Iterator[Any]:
        """A Celery worker with its scanner, in a thread of this process.

        Args:
            **options: What ``celery.contrib.testing.worker.start_worker`` takes: ``queues``,
                ``concurrency``, ``pool="threads"``.

        Raises:
            CannotIsolate: one is running already.
        """
        if self._worker is not None:
            raise CannotIsolate("worker() is running already; one at a time")
        self._runner.close()
        with running_worker(self.app, **options) as worker:
            self._worker = worker
            try:
                yield worker
            finally:
                self._worker = None

    def close(self) -> None:
        """Close what is open, to the broker as well; the next call opens new ones."""
        self._runner.close()
        super().close()

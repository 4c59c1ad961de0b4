"""Watches the runs of a worker whose tasks hold unique keys.

    received --> accepted --> success ------------------------------------> free
        |           |    +--> failure, Ignore, Reject, lost child --------> free
        |           |    +--> Retry, replaced, requeued -------------------> held
        |           |    '--> hard time limit -----------------------------> free, unless requeued
        |           '-------> held for `ms` from now
        '--> revoked, expired ---------------------------------------------> free

All of this shows in the worker's main process, whatever its pool; a child that dies is seen there
as well. A key is freed only after its message was acknowledged, so that no redelivery finds it
free.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery import Celery
from celery.exceptions import Retry, WorkerLostError
from celery.signals import task_received, task_revoked, worker_shutdown

from ..libraries import Feature, works
from ..message.headers import HOLD_HEADER
from ..message.hold import Hold, is_replaced, ms_until
from ..services import Services, find
from .reporting import Reporter

_LOST = (WorkerLostError, SystemExit, KeyboardInterrupt)
_ENDED = 0


def in_worker(app: Celery) -> None:
    """Watch the runs of this app's tasks; a second call changes nothing."""
    services = find(app)
    if services is None or not works(Feature.HOLDING):
        return
    reporter = Reporter(services)

    def received(request: Any, **_: Any) -> None:
        hold = request.app is app and Hold.of(request.request_dict.get(HOLD_HEADER), request.id)
        if hold:
            kind: Any = type(request)
            request.__class__ = _watched(kind)
            request.delayq_run = Run(services, reporter, hold)

    def revoked(sender: Any, request: Any, **_: Any) -> None:
        hold = sender.app is app and Hold.of(request.get(HOLD_HEADER), request.id)
        if hold:
            reporter.report(hold, _ENDED)

    uid = f"{__name__}:{id(app)}"
    task_received.connect(received, weak=False, dispatch_uid=uid)
    task_revoked.connect(revoked, weak=False, dispatch_uid=uid)
    worker_shutdown.connect(reporter.stop, weak=False, dispatch_uid=uid)


class Run:
    """A run, or several of one message: how each goes decides about the key."""

    def __init__(self, services: Services, reporter: Reporter, hold: Hold) -> None:
        self._services = services
        self._reporter = reporter
        self._hold = hold

    def goes_on(self, when: datetime | float | None = None) -> None:
        """It has begun; or begins again at a time, or in so many seconds."""
        later_ms = ms_until(when, self._services.timezone)
        self._reporter.report(self._hold, self._hold.ms + later_ms)

    def has_ended(self) -> None:
        self._reporter.report(self._hold, _ENDED)


class _Watched:
    """Overrides the methods of Celery's ``Request`` that its pool calls."""

    delayq_run: Run
    _delayq_requeued = False

    def on_accepted(self, *args: Any, **options: Any) -> None:
        self.delayq_run.goes_on()
        super().on_accepted(*args, **options)  # type: ignore[misc]

    def on_success(self, told: Any, **options: Any) -> Any:
        answer = super().on_success(told, **options)  # type: ignore[misc]
        if not told[0]:  # else it has called on_failure
            self.delayq_run.has_ended()
        return answer

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any:
        answer = super().on_failure(exc_info, *args, **options)  # type: ignore[misc]
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, Retry):
            self.delayq_run.goes_on(error.when)
        elif not self._is_kept(error):
            self.delayq_run.has_ended()
        return answer

    def on_timeout(self, soft: bool, timeout: float) -> None:
        super().on_timeout(soft, timeout)  # type: ignore[misc]
        if not soft and not self._delayq_requeued:
            self.delayq_run.has_ended()

    def reject(self, requeue: bool = False) -> None:
        self._delayq_requeued |= requeue
        super().reject(requeue)  # type: ignore[misc]

    def _is_kept(self, error: BaseException) -> bool:
        """Whether its task runs again, by this message or another one."""
        if self._delayq_requeued or self._already_cancelled:  # type: ignore[attr-defined]
            return True
        return is_replaced(error) or (isinstance(error, _LOST) and self._is_retried())

    def _is_retried(self) -> bool:
        """Whether Celery (5.7) has sent a task again whose child was lost."""
        task, request = self.task, self.request_dict  # type: ignore[attr-defined]
        most = task.max_retries
        is_left = most is None or request.get("retries", 0) < most
        return bool(getattr(task, "retry_on_worker_lost", None)) and is_left


@lru_cache
def _watched(base: Any) -> type:
    return type(base.__name__, (_Watched, base), {})

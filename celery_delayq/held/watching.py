"""Watches the runs of a worker whose tasks hold unique keys.

    received --> accepted --> success ------------------------------------> free
        |           |    +--> failure, Ignore, Reject, ------------------> free
        |           |    |    hard time limit, lost child
        |           |    '--> Retry, replaced, requeued -------------------> held
        |           '-------> held for `ms` from now
        '--> revoked, expired ---------------------------------------------> free

All of this shows in the worker's main process, whatever its pool; a child that dies is seen there
as well. A key is freed only after its message was acknowledged, so that no redelivery finds it
free.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery import Celery
from celery.exceptions import Retry, WorkerLostError
from celery.signals import task_received, task_revoked, worker_shutdown

from ..libraries import Feature, works
from ..message.headers import HOLD_HEADER
from ..message.hold import Hold, is_replaced
from ..services import find
from .reporting import Reporter

_LOST = (WorkerLostError, SystemExit, KeyboardInterrupt)


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
            request.delayq_hold, request.delayq_reporter = hold, reporter

    def revoked(sender: Any, request: Any, **_: Any) -> None:
        hold = sender.app is app and Hold.of(request.get(HOLD_HEADER), request.id)
        if hold:
            reporter.has_ended(hold)

    uid = f"{__name__}:{id(app)}"
    task_received.connect(received, weak=False, dispatch_uid=uid)
    task_revoked.connect(revoked, weak=False, dispatch_uid=uid)
    worker_shutdown.connect(reporter.stop, weak=False, dispatch_uid=uid)


class _Watched:
    """Overrides the methods of Celery's ``Request`` that its pool calls."""

    delayq_hold: Hold
    delayq_reporter: Reporter
    _delayq_requeued = False

    def on_accepted(self, *args: Any, **options: Any) -> None:
        self.delayq_reporter.goes_on(self.delayq_hold)
        super().on_accepted(*args, **options)  # type: ignore[misc]

    def on_success(self, told: Any, **options: Any) -> Any:
        answer = super().on_success(told, **options)  # type: ignore[misc]
        if not told[0]:  # else it has called on_failure
            self.delayq_reporter.has_ended(self.delayq_hold)
        return answer

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any:
        answer = super().on_failure(exc_info, *args, **options)  # type: ignore[misc]
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, Retry):
            self.delayq_reporter.goes_on(self.delayq_hold, error.when)
        elif not self._is_kept(error):
            self.delayq_reporter.has_ended(self.delayq_hold)
        return answer

    def reject(self, requeue: bool = False) -> None:
        # A message that was acknowledged does not come again.
        self._delayq_requeued |= requeue and not self.acknowledged  # type: ignore[attr-defined]
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

"""Watches the runs of a worker whose tasks hold unique keys.

    received --> accepted --> success ------------------------------------> free
        |           |    +--> failure, Ignore, Reject, ------------------> free
        |           |    |    time limit, lost child, no word at all
        |           |    '--> Retry, replaced, requeued, not acknowledged -> held
        |           '-------> acknowledged: held while the worker says so; else for `ms`
        |--> revoked, expired --------------------------------------------> free
        '--> refused: unknown task, body that cannot be read --------------> free

All of this shows in the worker's main process, whatever its pool; a child that dies is seen there
as well. A key is freed only after its message was acknowledged, so that no redelivery finds it
free. It is freed even if Celery raises on the way there, as it does without its result backend.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery import Celery, bootsteps
from celery.exceptions import Retry
from celery.signals import task_received, task_revoked, worker_shutdown

from ...core.libraries import Feature, works
from ...core.message.headers import HOLD_HEADER, Hold, is_replaced
from ...core.services import find
from .reporting import Reporter

_RETRY = f"{Retry.__module__}.{Retry.__name__}: "  # in a child's traceback

# What a consumer does with a message that becomes no task; each ends with ack or reject.
_REFUSALS = ("on_decode_error", "on_invalid_task", "on_unknown_task")


class HoldingStep(bootsteps.StartStopStep):
    """Lets a worker report how its app's runs go."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        services = find(consumer.app)
        self.enabled = services is not None and works(Feature.HOLDING)
        if services is None or not self.enabled:
            return
        reporter = Reporter(services)
        _watch_requests(consumer.app, reporter)
        for name in _REFUSALS:
            setattr(consumer, name, _then_free(getattr(consumer, name), reporter))


def _watch_requests(app: Celery, reporter: Reporter) -> None:
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
    heard = ((task_received, received), (task_revoked, revoked), (worker_shutdown, reporter.stop))
    for signal, receiver in heard:
        signal.disconnect(dispatch_uid=uid)  # of an earlier worker in this process
        signal.connect(receiver, weak=False, dispatch_uid=uid)


def _then_free(refuse: Callable[..., Any], reporter: Reporter) -> Callable[..., Any]:
    """Return a consumer's method that refuses a message, and then frees the key it holds."""

    def refuse_and_free(*args: Any, **options: Any) -> Any:
        try:
            return refuse(*args, **options)
        finally:
            message = next(
                argument for argument in (*args, *options.values()) if hasattr(argument, "headers")
            )
            headers = message.headers or {}
            hold = Hold.of(headers.get(HOLD_HEADER), headers.get("id"))
            if hold and message.acknowledged:
                reporter.has_ended(hold)

    return refuse_and_free


class _Watched:
    """Overrides the methods of Celery's ``Request`` that its pool calls."""

    delayq_hold: Hold
    delayq_reporter: Reporter
    _delayq_requeued = _delayq_sent_again = False
    _delayq_told = False  # whether the pool has said how the run ended
    _delayq_leased = False  # whether its key is held only while this worker says so

    def execute_using_pool(self, *args: Any, **options: Any) -> Any:
        try:
            result = super().execute_using_pool(*args, **options)  # type: ignore[misc]
        except BaseException as error:  # the solo pool has run it
            self._delayq_left(error)
            raise
        # Threads and greenlets can end without a word: a Future, or a Greenlet, knows it.
        future = getattr(result, "f", None)
        if future is not None:
            future.add_done_callback(lambda done: self._delayq_left(done.exception()))
        elif hasattr(result, "link"):
            result.link(lambda _: self._delayq_left(getattr(result, "exception", None)))
        return result

    def on_accepted(self, *args: Any, **options: Any) -> None:
        try:
            super().on_accepted(*args, **options)  # type: ignore[misc]
        finally:
            self._delayq_leased = bool(self.acknowledged)  # type: ignore[attr-defined]
            reporter = self.delayq_reporter
            (reporter.runs if self._delayq_leased else reporter.goes_on)(self.delayq_hold)

    def on_success(self, result: Any, **options: Any) -> Any:
        try:
            return super().on_success(result, **options)  # type: ignore[misc]
        finally:
            self._delayq_left(None)  # unless it has called on_failure

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().on_failure(exc_info, *args, **options)  # type: ignore[misc]
        finally:
            error = exc_info.exception
            if isinstance(error, ExceptionWithTraceback):
                error = error.exc
            self._delayq_left(error, str(exc_info.traceback))

    def reject(self, requeue: bool = False) -> None:
        # A message that was acknowledged does not come again.
        self._delayq_requeued |= requeue and not self.acknowledged  # type: ignore[attr-defined]
        super().reject(requeue)  # type: ignore[misc]
        self._delayq_left(None)

    def _retry_worker_lost(self, *args: Any) -> bool:
        """Celery (5.7) sends a task again whose child was lost, if so set."""
        self._delayq_sent_again = True  # if it raises, that was after it was sent
        self._delayq_sent_again = bool(super()._retry_worker_lost(*args))  # type: ignore[misc]
        return self._delayq_sent_again

    def _delayq_left(self, error: BaseException | None, traceback: str = "") -> None:
        """Report the end of a run, once Celery has done all that it does about it."""
        if self._delayq_told:
            return
        self._delayq_told = True
        retry = _retry_before(error)
        if retry is not None or _RETRY in traceback:
            self.delayq_reporter.goes_on(self.delayq_hold, retry and retry.when)
        elif not self._is_kept(error):
            self.delayq_reporter.has_ended(self.delayq_hold)
        elif self._delayq_leased:  # another message goes on with it
            self.delayq_reporter.goes_on(self.delayq_hold)

    def _is_kept(self, error: BaseException | None) -> bool:
        """Whether its task runs again, by this message or another one."""
        comes_again = self._delayq_requeued or not self.acknowledged  # type: ignore[attr-defined]
        if comes_again or self._already_cancelled:  # type: ignore[attr-defined]
            return True
        return self._delayq_sent_again or is_replaced(error)


def _retry_before(error: BaseException | None) -> Retry | None:
    """Return the retry that was sent before a run ended with *error*, if any.

    Without its result backend, Celery raises that backend's error while it handles the ``Retry``.
    """
    while error is not None and not isinstance(error, Retry):
        error = error.__context__
    return error


@lru_cache
def _watched(base: Any) -> type:
    return type(base.__name__, (_Watched, base), {})

"""Reports to the store that a run which holds a unique key has begun, goes on, or has ended.

    received --> accepted --> success ------------------------------------> free
        |           |    +--> failure, Ignore, Reject, ------------------> free
        |           |    |    time limit, lost child, no word at all
        |           |    '--> Retry, replaced, requeued, not acknowledged -> held
        |           '-------> acknowledged: held while the worker says so; else for `ms`
        |--> revoked, expired --------------------------------------------> free
        '--> refused: unknown task, unreadable body; held if leaf unknown keeps it -> free

A run that goes on after ``self.retry(throw=False)`` frees its key, although the retry is still to
come. If Celery raises at the end, as its result backend is away, the key is free after an
acknowledged message, and held after one that the broker delivers again. Of two runs of one
message, the one that ends first frees the key.

All of this shows in the worker's main process, whatever its pool; a child that dies is seen there
as well. A key is freed only after its message was acknowledged, so that no redelivery finds it
free. It is freed even if Celery raises on the way there, as it does without its result backend.

The worker's own loop does not wait for the store: a thread sends the words. While the store is
away, the thread tries again; a word that is lost after all costs no more than the rest of the time
for which the key is held.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery import Celery, bootsteps
from celery.exceptions import Retry
from celery.signals import task_received, task_revoked, worker_shutdown

from ..core import clock
from ..core.errors import DelayQError
from ..core.libraries import Feature, works
from ..core.message.headers import HOLD_HEADER, Hold, is_replaced, ms_until
from ..core.services import Services, find
from ..core.store.keys import shard_of
from ..core.text import logger_of
from ..core.threads import OwnThread

logger = logger_of(__name__)

Word = tuple[str, str, str, int, int]  # id, key, delivery, ms, lease; see hold.lua

MOST_KEPT = 100_000  # words; further ones push out the oldest
AT_A_TIME = 100
AGAIN = 1.0  # seconds between two tries
# Seconds for which a run holds its key if its worker does not say again that it goes on. A failover
# of the store takes less; a worker that is away for longer counts as gone.
LEASE = 600.0
RENEW = 120.0  # seconds between two such words
STOP_WITHIN = 5.0  # seconds that a worker which stops waits for the last words
_RETRY = f"{Retry.__module__}.{Retry.__name__}: "  # in a child's traceback

# What a consumer does with a message that becomes no task; each ends with ack or reject.
_REFUSALS = ("on_decode_error", "on_invalid_task", "on_unknown_task")


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
        # The sender of a task that this app does not have is its name.
        is_ours = getattr(sender, "app", None) is app
        hold = is_ours and Hold.of(request.get(HOLD_HEADER), request.id)
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

"""Sends signals and events about what happens to tasks.

    a step --> hooks ---> celery_delayq.signals
                     ---> celery.signals.task_revoked, as if a worker had sent it
                     ---> events: task-sent, task-revoked, for Flower and ``celery events``
    a retry that is cancelled before its worker stored RETRY ---> REVOKED

``celery_delayq/signals.py``, which users import, has the signals themselves.

Events go through Celery's own dispatcher, as a worker's do, in lists. Each process keeps a
connection for each kind: those in the app's pool have no time limit, and the call under way may
hold the last. If the broker is down or hangs, a call takes some two seconds longer at most, and
calls in the next five seconds take no longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from celery import Celery
from celery.app.task import Context, Task
from celery.signals import task_retry, task_revoked
from celery.utils.nodenames import anon_nodename, gethostname, nodename
from celery.utils.saferepr import saferepr
from kombu import Queue
from kombu.utils.json import loads

from ..core import clock
from ..core.clock import from_ms
from ..core.hooks import Hooks, actor
from ..core.message.body import body_of, message_body
from ..core.message.outgoing import Route
from ..core.servers.pool import PerProcess
from ..core.services import find, services_of
from ..core.store import Cancelled, NewEntry, Outcome
from ..core.text import logger_of
from ..signals import (
    task_cancelled,
    task_dead,
    task_edited,
    task_handed_over,
    task_rescheduled,
    task_scheduled,
    task_skipped,
    task_undone,
)

__all__ = ["hooks", "set_up"]

logger = logger_of(__name__)

TIMEOUT = 1.0  # seconds that the broker may take to connect, or to take a list of events
IDLE = 10.0  # seconds without use after which a connection may be dead
AGAIN = 5.0  # seconds without events after the broker failed to take them
LIST = 100  # events in one message
SENT, REVOKED = "task-sent", "task-revoked"
# Monitors take the sender of any event but task-sent for a worker, so there is one for each host.
NODE = "delayq"

Fields = Mapping[str, Any]

# Attributes of a running task's request: its next run is scheduled, or gave way to another task.
_RETRIED, _GAVE_WAY = "delayq_retried", "delayq_gave_way"
_RECEIVERS, _SENDS_EVENTS = attrgetter("receivers"), attrgetter("conf.task_send_sent_event")


def hooks(app: Celery) -> Hooks:
    """Return the hooks that notify the listeners to *app*'s tasks."""
    telling = _Telling(app)
    return Hooks(
        scheduled=telling.scheduled,
        rescheduled=telling.rescheduled,
        edited=telling.edited,
        cancelled=telling.cancelled,
        undone=telling.undone,
        gave_way=telling.gave_way,
        skipped=telling.skipped,
        handed_over=telling.handed_over,
        dead=telling.dead,
        # Plain look-ups: without a listener, a step enters no function here.
        hears_scheduled=(
            partial(_RECEIVERS, task_scheduled),
            partial(attrgetter("current_worker_task"), app),
            partial(_SENDS_EVENTS, app),
        ),
        hears_cancelled=(
            partial(_RECEIVERS, task_cancelled),
            partial(_RECEIVERS, task_revoked),
            partial(_SENDS_EVENTS, app),
        ),
        hears_messages=partial(_RECEIVERS, task_revoked),
        hears_handed_over=_hears_handed_over,
    )


def _hears_handed_over() -> bool:
    return bool(task_handed_over.receivers)


class _Telling:
    """Reports what happens to one app's tasks. A signal logs the errors of its receivers."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._events = Events(app)

    def scheduled(self, entries: Sequence[tuple[NewEntry, int]]) -> None:
        running: Task | None = self._app.current_worker_task
        for new, due_ms in entries:
            if running is not None and running.request.id == new.task_id:
                _note_scheduled(running)
            if task_scheduled.receivers:
                task_scheduled.send(
                    self._app, task_id=new.task_id, due=from_ms(due_ms), actor=actor()
                )
        if self._app.conf.task_send_sent_event:
            self._events.sent(entries)

    def rescheduled(self, task_id: str, due_ms: int) -> None:
        if task_rescheduled.receivers:
            task_rescheduled.send(self._app, task_id=task_id, due=from_ms(due_ms), actor=actor())

    def edited(self, task_id: str) -> None:
        task_edited.send(self._app, task_id=task_id, actor=actor())

    def cancelled(self, cancelled: Sequence[Cancelled]) -> None:
        for entry in cancelled if task_cancelled.receivers else ():
            uncertain = entry.outcome is Outcome.UNCERTAIN
            task_cancelled.send(
                self._app,
                task_id=entry.task_id,
                reason=entry.reason,
                uncertain=uncertain,
                actor=actor(),
            )
        self._revoked(cancelled)

    def undone(self, tasks: Sequence[tuple[str, int]]) -> None:
        for task_id, due_ms in tasks if task_undone.receivers else ():
            task_undone.send(self._app, task_id=task_id, due=from_ms(due_ms), actor=actor())

    def gave_way(self, cancelled: Sequence[Cancelled]) -> None:
        running: Task | None = self._app.current_worker_task
        for entry in cancelled:
            if running is not None and running.request.id == entry.task_id:
                _note_gave_way(running)
        self._revoked(cancelled)

    def skipped(self, task_id: str, reason: str) -> None:
        task_skipped.send(self._app, task_id=task_id, reason=reason)
        if self._app.conf.task_send_sent_event:
            self._events.revoked([task_id])

    def handed_over(self, task_ids: list[str]) -> None:
        task_handed_over.send(self._app, task_ids=task_ids)

    def dead(self, task_id: str, reason: str) -> None:
        task_dead.send(self._app, task_id=task_id, reason=reason)

    def _revoked(self, cancelled: Sequence[Cancelled]) -> None:
        for entry in cancelled if task_revoked.receivers else ():
            if entry.message:
                _send_revoked(self._app, entry)
        if self._app.conf.task_send_sent_event:
            self._events.revoked([entry.task_id for entry in cancelled])


def _send_revoked(app: Celery, cancelled: Cancelled) -> None:
    """Send the signal as a worker does, but in the process that cancelled."""
    try:
        request = _request_of(app, cancelled.message)
        # The sender of a task that this app does not have is its name.
        sender = app.tasks.get(request.task, request.task)
        task_revoked.send(
            sender=sender, request=request, terminated=False, signum=None, expired=False
        )
    except Exception:
        logger.warning("task %s: task_revoked could not be sent", cancelled.task_id, exc_info=True)


def _request_of(app: Celery, message: bytes) -> Context:
    headers, properties, body = message_body(message, app.conf.accept_content)
    if isinstance(body, dict):  # protocol 1
        return Context({**headers, **properties, **body})
    # Content that the app does not accept stays unread.
    args, kwargs, embedded = body or (None, None, None)
    call: dict[str, Any] = {"args": args, "kwargs": kwargs}
    return Context({**headers, **properties, **(embedded or {}), **call})


class Events:
    """Sends events for one app, from any thread or process."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = PerProcess(threading.Lock)
        self._kept = PerProcess(dict[str, tuple[float, Any]])  # kind -> last use, dispatcher
        self._again = 0.0  # when to try the broker again, by the monotonic clock

    def sent(self, entries: Sequence[tuple[NewEntry, int]]) -> None:
        """Send that entries were scheduled, each with its due time in ms."""
        self._send(SENT, [_sent(self._app, *entry) for entry in entries])

    def revoked(self, task_ids: Iterable[str]) -> None:
        """Send that tasks will not run."""
        how = {"terminated": False, "signum": None, "expired": False}
        self._send(REVOKED, [{"uuid": task_id, **how} for task_id in task_ids])

    def _send(self, kind: str, events: Sequence[Fields]) -> None:
        if not events or clock.monotonic() < self._again:
            return
        lock = self._lock.get()
        if not lock.acquire(timeout=TIMEOUT):
            return  # the broker hangs, and another thread waits for it
        try:
            dispatcher = self._dispatcher(kind)
            for fields in events:
                dispatcher.send(kind, **fields)
            dispatcher.flush(errors=False)
        except Exception as error:
            self._let_go(kind)
            self._again = clock.monotonic() + AGAIN
            logger.warning(
                "sending no events to the %s of %s for %.0f s: %r",
                *services_of(self._app).named_broker, AGAIN, error,
            )  # fmt: skip
        finally:
            lock.release()

    def _dispatcher(self, kind: str) -> Any:
        """Return Celery's dispatcher, on a connection that is kept until it idles too long."""
        used, dispatcher = self._kept.get().get(kind, (0.0, None))
        now = clock.monotonic()
        if dispatcher is None or now - used > IDLE:
            self._let_go(kind)
            dispatcher = self._connected(kind)
        self._kept.get()[kind] = now, dispatcher
        return dispatcher

    def _let_go(self, kind: str) -> None:
        _, dispatcher = self._kept.get().pop(kind, (0.0, None))
        if dispatcher is not None:
            with suppress(Exception):  # one that hangs cannot close properly
                dispatcher.connection.collect()

    def _connected(self, kind: str) -> Any:
        # Of no use to a process that sends no events.
        from ..core.handover.publishers import bounded, connect

        connection = bounded(self._app.connection_for_write(), TIMEOUT, TIMEOUT)
        try:
            connect(connection, TIMEOUT)
            return self._app.events.Dispatcher(
                connection,
                hostname=anon_nodename() if kind == SENT else nodename(NODE, gethostname()),
                buffer_while_offline=False,
                buffer_group=frozenset({"task"}),
                buffer_limit=LIST,
            )
        except Exception:
            with suppress(Exception):  # one that hangs cannot close properly
                connection.collect()
            raise


def _sent(app: Celery, new: NewEntry, due_ms: int) -> Fields:
    """The fields of Celery's own event, read from the message."""
    envelope = loads(new.record.message(new.task_id, due_ms))
    headers = envelope["headers"]
    known = {"root_id": headers.get("root_id"), "parent_id": headers.get("parent_id")}
    if "task" not in headers:  # protocol 1, which has neither
        headers, known = body_of(envelope, app.conf.accept_content) or {}, {}
        headers["argsrepr"] = saferepr(tuple(headers.get("args") or ()))
        headers["kwargsrepr"] = saferepr(headers.get("kwargs"))
    info = envelope["properties"]["delivery_info"]
    return {
        "uuid": new.task_id,
        **known,
        "name": headers.get("task"),
        "args": headers.get("argsrepr"),
        "kwargs": headers.get("kwargsrepr"),
        "retries": headers.get("retries", 0),
        "eta": from_ms(due_ms).isoformat(),
        "expires": headers.get("expires"),
        "queue": _queue_of(new, info),
        "exchange": info["exchange"],
        "routing_key": info["routing_key"],
    }


def _queue_of(new: NewEntry, info: Mapping[str, str]) -> str | None:
    """The queue that it was sent to; ``None`` if it was sent to an exchange without one."""
    if not info["exchange"]:
        return info["routing_key"]
    declared = Route.parse(new.record.header.partition(b":")[2].decode()).declare
    return next((entity.name for entity in declared if isinstance(entity, Queue)), None)


def set_up(_app: Celery) -> None:
    """Let a worker that has stored RETRY check whether the retry is cancelled already."""
    task_retry.connect(_retried, dispatch_uid=__name__)


def _note_scheduled(running: Task) -> None:
    """Note that the next run of this running task is scheduled."""
    setattr(running.request, _RETRIED, True)
    setattr(running.request, _GAVE_WAY, False)


def _note_gave_way(running: Task) -> None:
    """Note that the next run of this running task is not, as another task was kept."""
    setattr(running.request, _GAVE_WAY, not getattr(running.request, _RETRIED, False))


def _retried(sender: Task, request: Context, **_: Any) -> None:
    """Store REVOKED again for a retry that was cancelled before the worker stored RETRY.

    A cancel after this check stores REVOKED after RETRY by itself. A retry that was not scheduled,
    as another task with its key was kept, is REVOKED too.
    """
    services = find(sender.app)
    if services is None or request.ignore_result:
        return
    gave_way = getattr(request, _GAVE_WAY, False)
    if not gave_way and not getattr(request, _RETRIED, False):
        return
    try:
        if gave_way or services.entries.cancelled_ms_ago(request.id) is not None:
            # The cancel has notified its chord, which counts each part once.
            context = Context({**vars(request), "chord": None})
            why = "kept another" if gave_way else "cancelled"
            sender.backend.mark_as_revoked(request.id, why, request=context)
    except Exception:
        logger.warning("task %s: REVOKED could not be stored", request.id, exc_info=True)

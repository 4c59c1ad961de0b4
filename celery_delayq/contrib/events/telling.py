"""Reports what happens to tasks: by this package's signals, Celery's ``task_revoked``, and events.

a step --> Hooks --> Telling ---> celery_delayq.signals
                             ---> celery.signals.task_revoked, as if a worker had sent it
                             ---> events: task-sent, task-revoked
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from celery import Celery
from celery.app.task import Context, Task
from celery.signals import task_revoked

from ...core.clock import from_ms
from ...core.hooks import Hooks, actor
from ...core.message.body import message_body
from ...core.store import Cancelled, NewEntry, Outcome
from ...core.text import logger_of
from ...signals import (
    task_cancelled,
    task_dead,
    task_edited,
    task_handed_over,
    task_rescheduled,
    task_scheduled,
    task_skipped,
    task_undone,
)
from .retries import note_gave_way, note_scheduled
from .sending import Events

logger = logger_of(__name__)


_RECEIVERS, _SENDS_EVENTS = attrgetter("receivers"), attrgetter("conf.task_send_sent_event")


def hooks(app: Celery) -> Hooks:
    """Return the hooks that notify the listeners to *app*'s tasks."""
    telling = Telling(app)
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


class Telling:
    """Reports what happens to one app's tasks. A signal logs the errors of its receivers."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._events = Events(app)

    def scheduled(self, entries: Sequence[tuple[NewEntry, int]]) -> None:
        running: Task | None = self._app.current_worker_task
        for new, due_ms in entries:
            if running is not None and running.request.id == new.task_id:
                note_scheduled(running)
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
                note_gave_way(running)
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


def _hears_handed_over() -> bool:
    return bool(task_handed_over.receivers)


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

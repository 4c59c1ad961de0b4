"""Forgets what the result backend and this process have of an id that is used again.

An id that a caller chose may have had a task before. Its ``REVOKED`` or its result would be taken
for the new task's, and Celery never replaces a ``SUCCESS`` that a key-value backend has.

    ids --> backend: a state? -- none --> nothing to do
                         '------ one ---> deleted; in this process: cache, received messages
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from celery import states

from .. import clock
from ..leaves import leaf
from ..message.headers import LAUNCH
from ..message.outgoing import OutgoingMessage
from ..services import Services
from ..text import logger_of

logger = logger_of(__name__)

RESTS = 30.0  # seconds in which a backend that failed is not asked again
MOST_RECEIVED = 100  # messages to take from the backend's connection, at most

_LENGTH, _VERSION = 36, 14  # of an id made by Celery, and the place of its "4"

Past = dict[str, dict[str, Any]]  # id -> what the backend had


def is_chosen(task_id: str) -> bool:
    """Whether an id is none that Celery makes, which is random and has no past."""
    return len(task_id) != _LENGTH or task_id[_VERSION] != "4"


def forget(services: Services, task_ids: Iterable[str]) -> Past:
    """Forget the states of ids that are about to be scheduled; return them.

    It happens before: afterwards the new task may have stored its own. Never raises. A backend that
    fails costs what its own retries cost, and is then left alone for a while.
    """
    backend, past = services.app.backend, Past()
    rests = clock.monotonic() < services.backend_rests_until
    if rests or not services.has_backend or _is_rpc(backend):
        return past
    try:
        for task_id in task_ids:
            backend._cache.pop(task_id, None)
            had = backend.get_task_meta(task_id, cache=False)
            if had["status"] != states.PENDING:
                past[task_id] = had
                # Not `forget`, which stops this process from listening for running tasks.
                backend._forget(task_id)
                _drop_received(backend, task_id)
    except Exception as error:
        services.backend_rests_until = clock.monotonic() + RESTS
        logger.warning("ids that are used again keep their old results: %s", repr(error))
    return past


def of_message(services: Services, task_id: str, message: OutgoingMessage) -> Past:
    """As :func:`forget`, for a task, or the parts of a canvas, about to be scheduled."""
    if message.headers.get("task") == LAUNCH:
        return forget(services, leaf("canvas").task_ids(message.payload))
    return {} if message.headers.get("ignore_result") else forget(services, [task_id])


def remember(services: Services, past: Past) -> None:
    """Store the states again of ids that were not scheduled after all."""
    for task_id, had in past.items():
        with suppress(Exception):
            services.app.backend.store_result(
                task_id, had["result"], had["status"], traceback=had.get("traceback")
            )


def _is_rpc(backend: Any) -> bool:
    """Whether results are messages to the caller, which are not kept."""
    return bool(backend.as_uri() == "rpc://")


def _drop_received(backend: Any, task_id: str) -> None:
    """Drop messages about the id that this process has received, but not read."""
    consumer = getattr(backend, "result_consumer", None)
    subscribed = getattr(consumer, "subscribed_to", None)
    if consumer is None or subscribed is None:
        return
    key = backend.get_key_for_task(task_id)
    for _ in range(MOST_RECEIVED):
        if key not in subscribed:  # Celery has read the message of its end
            break
        consumer.drain_events(timeout=0)
    while backend._pending_messages.take(task_id, None) is not None:
        pass

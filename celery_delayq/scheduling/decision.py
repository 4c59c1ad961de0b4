"""The decision whether a message that Celery makes is to be scheduled; it is made once.

options, eta --> request?  -- none --> Celery's own way
|
+--> a relative ``expires`` counts from the due time
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import celery.app.amqp

from .. import clock
from ..clock import from_ms
from ..errors import InvalidOption
from ..message.headers import EXPIRES_HEADER
from ..services import Services
from ..store import checked_id
from ..store.record import LAST_MS
from .request import Request, has_time, requested

# Places among the arguments of AMQP.as_task_v2. Celery fills them; a program may name them.
EXPIRES_AT = 8
_PLACES = {"task_id": 0, "name": 1, "countdown": 4, "eta": 5, "expires": EXPIRES_AT}

# Undocumented. If it is gone, `libraries` says so; an import of it would say less.
_TaskMessage: Any = getattr(celery.app.amqp, "task_message", tuple)


class DecidedMessage(_TaskMessage):
    """Celery's task message, and whether it is to be scheduled: with a request, or ``None``."""

    request: Request | None


def decided(
    services: Services, message: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Decide, once, whether a message is to be scheduled; *args* and *options* made it.

    A relative ``expires`` of such a message starts at the due time. (Celery starts it at the call,
    which can end a task's life before it is due.) Here, and not in the sender, because Celery asks
    the result backend in between.

    Raises:
        InvalidOption, InvalidDueTime: what asks for it cannot be honoured.
    """
    headers = message.headers
    given = {**options, **{name: args[at] for name, at in _PLACES.items() if at < len(args)}}
    request = requested(services, options, headers.get("eta"), given["name"])
    if request is not None:
        checked_id(given["task_id"])
        # A retry has one by itself: its task's default delay.
        if has_time(options) and not headers.get("retries"):
            _refuse_second_time(given)
        expires = given.get("expires")
        if isinstance(expires, (int, float)) and not isinstance(expires, bool):
            headers["expires"] = expiry_after(request.expected_due(), expires).isoformat()
            headers[EXPIRES_HEADER] = round(expires * 1000)
    if type(message) is not _TaskMessage:
        return message  # an AMQP class has messages of its own: the sender decides on these
    made: DecidedMessage = DecidedMessage._make(message)
    made.request = request
    return made


def _refuse_second_time(given: Mapping[str, Any]) -> None:
    """Raise InvalidOption where a call has a time of Celery's as well, which would not count."""
    for name in ("countdown", "eta"):
        value = given.get(name)
        if value is not None:
            raise InvalidOption(name, value, "none beside the time that the task is scheduled for")


def expiry_after(due: datetime, seconds: float) -> datetime:
    """So many seconds after *due*; the last time that can be, where that is too late."""
    last = from_ms(LAST_MS)
    try:
        return min(due + timedelta(seconds=seconds), last)
    except OverflowError:  # Celery could add it to now, but the due time may be centuries later
        return last


def count_expiry_from_now(message: Any) -> None:
    """Undo what ``decided`` made of a relative ``expires``."""
    expires_ms = message.headers.get(EXPIRES_HEADER)
    if expires_ms is not None:
        expiry = expiry_after(clock.utc_now(), expires_ms / 1000)
        message.headers["expires"] = expiry.isoformat()

"""The headers that this package adds to messages, all ``delayq_…``, and the name of a task."""

from __future__ import annotations

from typing import Any

#: When the task was due, in ms since 1970.
DUE_HEADER = "delayq_due"

#: The number of this delivery attempt. (Relayed messages only.)
ATTEMPT_HEADER = "delayq_attempt"

#: True: it may be a duplicate. (Relayed messages only.)
REDELIVERED_HEADER = "delayq_redelivered"

#: Names this delivery; a retry or a reschedule begins a new one. (Relayed messages only.)
HAND_OVER_HEADER = "delayq_hand_over"

#: Whether a worker drops a duplicate of it. (Also the name of the call's option.)
ONCE_HEADER = "delayq_once"

#: False: the task's `eta` is not captured. (Also the name of the call's option.)
CAPTURE_HEADER = "delayq_capture"

#: Of a task whose key is held until its run has finished: see :class:`~.hold.Hold`.
HOLD_HEADER = "delayq_hold"

#: How many ms after the due time the task expires. (Only until it is stored.)
EXPIRES_HEADER = "delayq_expires_ms"

#: The serializer of a message, if it is not the app's usual one. (Only within a worker.)
SERIALIZER_HEADER = "delayq_serializer"

#: How often the task has put itself off.
PUT_OFFS_HEADER = "delayq_put_offs"

#: The task that launches a scheduled canvas.
LAUNCH = "celery_delayq.launch"

#: Headers about one message only, which a retry must not copy.
OWN_HEADERS = (
    DUE_HEADER,
    ATTEMPT_HEADER,
    REDELIVERED_HEADER,
    HAND_OVER_HEADER,
    HOLD_HEADER,
    SERIALIZER_HEADER,
)


def foreign(headers: Any) -> Any:
    """Return *headers* without this package's, which are about one message: a retry copies all."""
    if not headers:
        return headers
    # Celery takes pairs, too.
    return {name: header for name, header in dict(headers).items() if name not in OWN_HEADERS}


def put_offs_in(headers: Any) -> int:
    """Return how often the task of a message, or of a request, has put itself off."""
    count = headers.get(PUT_OFFS_HEADER)
    # Any program may have written it.
    return count if type(count) is int and count > 0 else 0

"""What is this package's own in a message: its headers, all ``delayq_…``, and one task's name."""

from __future__ import annotations

from typing import Any

#: When the task was due, in ms since 1970.
DUE_HEADER = "delayq_due"

#: Which attempt at handing it over this is. (Of relayed messages.)
ATTEMPT_HEADER = "delayq_attempt"

#: True: it may be a second copy. (Of relayed messages.)
REDELIVERED_HEADER = "delayq_redelivered"

#: Names this hand-over; a retry, or a reschedule, begins another one. (Of relayed messages.)
HAND_OVER_HEADER = "delayq_hand_over"

#: Whether a second copy of it shall be dropped. (Also the option of a call that says so.)
ONCE_HEADER = "delayq_once"

#: False: the task is not held because of its `eta`. (Also the option of a call that says so.)
CAPTURE_HEADER = "delayq_capture"

#: How many ms after the due time the task expires. (On the way to the store only.)
EXPIRES_HEADER = "delayq_expires_ms"

#: The task of an entry that is a canvas: it applies the canvas.
LAUNCH = "celery_delayq.launch"

#: Headers that speak of one message, and must not be copied to a retry's.
OWN_HEADERS = (DUE_HEADER, ATTEMPT_HEADER, REDELIVERED_HEADER, HAND_OVER_HEADER)


def foreign(headers: Any) -> Any:
    """*headers* without those of this package, which speak of one message: a retry copies all."""
    if not headers:
        return headers
    return {name: value for name, value in headers.items() if name not in OWN_HEADERS}

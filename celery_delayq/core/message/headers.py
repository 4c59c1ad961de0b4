"""The headers of a message: this package's own, its identity, its expiry, its unique key.

A task's id does not identify a message: a retry has the same id, and a caller may use its own id
again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery import Celery
from celery.backends.base import Backend, DisabledBackend
from celery.exceptions import Ignore

from .. import clock
from ..clock import from_ms
from ..errors import InvalidDueTime, InvalidOption
from ..settings import written
from ..store.keys import checked_id, checked_name
from ..store.record import LAST_MS
from ..text import logger_of
from .body import options_after

logger = logger_of(__name__)


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

#: How often the task has deferred itself.
PUT_OFFS_HEADER = "delayq_put_offs"

#: Why it was put back into the store, as no worker knew its task: see ``contrib/unknown``.
UNKNOWN_HEADER = "delayq_unknown"

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
    UNKNOWN_HEADER,
)


def foreign(headers: Any) -> Any:
    """Return *headers* without this package's, which are about one message: a retry copies all."""
    if not headers:
        return headers
    # Celery takes pairs, too.
    return {name: header for name, header in dict(headers).items() if name not in OWN_HEADERS}


def put_offs_in(headers: Any) -> int:
    """Return how often the task of a message, or of a request, has deferred itself."""
    count = headers.get(PUT_OFFS_HEADER)
    # Any program may have written it.
    return count if type(count) is int and count > 0 else 0


def unknown_in(headers: Any) -> dict[str, Any]:
    """Return what the header of a task that no worker knew says; empty without one.

    ``why``: the reason; ``since``: when a worker met it first, ms; ``times``: how many did.
    """
    given = headers.get(UNKNOWN_HEADER)
    types = {"why": str, "since": int, "times": int}
    # Any program may have written it.
    is_one = isinstance(given, dict) and all(
        type(given.get(name)) is kind and (kind is str or 0 <= given[name] <= LAST_MS)
        for name, kind in types.items()
    )
    return {name: given[name] for name in types} if is_one else {}


#: A standard property of AMQP, the only one that names a message for good.
_MESSAGE_ID = "message_id"


def identity_of(task_id: Any, headers: Any, properties: Any) -> tuple[str, str] | None:
    """Return texts that no other message has, the task's id first; ``None`` if there are none.

    Args:
        task_id: The task's id.
        headers: The message's headers, or its task's request, which contains them.
        properties: The message's properties.
    """
    # All copies of a relayed message name the same delivery. kombu gives each message a tag, except
    # on AMQP; a message without either was sent by a process without a DelayQ.
    own = headers.get(HAND_OVER_HEADER) or tag_of(properties) or properties.get(_MESSAGE_ID)
    # Any program may have written these.
    return (task_id, own) if isinstance(task_id, str) and isinstance(own, str) else None


def tag_of(properties: Any) -> Any:
    """Return kombu's tag of a message, the same at each delivery; ``None`` on AMQP."""
    # On SQS, kombu's tag is the receipt, and each delivery has another.
    received = _received_from_sqs(properties.get("delivery_info"))
    return received["MessageId"] if received else properties.get("delivery_tag")


def was_redelivered(info: Any) -> bool:
    """Whether the broker says that it has delivered a message before.

    Args:
        info: The message's ``delivery_info``.
    """
    # Without a hub, the oldest kombu does not ask SQS for this count.
    facts = (_received_from_sqs(info) or {}).get("Attributes", {})
    times = int(facts.get("ApproximateReceiveCount", 1))
    return times > 1 or bool((info or {}).get("redelivered"))


def may_come_again(message: Any) -> bool:
    """Whether a received message may have been delivered before."""
    marked = message.headers.get(REDELIVERED_HEADER)
    return bool(marked) or was_redelivered(message.delivery_info)


def _received_from_sqs(info: Any) -> Any:
    """Return SQS's own data of a message that it delivered."""
    return (info or {}).get("sqs_message")


def give_identity(properties: dict[str, Any]) -> None:
    """Add a name to the properties of a message for AMQP."""
    properties.setdefault(_MESSAGE_ID, str(uuid.uuid4()))


_LAPSED = "task %s: due at %s, but expires at %s: no worker will run it%s"
_FORGOTTEN = (
    "task %s: waits for %.0f s, but the result backend keeps its chord for %.0f s, so the chord's "
    "body may never run; set %s to at least %d, plus the time that the task runs"
)


def expiry_after(due: datetime, seconds: float) -> datetime:
    """Return *due* plus some seconds, or the last possible time if that is too late."""
    last = from_ms(LAST_MS)
    try:
        return min(due + timedelta(seconds=seconds), last)
    except OverflowError:  # Celery could add it to now, but the due time may be centuries later
        return last


def warn_of_expiry(tasks: Iterable[tuple[str, int, str]]) -> None:
    """Warn about tasks that expire before they are due: workers will drop them.

    Args:
        tasks: For each task its id, its due time in ms, and the ``expires`` of its message.
    """
    lapsed = [task for task in tasks if _expires_first(*task[1:])]
    if lapsed:
        (task_id, due_ms, expires), more = lapsed[0], len(lapsed) - 1
        expiry = clock.celery_time(expires).isoformat()
        rest = f"; the same applies to {more} more" if more else ""
        logger.warning(_LAPSED, task_id, from_ms(due_ms).isoformat(), expiry, rest)


def _expires_first(due_ms: int, expires: str) -> bool:
    try:
        return bool(expires) and clock.celery_time(expires) <= from_ms(due_ms)
    except InvalidDueTime:
        return False  # workers cannot read this time either


def warn_of_chord(app: Celery, message: Any, seconds: float, warned: dict[str, float]) -> None:
    """Warn if the result backend forgets a chord before one of its parts is due.

    Args:
        app: The app that sends the part.
        message: The part's message, as Celery made it; of any other task, there is no warning.
        seconds: How long after the chord's start the part is due.
        warned: The longest wait that was warned of, by the name of the task. Only a longer one is
            warned of again, so that a chord of a thousand parts causes one line.
    """
    _, _, embed = message.body
    if not (embed.get("chord") or any(after.get("chord") for after in options_after(embed))):
        return
    setting, keeps = _chord_expiry(app.backend)
    name, least = message.headers["task"], int(seconds) + 1
    if keeps and least > warned.get(name, keeps):
        warned[name] = least
        task_id, setting = message.headers["id"], written(app.conf, setting)
        logger.warning(_FORGOTTEN, task_id, seconds, keeps, setting, least)


def _chord_expiry(backend: Any) -> tuple[str, float]:
    """Return the setting that says how long a backend keeps a chord, and the seconds; 0: no end."""
    if isinstance(backend, DisabledBackend):
        return "", 0
    setting, expires = "result_expires", backend.expires
    # Since Celery 5.7. A backend that counts no parts looks at their results instead.
    if hasattr(backend, "chord_expires") and (
        backend.implements_incr or type(backend).apply_chord is not Backend.apply_chord
    ):
        setting, expires = "result_chord_expires", backend.chord_expires
    if isinstance(expires, timedelta):
        expires = expires.total_seconds()
    return setting, float(expires or 0)


_REPLACED = "Replaced by new task"  # the words of Celery's Task.replace


class Hold(NamedTuple):
    """A run holds a key until it has finished.

    Attributes:
        id: The task's id.
        key: The key.
        delivery: Names the delivery; another one of the same task holds the key anew.
        ms: How long it holds after the hand-over, or a worker's last word.
    """

    id: str
    key: str
    delivery: str
    ms: int

    @classmethod
    def of(cls, header: Any, task_id: Any) -> Hold | None:
        """Read the header of a task's message; ``None`` if it has none, or another task's."""
        # Any program may have written it.
        try:
            hold = cls(**header)
            checked_id(hold.id)
            checked_name("key", hold.key)
            checked_name("delivery", hold.delivery)
        except (TypeError, InvalidOption):
            return None
        is_span = type(hold.ms) is int and 0 < hold.ms <= clock.MAX_DUE_MS
        return hold if is_span and hold.id == task_id else None


def continues(headers: Mapping[str, Any], sender: Mapping[str, Any]) -> bool:
    """Whether a message continues the run that sends it: by a retry, a Defer, or a replacement.

    Each of them counts one more. Any other message with the run's id is a task like any other, and
    meets the key's holder.

    Args:
        headers: The message's.
        sender: The request of the run; empty in a worker's main process, which sends tasks again
            whose child was lost.
    """
    return any(
        _count(headers.get(name)) > _count(sender.get(name))
        for name in ("retries", "replaced_task_nesting", PUT_OFFS_HEADER)
    )


def hand_on(hold: Any, run_id: Any, body: Any) -> None:
    """Give the hold of a run to the part of a canvas that gets its id, as it replaces the run.

    Celery's ``Task.replace`` sends the canvas's first parts, whose ids are new; in their messages
    are the rest of a chain and the body of a chord. The part sends the hold as its header.

    Args:
        hold: The hold, as the run's message has it.
        run_id: The run's.
        body: Of a message: arguments, and what goes with them: the rest of its chain, its chord.
    """
    embed = body if isinstance(body, dict) else body[2]
    for options in options_after(embed):
        if options.get("task_id") == run_id:
            options["headers"] = {**(options.get("headers") or {}), HOLD_HEADER: hold}


def _count(value: object) -> int:
    return value if type(value) is int else 0


def ms_until(when: datetime | str | float | None) -> int:
    """Return ms until a retry's time, as Celery's ``Retry`` has it: a time, or seconds.

    A task can raise a ``Retry`` of its own with anything in it; that counts as now.
    """
    try:
        if isinstance(when, (datetime, str)):
            ahead = clock.celery_time(when) - clock.utc_now()
            return max(0, clock.by(ahead).ms)
        return max(0, clock.by(when or 0).ms)
    except InvalidDueTime:
        return 0


def is_replaced(error: object) -> bool:
    """Whether a run ended with this as its task was replaced, by another one with its id."""
    return isinstance(error, Ignore) and error.args[:1] == (_REPLACED,)

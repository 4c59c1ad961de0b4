"""The one place where a message is complete and not yet published.

Celery builds its sender in ``AMQP._create_task_sender``. Everything that sends a task ends
there: ``apply_async``, ``send_task``, signatures, retries, every part of a canvas.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from celery.app.amqp import AMQP
from celery.utils.imports import symbol_by_name
from kombu import Producer
from kombu.utils.functional import retry_over_time

from ..errors import DelayQError, InvalidOption, StoreUnavailable
from ..handover.publishers import ATTEMPT_HEADER, REDELIVERED_HEADER
from ..integration import registry
from ..message import native_delay
from ..message.outgoing import (
    Captured,
    HoldingProducer,
    capturing_producer,
    list_key,
    needs_relay,
)
from ..message.route import relay_route
from ..store import Entries, New
from ..store.record import DUE_HEADER, EXPIRES_HEADER, Draft, destination_for
from .request import OPTION, PREFIX, Hold, Ready, asked_for, captured

if TYPE_CHECKING:
    from ..integration.delayq import DelayQ

MANY_TEMPLATES = 1000  # names of templates that a process remembers
LONGEST_ID = 512  # bytes; a task id is part of every index
EXPIRES_AT = 8  # place of `expires` among the positional arguments of AMQP.as_task_v1 and _v2
_OWN_HEADERS = (DUE_HEADER, ATTEMPT_HEADER, REDELIVERED_HEADER)
_ONCE = {"max_retries": 0}
_RETRY_POLICY = ("max_retries", "interval_start", "interval_step", "interval_max")

Send = Callable[..., Any]


class Holding:
    """What an ``AMQP`` class needs to hold what asks to be held.

    ``is_celerys_own``: the class beneath is Celery's, and makes of alike calls alike messages.
    """

    app: Any
    is_celerys_own = False

    def _create_task_sender(self) -> Send:
        return Sender(registry.of(self.app), super()._create_task_sender())  # type: ignore[misc]

    def as_task_v1(self, *args: Any, **options: Any) -> Any:
        message = super().as_task_v1(*args, **options)  # type: ignore[misc]
        return _prepared(registry.of(self.app), message, args, options)

    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        message = super().as_task_v2(*args, **options)  # type: ignore[misc]
        return _prepared(registry.of(self.app), message, args, options)


class HoldingAMQP(Holding, AMQP):
    """Celery's own ``AMQP`` that holds."""

    is_celerys_own = True


def holding_amqp(base: Any) -> Any:
    """*base*, the app's AMQP class, that holds; by name where it can be, as apps get pickled."""
    base = symbol_by_name(base)
    if base is AMQP:
        return f"{__name__}:{HoldingAMQP.__name__}"
    return type(base.__name__, (Holding, base), {})


class Sender:
    """Celery's ``send_task_message``: holds a message, or passes it on."""

    def __init__(self, delayq: DelayQ, send: Send) -> None:
        self._delayq = delayq
        self._send = send
        self._seen: set[bytes] = set()

    @cached_property
    def _capturing(self) -> Producer:
        return capturing_producer(self._delayq.broker.options)

    def __call__(self, producer: Any, name: str, message: Any, **options: Any) -> Any:
        # What delay_until brings was checked when the message was made.
        hold = options.get(OPTION) or _hold_for(self._delayq, message, options)
        theirs = {key: value for key, value in options.items() if not key.startswith(PREFIX)}
        theirs["headers"] = _foreign(theirs.get("headers"))
        if hold is None:
            message.headers.pop(EXPIRES_HEADER, None)
            return self._send(producer, name, message, **theirs)
        return self._hold(hold, name, message, theirs)

    def _hold(self, hold: Hold, name: str, message: Any, options: dict[str, Any]) -> None:
        # The receiving worker would hold a message with an eta once more, in its memory.
        _envelope(message)["eta"] = None
        message = message._replace(sent_event=None)
        task_id = message.properties["correlation_id"]
        native_delay.undo(options, self._delayq.app.amqp)
        # Celery counted it from now; whoever publishes the message counts anew.
        options.pop("expiration", None)
        retry, policy = self._retry(options)

        def keep(message: Captured) -> None:
            self._store(task_id, hold, message, policy if retry else _ONCE)

        # Retrying is this sender's: there is no broker connection here that Celery could revive.
        self._send(HoldingProducer(self._capturing, keep), name, message, retry=False, **options)

    def _store(self, task_id: str, hold: Hold, message: Captured, policy: dict[str, Any]) -> None:
        destination = self._destination(message)
        new = New(task_id, hold.when, self._draft(message, destination))
        if hold.collect is not None:
            hold.collect(Ready(new, message, destination, policy))
            return
        (answer,) = store(
            self._delayq.entries, [new], policy, supersede=self._delayq.is_running(task_id)
        )
        hold.due_ms = due_of(answer)

    def _destination(self, message: Captured) -> bytes:
        delayq = self._delayq
        options = delayq.broker.options
        key = None
        if delayq.broker.endpoint and not needs_relay(message):
            key = list_key(message.routing_key, message.properties.get("priority"), options)
        if key and delayq.store_is_broker:
            return destination_for("L", options.get("global_keyprefix", "") + key)
        return destination_for("R", relay_route(message, delayq.app.amqp.queues, key))

    def _draft(self, message: Captured, destination: bytes) -> Draft:
        draft = message.draft(destination, share=True)
        # A template is also what lets an expiry move with the due time.
        if draft.name is None or draft.name in self._seen or EXPIRES_HEADER in message.headers:
            return draft
        # Seen once, it may never come again, and then a template costs more than it saves.
        if len(self._seen) >= MANY_TEMPLATES:
            self._seen.clear()
        self._seen.add(draft.name)
        return message.draft(destination, share=False)

    def _retry(self, options: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        default, defaults = self._retry_defaults
        retry, policy = options.pop("retry", None), options.pop("retry_policy", None)
        wanted = default if retry is None else retry
        return wanted, _known({**defaults, **policy}) if policy else defaults

    @cached_property
    def _retry_defaults(self) -> tuple[bool, dict[str, Any]]:
        # Once, as Celery's sender does: a look-up in its configuration takes some microseconds.
        conf = self._delayq.app.conf
        return conf.task_publish_retry, _known(conf.task_publish_retry_policy)


def store(
    entries: Entries, new: Sequence[New], policy: Mapping[str, Any], *, supersede: bool = False
) -> list[int | DelayQError]:
    """Hold entries in one step, repeated as *policy* says while Redis does not answer.

    Returns:
        As :meth:`Entries.schedule`.
    """
    operation, attempts = os.urandom(4).hex().encode(), itertools.count()

    def schedule() -> list[int | DelayQError]:
        again = next(attempts) > 0
        return entries.schedule(new, operation=operation, again=again, supersede=supersede)

    if policy.get("max_retries") == 0:
        return schedule()
    answers: list[int | DelayQError] = retry_over_time(schedule, StoreUnavailable, **policy)
    return answers


def due_of(answer: int | DelayQError) -> int:
    """The due time in ms, or else the error raised, of what :func:`store` says of an entry."""
    if isinstance(answer, DelayQError):
        raise answer
    return answer


def _known(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: policy[name] for name in _RETRY_POLICY if name in policy}


def _envelope(message: Any) -> dict[str, Any]:
    """Where id, eta and expires are: the headers, or in protocol 1 the body."""
    where: dict[str, Any] = message.body if isinstance(message.body, dict) else message.headers
    return where


def _foreign(headers: dict[str, Any] | None) -> dict[str, Any] | None:
    # A retry copies the headers of the message it came from; ours speak of that one only.
    if not headers:
        return headers
    return {name: value for name, value in headers.items() if name not in _OWN_HEADERS}


def checked_id(task_id: str) -> str:
    """*task_id*, if it can be one.

    Raises:
        InvalidOption: not text, empty, or longer than 512 bytes.
    """
    try:
        size = len(task_id.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if not 0 < size <= LONGEST_ID:
        raise InvalidOption("task_id", task_id, f"text of 1 to {LONGEST_ID} bytes")
    return task_id


def _hold_for(delayq: DelayQ, message: Any, options: dict[str, Any]) -> Hold | None:
    zone = delayq.timezone
    return asked_for(options, zone) or captured(
        _envelope(message).get("eta"), delayq.settings, zone
    )


def _prepared(delayq: DelayQ, message: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Check what asks to be held, and let a relative ``expires`` start at the due time.

    Here, and not in the sender, because Celery asks the result backend in between. (Celery itself
    starts ``expires`` at the call, which ends a task's life before it is due.)
    """
    hold = _hold_for(delayq, message, options)
    if hold is None:
        return message
    checked_id(args[0])
    expires = args[EXPIRES_AT] if len(args) > EXPIRES_AT else options.get("expires")
    if isinstance(expires, (int, float)) and not isinstance(expires, bool):
        due = hold.expected_due()
        _envelope(message)["expires"] = (due + timedelta(seconds=expires)).isoformat()
        # In protocol 1 it stands in the body, and stays what it is if the task is moved.
        message.headers[EXPIRES_HEADER] = round(expires * 1000)
    return message

"""Decides whether a message that Celery makes is scheduled: by its call's options, or its eta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timezone
from typing import Any
from uuid import UUID

import celery.app.amqp

from .. import clock
from ..clock import after, at
from ..errors import InvalidDueTime, InvalidOption
from ..message.headers import CAPTURE_HEADER, EXPIRES_HEADER, expiry_after
from ..services import Services
from ..store import checked_id
from ..text import logger_of
from .options import AFTER, AT, LASTING, NAMES, PART, entry_options_of, own_options
from .request import Request

logger = logger_of(__name__)

# Places among the arguments of AMQP.as_task_v2. Celery fills them; a program may name them.
EXPIRES_AT = 8
_PLACES = {"task_id": 0, "name": 1, "countdown": 4, "eta": 5, "expires": EXPIRES_AT}

# Headers with ids. A UUID in them becomes text; Celery alone cannot send one by RabbitMQ.
_IDS = ("id", "root_id", "parent_id", "group")

_NO_SECOND = "none beside the time that the task is scheduled for"

# Undocumented. If it is gone, `libraries` says so; an import of it would say less.
_TaskMessage: Any = getattr(celery.app.amqp, "task_message", tuple)


class _DecidedMessage(_TaskMessage):
    """Celery's task message with the request that schedules it, or ``None``."""

    request: Request | None


def decide(services: Services, message: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Decide whether to schedule a message; *args* and *options* made it.

    A relative ``expires`` of such a message starts at the due time. (Celery starts it at the call,
    so a task may expire before it is due.) A naive one is UTC, as Celery's workers read it, and is
    made aware. This happens here and not in the sender, because Celery calls the result backend in
    between.

    Raises:
        InvalidOption, InvalidDueTime: an option is invalid.
    """
    headers = message.headers
    for name in _IDS:
        if isinstance(headers.get(name), UUID):
            headers[name] = str(headers[name])
    message.properties["correlation_id"] = headers["id"]
    given = {**options, **{name: args[at] for name, at in _PLACES.items() if at < len(args)}}
    part = options.get(PART)
    if part is not None:
        part.note(headers, given)
    # A retry always has a time: its task's default delay.
    beside = {} if headers.get("retries") else given
    request = request_of(services, options, headers.get("eta"), given["name"], beside)
    if request is not None:
        message.properties["correlation_id"] = checked_id(headers["id"])
        expires = given.get("expires")
        if isinstance(expires, (int, float)) and not isinstance(expires, bool):
            headers["expires"] = expiry_after(request.expected_due(), expires).isoformat()
            headers[EXPIRES_HEADER] = round(expires * 1000)
        elif expires:
            headers["expires"] = clock.celery_time(headers["expires"]).isoformat()
    if type(message) is not _TaskMessage:
        return message  # an AMQP class with messages of its own: the sender decides
    made: _DecidedMessage = _DecidedMessage._make(message)
    made.request = request
    return made


def request_of(
    services: Services,
    options: Mapping[str, Any],
    eta: str | None,
    task: str,
    beside: Mapping[str, Any] | None = None,
) -> Request | None:
    """Return the request to schedule a message: by its options or its eta; else ``None``.

    Args:
        services: The services of the sending app.
        options: The call's options.
        eta: The message's eta.
        task: The name of its task, whose attributes are the options' defaults.
        beside: Options that may have a second time, Celery's, which is an error.

    Raises:
        InvalidOption: an option of this package is unknown or invalid, or there are two times.
        InvalidDueTime: a value is no time.
    """
    times = own_options(options)
    of_entry = {name: times.pop(name) for name in NAMES if name in times}
    lasting = {name: times.pop(name) for name in LASTING if name in times}
    for name, value in lasting.items():
        if not isinstance(value, bool):
            raise InvalidOption(name, value, "true or false")
    tasks = services.app._tasks
    # `app.tasks` would finalize the app and make all tasks; a task that is called exists already.
    known = tasks.get(task) or services.app.tasks.get(task)
    request: Request | None = None
    if times:
        request = _by_option(services, times, beside or {})
    # A retry has the options of its call among its headers.
    elif eta and wants_capture(known, {**(options.get("headers") or {}), **lasting}):
        request = _by_eta(services, eta, task, is_asked=bool(of_entry))
    if request is not None:
        return replace(request, entry_options=entry_options_of(of_entry, known))
    if of_entry:
        name = next(iter(of_entry))
        raise InvalidOption(name, of_entry[name], f"a due time beside it: {AT} or {AFTER}")
    return None


def _by_option(services: Services, times: Mapping[str, Any], beside: Mapping[str, Any]) -> Request:
    if len(times) > 1:
        raise InvalidOption("time", dict(times), f"only one of {AT} and {AFTER}")
    ((name, value),) = times.items()
    if name == AT:
        request = Request(at(value, services.timezone))
    elif name == AFTER:
        request = Request(after(value))
    else:
        request = value
    for name in ("countdown", "eta"):
        if beside.get(name) is not None:
            raise InvalidOption(name, beside[name], _NO_SECOND)
    return request


def wants_capture(task: Any, options: Mapping[str, Any]) -> bool:
    """Return whether a task may be captured by its ``eta``.

    Args:
        task: The task, whose attribute is the default; ``None`` if it is not known.
        options: The call's options, among others.
    """
    return options.get(CAPTURE_HEADER, getattr(task, CAPTURE_HEADER, True)) is not False


def _by_eta(services: Services, eta: str, task: str, *, is_asked: bool) -> Request | None:
    settings = services.settings
    if not settings.capture_eta:
        return None
    try:
        when = at(clock.celery_time(eta), timezone.utc)
    except InvalidDueTime as error:
        if is_asked:
            raise
        logger.warning("a call of %s is left to Celery: its eta %s", task, error)
        return None
    if is_asked:  # it has options that only an entry can have, so Celery must not send it
        return Request(when)
    if not services.has_store:
        return None
    ahead = when.seconds_from(clock.utc_now())
    return Request(when, captured=True) if ahead >= settings.min_delay else None

"""What asks for a message to be scheduled instead of published, carried from call to sender.

It travels as an option of ``apply_async``, through the task, canvas and router code that every
other option passes, and is taken out where the message is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from dateutil.parser import isoparse

from .. import clock
from ..clock import When, after, at, from_ms
from ..errors import InvalidOption
from ..message.headers import CAPTURE_HEADER, ONCE_HEADER
from ..message.outgoing import OutgoingMessage
from ..services import Services
from ..store import Delivery, NewEntry
from .options import NAMES, PLAIN, Terms, terms_of

PREFIX = "delayq_"
_NEAR = "delay"  # what begins like this is meant for this package, and mistyped
OPTION = "delayq_request"
AT, AFTER = "delayq_at", "delayq_after"
ONCE, CAPTURE = ONCE_HEADER, CAPTURE_HEADER
LASTING = (ONCE, CAPTURE)  # options that travel on, as headers
_NAMES = (AT, AFTER, *LASTING, *NAMES)

# The ids of the messages that the call under way has sent, and not scheduled.
_sent: ContextVar[list[str] | None] = ContextVar("celery_delayq_sent", default=None)


@contextmanager
def watching() -> Iterator[list[str]]:
    """Collect the ids of what is sent meanwhile, where it should have been scheduled."""
    ids: list[str] = []
    token = _sent.set(ids)
    try:
        yield ids
    finally:
        _sent.reset(token)


def note_sent(task_id: str) -> None:
    """A message goes to the broker; whoever watches learns of it."""
    ids = _sent.get()
    if ids is not None:
        ids.append(task_id)


@dataclass(frozen=True)
class Ready:
    """An entry as the sender has it complete, and what it is made of.

    ``policy``: how often the store is asked again while it does not answer.
    """

    new: NewEntry
    message: OutgoingMessage
    destination: bytes
    policy: Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """When a message shall be due, on which terms, and who takes its entry.

    ``take``: ``None``: the store does.
    ``captured``: nobody asked for it; the message has an eta.
    ``delivery``: the message that a broker delivered, and that it is about.
    """

    when: When
    take: Callable[[Ready], object] | None = None
    captured: bool = False
    terms: Terms = PLAIN
    delivery: Delivery | None = None

    def entry(self, new: NewEntry) -> NewEntry:
        """*new*, as it was asked for."""
        return replace(self.terms.of(new), delivery=self.delivery)

    def expected_due(self) -> datetime:
        """The due time by this machine's clock; the store's own is in the receipt."""
        if self.when.mode == "at":
            return from_ms(self.when.ms)
        return clock.utc_now() + timedelta(milliseconds=self.when.ms)


def requested(
    services: Services, options: Mapping[str, Any], eta: str | None, task: str
) -> Request | None:
    """Whether a message is to be scheduled: asked for among its options, or captured by its eta.

    Args:
        services: Of the app that sends it.
        options: The call's.
        eta: The message's.
        task: The name of its task, whose attributes are defaults of the options.

    Raises:
        InvalidOption: an option of this package's that does not exist, or cannot be honoured; or
            more than one time.
        InvalidDueTime: not a time.
    """
    given = _own_options(options)
    said = {name: given.pop(name) for name in NAMES if name in given}
    known = _task_of(services.app, task)
    # A retry has the words of its call among its headers.
    words = {**(options.get("headers") or {}), **_words(given)}
    request = _asked_for(services, given) or (
        _captured(services, eta, bool(said)) if wants_capture(known, words) else None
    )
    if request is None:
        if said:
            name = next(iter(said))
            raise InvalidOption(name, said[name], f"a due time beside it: {AT} or {AFTER}")
        return None
    terms = terms_of(said, known)
    return request if terms is PLAIN else replace(request, terms=terms)


def wants_capture(task: Any, said: Mapping[str, Any]) -> bool:
    """Whether a task may be held because of its ``eta``.

    Args:
        task: Whose attribute says what holds where its call says nothing; ``None`` if not known.
        said: What the call said, among other things.
    """
    return said.get(CAPTURE, getattr(task, CAPTURE, True)) is not False


def _task_of(app: Celery, name: str) -> Any:
    # An app that is asked for its tasks makes all of them; a task that is called is there already.
    return app._tasks.get(name) or app.tasks.get(name)


def options_of_entry(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a call's options that :func:`terms_of` takes."""
    stamps = options.get("stamped_headers") or ()  # the user's own, which travel as options
    return {
        name: options[name]
        for name in NAMES
        if options.get(name) is not None and name not in stamps
    }


def _own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {
        name: value
        for name, value in options.items()
        if name.startswith(_NEAR) and value is not None
    }
    for stamp in options.get("stamped_headers") or ():
        given.pop(stamp, None)  # a header of the user's own, that travels as an option
    for name, value in given.items():
        if name not in (OPTION, *_NAMES):
            *others, last = _NAMES
            expected = f"no such option; there are {', '.join(others)} and {last}"
            raise InvalidOption(name, value, expected)
    return given


def has_time(options: Mapping[str, Any]) -> bool:
    """Whether a call brings a time by an option of this package's."""
    return not _own_options(options).keys().isdisjoint((AT, AFTER, OPTION))


def _words(given: dict[str, Any]) -> dict[str, bool]:
    """Those of the options that travel on, taken out."""
    words = {name: given.pop(name) for name in LASTING if name in given}
    for name, value in words.items():
        if not isinstance(value, bool):
            raise InvalidOption(name, value, "true or false")
    return words


def _asked_for(services: Services, given: dict[str, Any]) -> Request | None:
    if len(given) > 1:
        raise InvalidOption("time", given, f"only one of {AT} and {AFTER}")
    if AT in given:
        return Request(at(given[AT], services.timezone))
    if AFTER in given:
        return Request(after(given[AFTER]))
    return given.get(OPTION)


def _captured(services: Services, eta: str | None, is_asked: bool) -> Request | None:
    settings = services.settings if eta else None
    if not eta or not settings or not settings.capture_eta:
        return None
    when = at(isoparse(eta), services.timezone)
    if is_asked:  # what only an entry has: it must not be left to Celery
        return Request(when)
    ahead = when.ms / 1000 - clock.utc_now().timestamp()
    return Request(when, captured=True) if ahead >= settings.min_delay else None

"""The request to hold a message instead of publishing it, carried by Celery from call to sender.

It travels as an option of ``apply_async``, through the task, canvas and router code that every
other option passes, and is taken out where the message is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

from dateutil.parser import isoparse

from ..clock import When, after, at, from_ms
from ..errors import InvalidOption
from ..message.outgoing import Captured
from ..settings import Settings
from ..store import New

PREFIX = "delayq_"
OPTION = "delayq_hold"
AT, AFTER = "delayq_at", "delayq_after"


@dataclass(frozen=True)
class Ready:
    """An entry as the sender has it complete, and what it is made of."""

    new: New
    message: Captured
    destination: bytes
    policy: dict[str, Any]


class Hold:
    """When to hold until; learns the due time that the store settled on.

    With *collect*, the sender gives the entry there instead of storing it.
    """

    def __init__(self, when: When, collect: Callable[[Ready], None] | None = None) -> None:
        self.when = when
        self.collect = collect
        self.due_ms: int | None = None

    def expected_due(self) -> datetime:
        """The due time as this machine's clock would have it; the store's word is ``due_ms``."""
        if self.when.mode == "at":
            return from_ms(self.when.ms)
        return datetime.now(timezone.utc) + timedelta(milliseconds=self.when.ms)


def asked_for(options: Mapping[str, Any], zone: tzinfo) -> Hold | None:
    """The request among the options of a call, if there is one.

    Raises:
        InvalidOption: an option of this package's that does not exist, or more than one time.
        InvalidDueTime: not a time.
    """
    given = {
        name: value
        for name, value in options.items()
        if name.startswith(PREFIX) and value is not None
    }
    for name, value in given.items():
        if name not in (OPTION, AT, AFTER):
            raise InvalidOption(name, value, f"no such option; there are {AT} and {AFTER}")
    if len(given) > 1:
        raise InvalidOption("time", given, f"only one of {AT} and {AFTER}")
    if AT in given:
        return Hold(at(given[AT], zone))
    if AFTER in given:
        return Hold(after(given[AFTER]))
    return given.get(OPTION)


def captured(eta: str | None, settings: Settings, zone: tzinfo) -> Hold | None:
    """The request that an ``eta`` amounts to, where ``delayq_capture_eta`` says so."""
    if not settings.capture_eta or not eta:
        return None
    when = at(isoparse(eta), zone)
    ahead = when.ms / 1000 - datetime.now(timezone.utc).timestamp()
    return Hold(when) if ahead >= settings.min_delay else None

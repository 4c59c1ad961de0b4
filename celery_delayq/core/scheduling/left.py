"""Messages that the store does not take, and Celery sends as it would without this package.

    captured, or put off --> too large, or refused a moment ago --> Celery's sender    left
                  |
                  +--------> the store --> refuses, or does not answer --> the broker  published

A call with an option of ours is refused instead: a message cannot have a key, tags or a grace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import clock
from ..message import broker
from ..message.headers import (
    EXPIRES_HEADER,
    HAND_OVER_HEADER,
    HOLD_HEADER,
    REDELIVERED_HEADER,
    Hold,
    expiry_after,
    give_identity,
)
from ..text import logger_of

logger = logger_of(__name__)

SHORTEST = 5.0  # seconds without the store after it has refused a captured message
SHARE = 9  # times as long as the refusal took: callers wait for a tenth of the time at most


class Refusals:
    """Whether the store has refused a captured message a moment ago; shared by threads.

    A forked child inherits the time, which is as good there.
    """

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def is_recent(self) -> bool:
        """Whether captured messages do not go to the store now."""
        return clock.monotonic() < self._until

    def note(self, began: float) -> float:
        """Note a refusal of a call that began then; return for how many seconds it counts."""
        now = clock.monotonic()
        seconds = max(SHORTEST, SHARE * (now - began))
        self._until = now + seconds
        return seconds


@dataclass(frozen=True)
class Broker:
    """The way by which Celery would publish a message, noted before scheduling changes it.

    Attributes:
        producer: Celery's.
        options: Options of ``publish`` that differ.
        eta: The message's.
        hold: The key that its task holds.
        stands_for: The name of the message whose task puts itself off; or empty.
        names: Whether the message needs a name of its own.
    """

    producer: Any
    options: Mapping[str, Any]
    eta: str
    hold: Hold | None
    stands_for: str
    names: bool

    def publish(self, body: Any, options: dict[str, Any], *, uncertain: bool) -> Any:
        """Publish a complete message; *uncertain*: it may be in the store as well."""
        headers = options["headers"]
        leave(headers, self.eta)
        if self.hold is not None:
            headers[HOLD_HEADER] = self.hold._asdict()
        if uncertain:
            headers[REDELIVERED_HEADER] = True
            if self.stands_for:
                # If that message became an entry, workers drop this one.
                headers[HAND_OVER_HEADER] = self.stands_for
        if self.names:
            give_identity(options)
        return self.producer.publish(body, **{**options, **self.options})

    def publish_event(self, event: Any, options: dict[str, Any]) -> None:
        """Publish Celery's event that it sent the message."""
        retries = {name: self.options[name] for name in ("retry", "retry_policy")}
        self.producer.publish(event, **{**options, **retries})


def celerys(options: Mapping[str, Any], conf: Any) -> dict[str, Any]:
    """Return the options of ``publish`` that scheduling changes, as Celery makes them of a call's.

    Args:
        options: The call's, unchanged.
        conf: The app's configuration.
    """
    retry = options.get("retry")
    made: dict[str, Any] = {
        "retry": conf.task_publish_retry if retry is None else retry,
        "retry_policy": {**conf.task_publish_retry_policy, **(options.get("retry_policy") or {})},
    }
    names = ["expiration"]
    if broker.is_delayed(options):
        names += broker.ROUTE
        made["declare"] = options.get("declare")
        made["delivery_mode"] = options.get("delivery_mode") or conf.task_default_delivery_mode
    made.update({name: options[name] for name in names if name in options})
    return made


def leave(headers: dict[str, Any], eta: str) -> None:
    """Make the headers of a message those that Celery sends; a relative ``expires`` starts now."""
    headers["eta"] = eta
    expires_ms = headers.pop(EXPIRES_HEADER, None)
    if expires_ms is not None:
        headers["expires"] = expiry_after(clock.utc_now(), expires_ms / 1000).isoformat()

"""What a call asks for, as it travels through Celery to the message, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .. import clock
from ..clock import When, from_ms
from ..errors import NotScheduled
from ..store import Delivery, Receipt
from .left import Broker
from .options import OPTION, PLAIN, EntryOptions
from .writing import Ready


@dataclass(eq=False)
class Answer:
    """What became of a request.

    Attributes:
        ready: The entry for the caller to write.
        receipt: The store's.
        broker: Publishes a captured message that the store does not take.
        left: Whether a captured message was left to Celery.
        sent: The ids of the messages that the call sent instead of scheduling them.
    """

    ready: Ready | None = None
    receipt: Receipt | None = None
    broker: Broker | None = None
    left: bool = False
    sent: list[str] = field(default_factory=list)

    # A task's own `apply_async` may copy its options; the caller reads this one.
    def __copy__(self) -> Answer:
        return self

    def __deepcopy__(self, _: object) -> Answer:
        return self


@dataclass(frozen=True, eq=False)
class Request:
    """The due time and options of a message to schedule.

    It travels as an option of ``apply_async``, through the task, canvas and router code that every
    other option passes. Celery drops a sender's return value, so the answer comes back in it.

    Attributes:
        when: The due time.
        delivery: The message that a broker delivered, if the call is about one.
        given_out: Whether a caller may know the task's id already.
        frozen: Whether a signature had the task's id already.
        writes: False: the entry is only made, and the caller writes it.
        captured: The call has an eta, or is put off, and has no option of this package. If the
            store does not take the message, it is left to Celery.
        entry_options: The options of the entry.
        answer: What became of it.
    """

    when: When
    delivery: Delivery | None = None
    given_out: bool = True
    frozen: bool = False
    writes: bool = True
    captured: bool = False
    entry_options: EntryOptions = PLAIN
    answer: Answer = field(default_factory=Answer)

    def sent_by(self, apply_async: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call ``apply_async(*args, **options)`` with this request among its options."""
        token = under_way.set(self)
        try:
            return apply_async(*args, **{OPTION: self, **options})
        finally:
            under_way.reset(token)

    def refuse_sent(self, result: Any) -> None:
        """Check the result of a call that scheduled nothing.

        Raises:
            NotScheduled: the call sent this result's task at once.
        """
        # An `apply_async` of the task's own may have sent other messages on the way.
        sent = self.answer.sent
        task_id = getattr(result, "id", sent[0] if sent else None)
        if task_id in sent:
            raise NotScheduled(str(task_id))

    def expected_due(self) -> datetime:
        """Return the due time by this machine's clock; the store's own is in the receipt."""
        if self.when.mode == "at":
            return from_ms(self.when.ms)
        return clock.utc_now() + timedelta(milliseconds=self.when.ms)


# The request of the call under way: an `apply_async` that drops options sends a message without it.
under_way: ContextVar[Request | None] = ContextVar("celery_delayq_under_way", default=None)

"""Writes adopted messages into the store as entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import DelayQError
from ...core.message.headers import HOLD_HEADER, Hold
from ...core.scheduling.intercept import ONCE, Interceptor, Request
from ...core.scheduling.options import PLAIN
from ...core.scheduling.writing import write
from ...core.services import Services
from ...core.store import NewEntry, Receipt
from ...core.text import logger_of
from .delivered import entry_of
from .far import Far

logger = logger_of(__name__)


class Entering:
    """Makes and writes entries; used by one thread."""

    def __init__(self, services: Services) -> None:
        self._interceptor = Interceptor(services, never)
        self._services = services

    def write(self, batch: Sequence[Far]) -> list[Receipt | DelayQError]:
        """Write entries in one step.

        Returns:
            For each message a receipt, or the error that kept it from being written.

        Raises:
            StoreError: none was written, or it is unknown whether they were.
        """
        made = [self._entry(far) for far in batch]
        new = [entry for entry in made if isinstance(entry, NewEntry)]
        answers = iter(write(self._services, new, ONCE) if new else ())
        return [next(answers) if isinstance(entry, NewEntry) else entry for entry in made]

    def _entry(self, far: Far) -> NewEntry | DelayQError:
        delivery = self._services.copies.delivery(
            far.identity, again=far.again or far.is_named, received=far.received
        )
        try:
            hold = Hold.of(far.message.headers.get(HOLD_HEADER), far.task_id)
            request = Request(far.when, delivery=delivery, entry_options=PLAIN.holding(hold))
            return entry_of(self._interceptor, far.message, request, queue=far.queue).new
        except DelayQError as error:
            return error
        except Exception as error:
            # Celery writes no such headers. It reports them itself when it gets the message.
            logger.debug("task %s: not adopted: %r", far.task_id, error)
            return DelayQError(str(error))


def never(*_: Any, **__: Any) -> None:
    """Stands for Celery's sending in a sender that never sends."""

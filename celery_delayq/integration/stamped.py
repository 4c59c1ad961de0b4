"""``revoke_by_stamped_headers`` reaches what waits: from an app, and from a worker's panel.

A worker does it in a thread, as to read a million entries takes a minute or two. All workers are
told at the same moment; one of them does it. What it does not reach, as it is scheduled meanwhile
or the worker dies, is dropped when it is received: workers keep in mind which stamps are revoked.
"""

from __future__ import annotations

import random
import threading
from typing import Any

from .. import clock
from ..errors import DelayQError
from ..logs import logger_of
from ..operations.stamps import cancel_stamped
from ..services import Services

logger = logger_of(__name__)

TOGETHER_MS = 10_000  # what comes within such a time is one command for all workers
ASKED_FOR = 5.0  # seconds that the store may take to say who does it


def cancel(services: Services, headers: Any) -> bool:
    """Cancel what waits and carries these stamps; whether all of it was looked at."""
    try:
        count = cancel_stamped(services, headers)
    except DelayQError as error:
        logger.warning("stamps %r: not all that waits was looked at: %s", headers, error)
        return False
    logger.info("stamps %r: %d tasks cancelled before they were due", headers, count)
    return True


def cancel_in_background(services: Services, headers: Any) -> threading.Thread:
    """The same in a thread, unless another worker does it."""

    def run() -> None:
        if _is_first(services, headers):
            cancel(services, headers)

    thread = threading.Thread(target=run, name="delayq-stamps", daemon=True)
    thread.start()
    return thread


def _is_first(services: Services, headers: Any) -> bool:
    mine = random.randrange(1, 2**31)
    try:
        when = services.entries.counts().now_ms // TOGETHER_MS
        command = ("revoke_by_stamped_headers", repr(headers), str(when))
        first = services.copies.first(command, mine, clock.monotonic() + ASKED_FOR)
    except DelayQError as error:
        logger.warning("stamps %r: what waits was not looked at: %s", headers, error)
        return False
    return first == mine

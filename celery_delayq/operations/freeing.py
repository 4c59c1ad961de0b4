"""Unique keys: the task that holds one, and a way to free a key from a delivered task."""

from __future__ import annotations

from ..core.errors import InvalidOption
from ..core.hooks import by
from ..core.services import HasServices
from ..core.store import KeyHolder, Outcome
from ..core.store.keys import checked_name
from ..core.text import logger_of

logger = logger_of(__name__)


def holder(delayq: HasServices, *, key: str) -> KeyHolder | None:
    """The task that holds a unique key, waiting or delivered; or ``None``."""
    return delayq.services.entries.holder(checked_name("key", key))


def free(delayq: HasServices, *, key: str, if_holder: KeyHolder | None = None) -> Outcome:
    """Free a unique key that a task still holds although it was delivered.

    If another task waits behind it, that one gets the key, and waits for its due time. If the task
    runs after all, it goes on, beside the next one with this key; its end frees no other task's
    key. Use this if you know that it does not run any more, as its worker was killed, or its
    message was purged.

    Args:
        key: The unique key.
        if_holder: Free it only if this delivery still holds it; from :meth:`holder`.

    Returns:
        ``Outcome.DONE``, the only true one; or why nothing was changed. ``NOT_FOUND``: nothing
        holds it. ``UNCHANGED``: its task waits, so cancel that, or something else than *if_holder*
        holds it. ``IN_FLIGHT``: its task is being published right now.
    """
    if not (if_holder is None or isinstance(if_holder, KeyHolder)):
        raise InvalidOption("if_holder", if_holder, "what delayq.holder(key=...) returned")
    # No delivery has the name "-": a task that has not left has none yet.
    seen = "" if if_holder is None else if_holder.delivery or "-"
    outcome, task_id = delayq.services.entries.free(checked_name("key", key), seen)
    if outcome:
        logger.info("key %s was freed%s; task %s held it", key, by(), task_id)
    return outcome

"""Reports each change that a user makes on the pages: a line of the log, and a signal."""

from __future__ import annotations

from typing import Any

from celery.utils.dispatch import Signal

from ...core.text import logger_of

logger = logger_of(__name__)

#: Sent after each change on the pages; the sender is the app. ``user``: the name. ``action``:
#: ``cancel``, ``pause`` and so on. ``target``: a dictionary, with the ``id`` of a task, or the
#: filters of a selection, or what is paused, or the ``rule``. ``answer``: an ``Outcome``, a count,
#: or a bool.
page_changed = Signal(
    name="delayq_page_changed", providing_args={"user", "action", "target", "answer"}
)


def tell(app: Any, user: str, action: str, target: dict[str, Any], answer: Any) -> None:
    """Log a change, and send the signal."""
    word = answer.value if hasattr(answer, "value") else answer
    named = ", ".join(f"{name} {value}" for name, value in target.items()) or "everything"
    logger.info("%s: %s by %s on the web page: %s", named, action, user, word)
    page_changed.send(app, user=user, action=action, target=target, answer=answer)

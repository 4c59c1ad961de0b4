"""Undo what Celery 5.5 and later do to an ``eta`` where quorum queues are used.

``send_task`` has by then replaced exchange and routing key by those of a cascade of delay
queues: ``celery_delayed_27``, which kombu 5.7 lets one prefix, and 28 binary digits of the
countdown before the routing key. A scheduled message must go where it would have gone without an
eta. Of that only the app's router knew, so its last answer is noted:

    router.route ---> noted ---> send_task puts the cascade into that answer ---> undo

A routing key alone would not tell: queues of several exchanges may be bound with it.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any

EXCHANGE = "celery_delayed_27"
_PREFIXED = re.compile(rf"(.+_)?{EXCHANGE}")
_DIGITS = re.compile(r"(?:[01]\.){28}")
_WHERE = ("queue", "exchange", "routing_key")

# The router's last answer, and what of it says where to, before anybody changed that.
_noted: ContextVar[tuple[dict[str, Any], dict[str, Any]] | None] = ContextVar(
    "celery_delayq_routed", default=None
)


def noting(router: Any) -> Any:
    """*router*, whose last answer is noted."""
    plain = router.route

    def route(*args: Any, **options: Any) -> Any:
        routed = plain(*args, **options)
        _noted.set((routed, {name: routed[name] for name in _WHERE if name in routed}))
        return routed

    router.route = route
    return router


def undo(options: dict[str, Any], amqp: Any) -> None:
    """Give *options* back their exchange and routing key; leave others as they are."""
    exchange = options.get("exchange")
    routing_key: Any = options.get("routing_key")
    digits = _DIGITS.match(routing_key) if isinstance(routing_key, str) else None
    if not digits or not _PREFIXED.fullmatch(getattr(exchange, "name", exchange) or ""):
        return
    routed, where = _noted.get() or ({}, {})
    # Made for this call only, so it is that answer if the key is the same object.
    if routed.get("routing_key") is options["routing_key"]:
        for name in _WHERE:
            options.pop(name, None)
        options.update(where)
        return
    # Another router's. A queue that is bound with this key leads to the same exchange, or a like.
    routing_key = routing_key[digits.end() :]
    options["routing_key"] = routing_key
    options["exchange"] = None
    matching = [queue for queue in amqp.queues.values() if queue.routing_key == routing_key]
    options["queue"] = matching[0] if matching else amqp.default_queue

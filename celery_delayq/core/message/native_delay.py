"""Undoes the delay that Celery 5.5 and later apply to an ``eta`` on quorum queues.

``send_task`` has by then replaced exchange and routing key by those of a cascade of delay queues:
``celery_delayed_27`` (with an optional prefix since kombu 5.7), and 28 binary digits of the
countdown before the routing key. A scheduled message must be routed as if it had no eta. Only the
app's router knew that route, so its last answer is noted:

    router.route ---> noted ---> send_task puts the cascade into that answer ---> undo

The routing key alone is not enough: queues of several exchanges may be bound with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

EXCHANGE = "celery_delayed_27"
_PREFIXED = re.compile(rf"(.+_)?{EXCHANGE}")
_DIGITS = re.compile(r"(?:[01]\.){28}")
ROUTE = ("exchange", "routing_key")
_WHERE = ("queue", *ROUTE)

# The router's last answer, and a copy of its route from before any change.
_noted: ContextVar[tuple[dict[str, Any], dict[str, Any]] | None] = ContextVar(
    "celery_delayq_routed", default=None
)


def noting(router: Any) -> Any:
    """Return *router*, made to note its last answer."""
    plain = router.route

    def route(*args: Any, **options: Any) -> Any:
        routed = plain(*args, **options)
        _noted.set((routed, {name: routed[name] for name in _WHERE if name in routed}))
        return routed

    router.route = route
    return router


def is_delayed(options: Mapping[str, Any]) -> bool:
    """Whether exchange and routing key are those of the cascade."""
    exchange, routing_key = (options.get(name) for name in ROUTE)
    is_key = isinstance(routing_key, str) and _DIGITS.match(routing_key)
    return bool(is_key and _PREFIXED.fullmatch(getattr(exchange, "name", exchange) or ""))


def undo(options: dict[str, Any], amqp: Any) -> None:
    """Restore the exchange and routing key of *options*; leave all else as it is."""
    if not is_delayed(options):
        return
    routed, where = _noted.get() or ({}, {})
    # The key is made for this call only, so the same object means the same answer.
    if routed.get("routing_key") is options["routing_key"]:
        for name in _WHERE:
            options.pop(name, None)
        options.update(where)
        return
    # Another router's answer. A queue bound with this key leads to the same exchange or a like one.
    routing_key = _DIGITS.sub("", options["routing_key"], count=1)
    options["routing_key"] = routing_key
    options["exchange"] = None
    matching = [queue for queue in amqp.queues.values() if queue.routing_key == routing_key]
    options["queue"] = matching[0] if matching else amqp.default_queue

"""Undo what Celery 5.5 and later do to an ``eta`` where quorum queues are used.

``send_task`` has by then replaced exchange and routing key by those of a cascade of delay
queues: ``celery_delayed_27``, which kombu 5.7 lets one prefix, and 28 binary digits of the
countdown before the routing key. A scheduled message must go where it would have gone without an
eta.
"""

from __future__ import annotations

import re
from typing import Any

EXCHANGE = "celery_delayed_27"
_PREFIXED = re.compile(rf"(.+_)?{EXCHANGE}")
_DIGITS = re.compile(r"(?:[01]\.){28}")


def undo(options: dict[str, Any], amqp: Any) -> None:
    """Give *options* back their exchange and routing key; leave others as they are."""
    exchange = options.get("exchange")
    digits = _DIGITS.match(options.get("routing_key") or "")
    if not digits or not _PREFIXED.fullmatch(getattr(exchange, "name", exchange) or ""):
        return
    routing_key = options["routing_key"][digits.end() :]
    options["routing_key"] = routing_key
    options["exchange"] = None
    # The name of the queue is gone. One that is bound with this key leads to the same exchange.
    matching = [queue for queue in amqp.queues.values() if queue.routing_key == routing_key]
    options["queue"] = matching[0] if matching else amqp.default_queue

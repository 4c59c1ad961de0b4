"""Finds the queue that a message came from; an exchange may lead to several."""

from __future__ import annotations

from typing import Any

from ...core import clock

KEEP = 5.0  # seconds for which an exchange's bindings are cached
MOST = 1000  # cached pairs of exchange and routing key

# kombu's fanouts are no lists in Redis, so no worker would take a message out of one.
_LISTS = ("direct", "topic")


class Queues:
    """The queues that a worker consumes from."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._found: dict[tuple[str, str], tuple[str | None, float]] = {}

    def of(self, message: Any) -> str | None:
        """Return the queue of a received message; ``None`` if it is not certain."""
        info = message.delivery_info or {}
        tag = info.get("consumer_tag")
        tags = getattr(self._consumer.task_consumer, "_active_tags", {})
        if tag is not None:
            return next((queue for queue, its_tag in tags.items() if its_tag == tag), None)
        exchange, key = info.get("exchange") or "", info.get("routing_key")
        if exchange:
            key = self._bound(message.channel, exchange, key)
        return key if key in tags else None

    def _bound(self, channel: Any, exchange: str, key: Any) -> str | None:
        now = clock.monotonic()
        queue, until = self._found.get((exchange, key), (None, 0.0))
        if now >= until:
            queue = _only_queue(channel, exchange, key)
            if len(self._found) >= MOST:
                self._found.clear()
            self._found[exchange, key] = queue, now + KEEP
        return queue


def _only_queue(channel: Any, exchange: str, key: Any) -> str | None:
    try:
        kind = channel.typeof(exchange, None)  # one that this worker has declared
        found = set(kind.lookup(channel.get_table(exchange), exchange, key, None))
    except Exception:
        return None
    return found.pop() if len(found) == 1 and kind.type in _LISTS else None

"""A look at each message that a worker is given, before its task is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What a worker does with the messages of one task: ``strategy(message, body, ack, …)``.
Strategy = Callable[..., Any]


def wrap_strategies(consumer: Any, wrap: Callable[[Strategy], Strategy]) -> None:
    """Let each strategy of a worker's consumer be what *wrap* makes of it."""
    plain = consumer.update_strategies

    def update_strategies() -> None:
        plain()
        for name, strategy in consumer.strategies.items():
            consumer.strategies[name] = wrap(strategy)

    consumer.update_strategies = update_strategies

"""Worker strategies: a hook that sees each message before the worker accepts its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: A worker's handler for the messages of one task: ``strategy(message, body, ack, …)``.
Strategy = Callable[..., Any]


def wrap_strategies(consumer: Any, wrap: Callable[[Strategy], Strategy]) -> None:
    """Replace each strategy of a worker's consumer with ``wrap(strategy)``."""
    plain = consumer.update_strategies

    def update_strategies() -> None:
        plain()
        for name, strategy in consumer.strategies.items():
            consumer.strategies[name] = wrap(strategy)

    consumer.update_strategies = update_strategies

"""Notes the serializer of a received message, which its task's request lacks.

    message --> its content type is not the app's? --> header --> request --> its next run

Celery's own retry takes the task's serializer, and so fails, or turns tuples into lists.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from celery import bootsteps

from ...core.libraries import Feature, works
from ...core.message.body import serializer_of
from ...core.message.headers import SERIALIZER_HEADER
from ...core.services import find
from ..strategies import Strategy, wrap_strategies


class NotingStep(bootsteps.Step):
    """Lets a worker's consumer note the serializers of messages."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        if find(consumer.app) is None or not works(Feature.PUTTING_OFF):
            return
        usual = consumer.app.conf.task_serializer

        def noting(strategy: Strategy) -> Strategy:
            def received(message: Any, *rest: Any) -> Any:
                message.headers.pop(SERIALIZER_HEADER, None)  # any program may have written it
                with suppress(KeyError):  # the worker will refuse the message
                    name = serializer_of(message.content_type)
                    if name != usual:
                        message.headers[SERIALIZER_HEADER] = name
                return strategy(message, *rest)

            return received

        wrap_strategies(consumer, noting)

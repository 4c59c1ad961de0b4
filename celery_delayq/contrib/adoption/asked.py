"""Schedules messages that a process without ``DelayQ(app)`` sent at once.

Celery passes an unknown option on as a property of the message. (AMQP drops such a property, other
brokers keep it.) A worker finds the property here and schedules the message.
"""

from __future__ import annotations

from typing import Any

from ...core.errors import AlreadyScheduled, DelayQError, StoreError
from ...core.scheduling.intercept import Interceptor
from ...core.text import logger_of
from ..consumer import Strategy
from .delivered import asks_for_a_time, schedule_delivered

logger = logger_of(__name__)


def adopting(interceptor: Interceptor, strategy: Strategy, consumer: Any) -> Strategy:
    """*strategy*, for all messages but those that should have been scheduled."""

    def received(message: Any, body: Any, ack: Any, *rest: Any) -> Any:
        if not asks_for_a_time(message):
            return strategy(message, body, ack, *rest)
        try:
            _schedule(interceptor, message)
        except StoreError as error:
            # It must neither run now nor be lost, so the broker keeps it and delivers it again.
            logger.error("task %s: left to its broker, not scheduled: %s", _id(message), error)
        except (DelayQError, KeyError) as error:
            logger.error("task %s: runs at once: %s; %s", _id(message), error, _blame(message))
            return strategy(message, body, ack, *rest)
        else:
            ack(logger, consumer.connection_errors)
        return None

    return received


def _schedule(interceptor: Interceptor, message: Any) -> None:
    task_id = _id(message)
    try:
        receipt = schedule_delivered(interceptor, message)
    except AlreadyScheduled:
        waits = True  # and is being published
    else:
        waits = receipt.existed and receipt.task_id == task_id
    if waits:
        # Delivered again, as its acknowledgement was lost.
        logger.warning("task %s: dropped this copy, as the task is already waiting", task_id)
    elif receipt.existed:
        logger.warning("task %s: dropped, as task %s has its key", task_id, receipt.task_id)
    else:
        logger.warning("task %s: scheduled on arrival; %s", task_id, _blame(message))


def _blame(message: Any) -> str:
    where = message.headers.get("origin", "some process")
    return f"{where} sent it at once, as its app has no DelayQ; create DelayQ(app) there"


def _id(message: Any) -> Any:
    return message.properties.get("correlation_id")

"""A worker's side of adoption: it takes messages, and acknowledges them or returns them to Celery.

    a message --> asks for a time: scheduled at once, if its store answers
              --> has a far eta: batches --> decided: acknowledged, or passed on to Celery

A process without ``DelayQ(app)`` may call with options of ours. Celery passes an unknown option on
as a property of the message. (AMQP drops such a property, other brokers keep it.) A worker finds
the property here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from celery import bootsteps
from celery.worker import state

from ...core import clock
from ...core.errors import AlreadyScheduled, DelayQError, StoreError
from ...core.libraries import Feature, works
from ...core.scheduling.intercept import Interceptor
from ...core.services import find
from ...core.store import Receipt
from ...core.store.changes import Removal
from ...core.text import logger_of
from ..consumer import Queues, Room, StoreQuery, Waker, look_first, never
from .batches import Batches, is_stored
from .messages import Entering, Far, asks_for_a_time, far_of, has_eta, schedule_delivered

logger = logger_of(__name__)

SETTLED_WITHIN = 0.1  # seconds that a loop without a hub waits for a message to be settled
WAIT_AGAIN = 5.0  # seconds without such waits, after one that was too short
_TAKEN = "task %s: dropped, as it was adopted at an earlier delivery"
_UNKNOWN = "left to Celery, whether it was adopted or not"


class AdoptingStep(bootsteps.StartStopStep):
    """Lets a worker's consumer look at each message before its task does, and adopt it."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        services = find(consumer.app)
        self.enabled = services is not None and works(Feature.ADOPTING)
        if services is None or not self.enabled:
            return
        self._services = services
        self._consumer = consumer
        self._queues = Queues(consumer)
        self._entering = Entering(services)
        self._interceptor = Interceptor(services, never)
        self._batches: Batches | None = None
        self._passed_on: Any = None
        self._room = Room(consumer)
        self._asking = StoreQuery(_UNKNOWN)
        self._wait_from = 0.0
        self._waker = Waker(self._acknowledge)
        look_first(consumer, "adoption", self._takes)

    # The connection to the broker.

    def start(self, _consumer: Any) -> None:
        """Start on a new connection, before its first message."""
        self._room.begin()
        self._batches = Batches(
            self._write,
            self._wake,
            self._batches,
            sharded=lambda: self._services.settings.shards > 1,
        )

    def stop(self, _consumer: Any) -> None:
        """End with the connection; its messages can no longer be acknowledged."""
        if self._batches is not None:
            self._batches.close()
        self._waker.close()

    terminate = stop

    def register_with_event_loop(self, _consumer: Any, hub: Any) -> None:
        """Wake the loop when a message is settled."""
        self._waker.listen(hub)

    def _wake(self) -> None:
        if self._waker.is_there:
            self._waker.wake()
        else:
            self._consumer.call_soon(self._acknowledge)

    # In the consumer's thread.

    def _takes(self, message: Any, body: Any, ack: Any) -> bool:
        """Take a message that is to wait in the store; return whether it was taken."""
        if asks_for_a_time(message) and self._is_not_to_run(message, ack):
            return True
        is_new = message is not self._passed_on and has_eta(message, body)
        far = self._far_of(message, body) if is_new else None
        if far is None:
            return False
        if self._adopts(replace(far, ack=ack)):
            return True
        if not self._was_adopted(far):
            return False
        ack(logger, self._consumer.connection_errors)
        return True

    def _is_not_to_run(self, message: Any, ack: Any) -> bool:
        """Schedule a message that should have been; return false if it runs at once after all."""
        try:
            _schedule(self._interceptor, message)
        except StoreError as error:
            # It must neither run now nor be lost, so the broker keeps it and delivers it again.
            logger.error("task %s: left to its broker, not scheduled: %s", _id(message), error)
        except (DelayQError, KeyError) as error:
            logger.error("task %s: runs at once: %s; %s", _id(message), error, _blame(message))
            return False
        else:
            ack(logger, self._consumer.connection_errors)
        return True

    def _far_of(self, message: Any, body: Any) -> Far | None:
        """Return a message with an eta as a candidate; ``None`` leaves it to Celery."""
        try:
            far = self._far(message, body)
        except Exception:  # it would stop the worker
            logger.exception("a message with an eta is left to Celery")
            return None
        return far if far and not _is_revoked(message) else None

    def _far(self, message: Any, body: Any) -> Far | None:
        after = self._services.settings.adopt_after
        if after is None:
            return None
        return far_of(self._services, message, body, self._queues.of(message), after)

    def _adopts(self, far: Far) -> bool:
        """Take a message, to be settled later; return whether it was taken."""
        batches = self._batches
        if batches is None or not far.is_far or not batches.put(far):
            return False
        self._room.make(len(batches))
        if not self._waker.is_there:
            self._wait(batches)
        return True

    def _was_adopted(self, far: Far) -> bool:
        """Return whether a message that is not adopted now was adopted at an earlier delivery."""
        if not far.again:
            return False
        is_taken = self._asking.ask(
            far.task_id,
            lambda until: self._services.copies.is_taken(far.identity, until),
            False,
        )
        if is_taken:
            logger.info(_TAKEN, far.task_id)
        return is_taken

    def _wait(self, batches: Batches) -> None:
        # A loop without a hub cannot be woken while it waits for the next message.
        if clock.monotonic() >= self._wait_from and not batches.wait_decided(SETTLED_WITHIN):
            self._wait_from = clock.monotonic() + WAIT_AGAIN
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge the stored messages, and return the others to Celery."""
        if self._batches is None:
            return
        found = self._batches.decided()
        if found:
            self._room.give_back(len(self._batches))
        for far, is_kept in found:
            if is_kept:
                far.ack(logger, self._consumer.connection_errors)
            else:
                self._pass_on(far.message)

    def _pass_on(self, message: Any) -> None:
        """Pass a message to Celery as if it had just arrived."""
        self._passed_on = message
        try:
            self._consumer.task_consumer.on_message(message)
        finally:
            self._passed_on = None

    # In the thread.

    def _write(self, batch: Sequence[Far]) -> list[Receipt | DelayQError]:
        answers = self._entering.write(batch)
        return [self._unless_revoked(*both) for both in zip(batch, answers, strict=True)]

    def _unless_revoked(self, far: Far, answer: Receipt | DelayQError) -> Receipt | DelayQError:
        """*answer*; if the id was revoked meanwhile, cancel the entry and return an error."""
        if is_stored(answer) and _is_revoked(far.message):
            self._services.entries.change(far.task_id, Removal())
            return DelayQError("revoked")
        return answer


def _is_revoked(message: Any) -> bool:
    """Whether this worker may have to drop a message, revoked by its id or by its stamps."""
    stamped = state.revoked_stamps and message.headers.get("stamped_headers")
    return message.properties["correlation_id"] in state.revoked or bool(stamped)


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

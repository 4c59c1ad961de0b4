"""A worker's side: the hooks by which its consumer is rid of a message, and its acknowledgement.

    Celery's consumer --on_unknown_task, on_invalid_task, ...--> one of the store's?
                                                                   | no: Celery's own way
                                                                   v yes
    acknowledged <--settled-- keeping.Keeper <--put-- a Kept, with its name, reason and count

The hooks are set before the consumer begins, and Celery calls them for nothing else. So a worker
that knows all its tasks runs nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from celery import bootsteps, signals
from celery.worker import state

from ...core import clock
from ...core.errors import DelayQError
from ...core.libraries import Feature, works
from ...core.message.headers import DUE_HEADER, unknown_in
from ...core.services import find
from ...core.store import checked_id
from ...core.text import logger_of
from ..consumer import Queues, Room, Waker
from .keeping import Keeper, Kept

logger = logger_of(__name__)

# What a consumer does with a message that becomes no task; each ends with ack or reject.
_HOOKS = ("on_decode_error", "on_invalid_task", "on_unknown_message", "on_unknown_task")

SETTLED_WITHIN = 0.1  # seconds that a loop without a hub waits for a message to be settled
MOST_SHOWN = 200  # characters of a reason

_NO_TASK = "{} has no task of this name"
_UNREADABLE = "{} cannot read its message: {}"


class NetStep(bootsteps.StartStopStep):
    """Lets a worker's consumer put the store's messages back that it would discard."""

    def __init__(self, consumer: Any, **_: Any) -> None:
        services = find(consumer.app)
        self.enabled = services is not None and works(Feature.UNKNOWN_TASKS)
        if services is None or not self.enabled:
            return
        self._services = services
        self._consumer = consumer
        self._queues = Queues(consumer)
        self._room = Room(consumer)
        self._waker = Waker(self._acknowledge)
        self._keeper: Keeper | None = None
        self._is_running = False
        for name in _HOOKS:
            setattr(consumer, name, partial(self._meets, name, getattr(consumer, name)))

    # The connection to the broker.

    def start(self, _consumer: Any) -> None:
        """Start on a new connection, before its first message."""
        self._room.begin()
        self._is_running = True

    def stop(self, _consumer: Any) -> None:
        """End with the connection: the broker has the messages that are not acknowledged."""
        self._is_running = False
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()
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

    def _meets(self, hook: str, refuse: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Take a message that the consumer refuses, if it came out of the store."""
        given = (*args, *options.values())
        message = next(each for each in given if hasattr(each, "headers"))
        error = next((each for each in given if isinstance(each, Exception)), None)
        kept = self._kept(message, self._why(hook, error))
        if kept is None:
            return refuse(*args, **options)
        if self._keeper is None:
            self._keeper = Keeper(self._services, self._wake)
        if self._is_running:
            self._keeper.put(kept)
            if not self._waker.is_there:
                # A loop without a hub cannot be woken while it waits for the next message.
                self._keeper.wait_settled(SETTLED_WITHIN)
                self._acknowledge()
            else:
                # Not only after its attempt, as there is one attempt a second.
                self._room.make(self._keeper.failing)
        return None

    def _kept(self, message: Any, why: str) -> Kept | None:
        headers, task_id = message.headers, message.properties.get("correlation_id")
        keeps_for = self._services.settings.unknown_for
        if keeps_for is None or not isinstance(headers, Mapping) or DUE_HEADER not in headers:
            return None
        try:
            checked_id(task_id)
        except DelayQError:  # any program may have written it
            return None
        if task_id in state.revoked:
            return None
        now_ms = round(clock.utc_now().timestamp() * 1000)
        before = unknown_in(headers)
        since_ms = before.get("since", now_ms)
        return Kept(
            message,
            task_id,
            name=str(headers.get("task") or ""),
            why=why,
            since_ms=since_ms,
            times=before.get("times", 0) + 1,
            queue=self._queues.of(message),
            is_dead=now_ms - since_ms >= keeps_for * 1000,
            is_expired=_has_expired(headers),
        )

    def _why(self, hook: str, error: Exception | None) -> str:
        who = self._consumer.hostname
        if hook == "on_unknown_task":
            return _NO_TASK.format(who)
        return _UNREADABLE.format(who, "it is no task" if error is None else error)[:MOST_SHOWN]

    def _acknowledge(self) -> None:
        """Acknowledge the messages that need nothing more."""
        if self._keeper is None:
            return
        settled, failing = self._keeper.settled(), self._keeper.failing
        self._room.make(failing)
        self._room.give_back(failing)
        for kept in settled:
            kept.message.ack_log_error(logger, self._consumer.connection_errors)
            if kept.is_expired:
                self._tell_expired(kept)

    def _tell_expired(self, kept: Kept) -> None:
        """Send Celery's event and signal of a task that has expired."""
        ended = {"terminated": False, "signum": None, "expired": True}
        events = self._consumer.event_dispatcher
        if events:
            events.send("task-revoked", uuid=kept.task_id, **ended)
        signals.task_revoked.send(sender=kept.name, request=kept.request, **ended)


def _has_expired(headers: Mapping[str, Any]) -> bool:
    try:
        return bool(headers.get("expires")) and (
            clock.celery_time(headers["expires"]) <= clock.utc_now()
        )
    except DelayQError:  # workers cannot read this time either
        return False

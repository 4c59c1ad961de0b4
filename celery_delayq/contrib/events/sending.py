"""Sends events about scheduled and cancelled tasks, for Flower and ``celery events``.

    scheduled --> task-sent, with its due time as eta           if task_send_sent_event is on
    cancelled, skipped --> task-revoked

Like a worker's, they go through Celery's own dispatcher, in lists. Each process keeps a connection
for each kind: those in the app's pool have no time limit, and the call under way may hold the last.
If the broker is down or hangs, a call takes some two seconds longer at most, and calls in the next
five seconds take no longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.utils.nodenames import anon_nodename, gethostname, nodename
from celery.utils.saferepr import saferepr
from kombu import Queue
from kombu.utils.json import loads

from ...core import clock
from ...core.clock import from_ms
from ...core.message.body import body_of
from ...core.message.outgoing import Route
from ...core.servers.pool import PerProcess
from ...core.services import services_of
from ...core.store import NewEntry
from ...core.text import logger_of

logger = logger_of(__name__)

TIMEOUT = 1.0  # seconds that the broker may take to connect, or to take a list of events
IDLE = 10.0  # seconds without use after which a connection may be dead
AGAIN = 5.0  # seconds without events after the broker failed to take them
LIST = 100  # events in one message
SENT, REVOKED = "task-sent", "task-revoked"
# Monitors take the sender of any event but task-sent for a worker, so there is one for each host.
NODE = "delayq"

Fields = Mapping[str, Any]


class Events:
    """Sends events for one app, from any thread or process."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = PerProcess(threading.Lock)
        self._kept = PerProcess(dict[str, tuple[float, Any]])  # kind -> last use, dispatcher
        self._again = 0.0  # when to try the broker again, by the monotonic clock

    def sent(self, entries: Sequence[tuple[NewEntry, int]]) -> None:
        """Send that entries were scheduled, each with its due time in ms."""
        self._send(SENT, [_sent(self._app, *entry) for entry in entries])

    def revoked(self, task_ids: Iterable[str]) -> None:
        """Send that tasks will not run."""
        how = {"terminated": False, "signum": None, "expired": False}
        self._send(REVOKED, [{"uuid": task_id, **how} for task_id in task_ids])

    def _send(self, kind: str, events: Sequence[Fields]) -> None:
        if not events or clock.monotonic() < self._again:
            return
        lock = self._lock.get()
        if not lock.acquire(timeout=TIMEOUT):
            return  # the broker hangs, and another thread waits for it
        try:
            dispatcher = self._dispatcher(kind)
            for fields in events:
                dispatcher.send(kind, **fields)
            dispatcher.flush(errors=False)
        except Exception as error:
            self._let_go(kind)
            self._again = clock.monotonic() + AGAIN
            logger.warning(
                "sending no events to the %s of %s for %.0f s: %r",
                *services_of(self._app).named_broker, AGAIN, error,
            )  # fmt: skip
        finally:
            lock.release()

    def _dispatcher(self, kind: str) -> Any:
        """Return Celery's dispatcher, on a connection that is kept until it idles too long."""
        used, dispatcher = self._kept.get().get(kind, (0.0, None))
        now = clock.monotonic()
        if dispatcher is None or now - used > IDLE:
            self._let_go(kind)
            dispatcher = self._connected(kind)
        self._kept.get()[kind] = now, dispatcher
        return dispatcher

    def _let_go(self, kind: str) -> None:
        _, dispatcher = self._kept.get().pop(kind, (0.0, None))
        if dispatcher is not None:
            with suppress(Exception):  # one that hangs cannot close properly
                dispatcher.connection.collect()

    def _connected(self, kind: str) -> Any:
        # Of no use to a process that sends no events.
        from ...core.handover.publishers import bounded, connect

        connection = bounded(self._app.connection_for_write(), TIMEOUT, TIMEOUT)
        try:
            connect(connection, TIMEOUT)
            return self._app.events.Dispatcher(
                connection,
                hostname=anon_nodename() if kind == SENT else nodename(NODE, gethostname()),
                buffer_while_offline=False,
                buffer_group=frozenset({"task"}),
                buffer_limit=LIST,
            )
        except Exception:
            with suppress(Exception):  # one that hangs cannot close properly
                connection.collect()
            raise


def _sent(app: Celery, new: NewEntry, due_ms: int) -> Fields:
    """The fields of Celery's own event, read from the message."""
    envelope = loads(new.record.message(new.task_id, due_ms))
    headers = envelope["headers"]
    known = {"root_id": headers.get("root_id"), "parent_id": headers.get("parent_id")}
    if "task" not in headers:  # protocol 1, which has neither
        headers, known = body_of(envelope, app.conf.accept_content) or {}, {}
        headers["argsrepr"] = saferepr(tuple(headers.get("args") or ()))
        headers["kwargsrepr"] = saferepr(headers.get("kwargs"))
    info = envelope["properties"]["delivery_info"]
    return {
        "uuid": new.task_id,
        **known,
        "name": headers.get("task"),
        "args": headers.get("argsrepr"),
        "kwargs": headers.get("kwargsrepr"),
        "retries": headers.get("retries", 0),
        "eta": from_ms(due_ms).isoformat(),
        "expires": headers.get("expires"),
        "queue": _queue_of(new, info),
        "exchange": info["exchange"],
        "routing_key": info["routing_key"],
    }


def _queue_of(new: NewEntry, info: Mapping[str, str]) -> str | None:
    """The queue that it was sent to; ``None`` if it was sent to an exchange without one."""
    if not info["exchange"]:
        return info["routing_key"]
    declared = Route.parse(new.record.header.partition(b":")[2].decode()).declare
    return next((entity.name for entity in declared if isinstance(entity, Queue)), None)

"""Events of what is scheduled and cancelled, for Flower and ``celery events``.

    scheduled --> task-sent, with its due time as eta           where task_send_sent_event is on
    cancelled, skipped --> task-revoked

They go as a worker's do, in lists, and over a connection of their own: one of the app's pool has no
time limit, and the call under way may hold the last of it. A broker that is away, or hangs, costs a
call some two seconds at most, and those after it nothing, for five seconds, and longer each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from celery import Celery
from celery.utils.nodenames import anon_nodename, gethostname, nodename
from celery.utils.saferepr import saferepr
from kombu import Queue
from kombu.utils.json import loads

from .. import clock
from ..clock import from_ms
from ..handover.backoff import Backoff
from ..handover.link import IDLE, bounded, connect
from ..libraries import Feature, works
from ..logs import logger_of
from ..message.body import body_of
from ..message.route import Route
from ..store import NewEntry
from .registry import services_of

logger = logger_of(__name__)

TIMEOUT = 1.0  # seconds that the broker may take to connect, or for a list of events
# Seconds after which it is tried again, where it did not take them: at first, at most.
AGAIN, LONGEST = 5.0, 30.0
LIST = 100  # events that go in one message
SETTING = "task_send_sent_event"
SENT, REVOKED = "task-sent", "task-revoked"
# Whose event that is no task-sent counts as a worker's, so it is one for all processes of a host.
NODE = "delayq"

Fields = Mapping[str, Any]


class Events:
    """Sends events for one app; shared by the threads of a process, and usable after a fork."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        # By process. A child lets the connections of its parent alone, which it must not close.
        self._lines: dict[int, Line] = {}
        self._conf: Any = None
        self._read: tuple[Any, int] = (None, 0)  # what of it tells whether one was changed
        self._on = False

    def sent(self, entries: Sequence[tuple[NewEntry, int]]) -> None:
        """Say of entries that they were scheduled, each with its due time in ms."""
        if self._is_on():
            self._send(SENT, [_sent(self._app, *one) for one in entries])

    def revoked(self, task_ids: Iterable[str]) -> None:
        """Say of tasks that they will not run."""
        if self._is_on():
            how = {"terminated": False, "signum": None, "expired": False}
            self._send(REVOKED, [{"uuid": task_id, **how} for task_id in task_ids])

    def _is_on(self) -> bool:
        # Celery takes 30 us to read a setting, so it is read anew only where one was changed.
        if not works(Feature.EVENTS):
            return False
        conf = self._app.conf
        read = conf.changes.get(SETTING), len(conf.changes)
        if conf is not self._conf or read != self._read:
            self._on = bool(conf[SETTING])
            self._conf, self._read = self._app.conf, read
        return self._on

    def _send(self, kind: str, events: list[Fields]) -> None:
        pid = os.getpid()
        line = self._lines.get(pid) or self._lines.setdefault(pid, Line(self._app))
        line.send(kind, events)


class Line:
    """A process's connection for events."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._connection: Any = None
        self._dispatchers: dict[str, Any] = {}
        self._used = 0.0
        self._again = 0.0
        self._backoff = Backoff(AGAIN, LONGEST)
        self._is_away = False

    def send(self, kind: str, events: Sequence[Fields]) -> None:
        """Send events of a kind, if the broker takes them; never raises."""
        if clock.monotonic() < self._again or not self._lock.acquire(timeout=TIMEOUT):
            return
        try:
            dispatcher = self._dispatcher(kind)
            for fields in events:
                dispatcher.send(kind, **fields)
            dispatcher.flush(errors=False)
            self._used = clock.monotonic()
            self._backoff.reset()
            self._is_away = False
        except Exception as error:
            self._failed(error)
        finally:
            self._lock.release()

    def _dispatcher(self, kind: str) -> Any:
        if self._connection is None or clock.monotonic() - self._used > IDLE:
            self._close()
            self._connection = bounded(self._app.connection_for_write(), TIMEOUT, TIMEOUT)
            connect(self._connection, TIMEOUT)
        if kind not in self._dispatchers:
            self._dispatchers[kind] = self._app.events.Dispatcher(
                self._connection,
                hostname=anon_nodename() if kind == SENT else nodename(NODE, gethostname()),
                buffer_while_offline=False,
                buffer_group=frozenset({"task"}),
                buffer_limit=LIST,
            )
        return self._dispatchers[kind]

    def _failed(self, error: Exception) -> None:
        self._close()
        pause = self._backoff.next()
        self._again = clock.monotonic() + pause
        if not self._is_away:
            what, setting = services_of(self._app).named_broker
            logger.warning(
                "events of scheduled tasks are not sent until the %s of %s is back: %s",
                what,
                setting,
                repr(error),
            )
        self._is_away = True

    def _close(self) -> None:
        connection, self._connection, self._dispatchers = self._connection, None, {}
        if connection is not None:
            try:
                connection.collect()
            except Exception as error:
                logger.debug("closing the connection for events: %r", error)


def _sent(app: Celery, new: NewEntry, due_ms: int) -> Fields:
    """The fields of Celery's own event, read from the message."""
    envelope = loads(new.record.message(new.task_id, due_ms))
    said = envelope["headers"]
    known = {"root_id": said.get("root_id"), "parent_id": said.get("parent_id")}
    if "task" not in said:  # protocol 1, which knows neither
        said, known = body_of(envelope, app.conf.accept_content) or {}, {}
        said["argsrepr"] = saferepr(tuple(said.get("args") or ()))
        said["kwargsrepr"] = saferepr(said.get("kwargs"))
    info = envelope["properties"]["delivery_info"]
    return {
        "uuid": new.task_id,
        **known,
        "name": said.get("task"),
        "args": said.get("argsrepr"),
        "kwargs": said.get("kwargsrepr"),
        "retries": said.get("retries", 0),
        "eta": from_ms(due_ms).isoformat(),
        "expires": said.get("expires"),
        "queue": _queue_of(new, info),
        "exchange": info["exchange"],
        "routing_key": info["routing_key"],
    }


def _queue_of(new: NewEntry, info: Mapping[str, str]) -> str | None:
    """The queue that it was sent with; ``None``: an exchange was given in its place."""
    if not info["exchange"]:
        return info["routing_key"]
    declared = Route.parse(new.record.destination.partition(b":")[2].decode()).declare
    return next((one.name for one in declared if isinstance(one, Queue)), None)

"""What goes on while a master fails: a caller at work, a look at the queue, and a clock's stops."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from kombu import Connection, Exchange, Queue

from celery_delayq import DelayQ
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.support.sentinels import Node, SentinelGroup

TIMEOUT = 2.0  # seconds: `delayq_timeout` of these tests
QUEUE = "celery"
FAR = 4_102_444_800  # 2100-01-01
PAUSE = 0.01  # seconds between two calls
BEAT = 0.01


def note(*_args):
    """A task that is looked at in its queue."""


class NotDoneError(Exception):
    """What was scheduled a moment ago could not be cancelled: replication lost it."""


def settings(group: SentinelGroup | None) -> dict:
    """An app's, whose broker and store is this group."""
    conf = {"task_publish_retry": False, "delayq_timeout": TIMEOUT}
    if group is not None:
        conf |= {"broker_url": group.url(), "broker_transport_options": group.options}
    return conf


@dataclass(frozen=True)
class Told:
    """One call, by the monotonic clock: what was scheduled or cancelled, and what came of it."""

    what: str
    task_id: str
    began: float
    ended: float
    error: Exception | None = None


@dataclass
class Caller:
    """Schedules what is due soon and what is due much later, and cancels of the latter.

    With *delayq*, in a thread, from ``with`` on until its end.
    """

    delayq: DelayQ
    name: str = "task"
    calls: list[Told] = field(default_factory=list)

    def __post_init__(self):
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(PAUSE):
            number += 1
            far = f"{self.name} {number} far"
            self._told("schedule", f"{self.name} {number}", time.time() + 0.2)
            if self._told("schedule", far, FAR):
                self._told("cancel", far)

    def _told(self, what: str, task_id: str, due: float = 0) -> bool:
        began, error = time.monotonic(), None
        try:
            if what == "schedule":
                self.delayq.note.apply_async(task_id=task_id, delayq_at=due)
            elif not (outcome := self.delayq.cancel(task_id)):
                error = NotDoneError(outcome)
        except StoreError as caught:
            error = caught
        self.calls.append(Told(what, task_id, began, time.monotonic(), error))
        return error is None

    def done(self, what: str) -> list[Told]:
        return [one for one in self.calls if one.what == what and one.error is None]

    @property
    def odd(self) -> list[Exception]:
        """Errors that no caller of a group should have to expect."""
        errors = (one.error for one in self.calls if one.error)
        return [each for each in errors if not isinstance(each, (StoreUnavailable, NotDoneError))]


def schedule_row(delayq: DelayQ, count: int, *, first: float, every: float) -> list[str]:
    """Schedule tasks that fall due one after the other: the first in so many seconds."""
    start = time.time() + first
    ids = [f"row {number}" for number in range(count)]
    items = [((), {}, start + number * every, task_id) for number, task_id in enumerate(ids)]
    bulk = delayq.schedule_many(delayq.note, items)
    assert list(bulk.ids) == ids
    return ids


def all_due_has_left(delayq: DelayQ) -> bool:
    """Whether all that is still in the store is due much later."""
    counts = delayq.counts()
    soon = counts.now_ms + 3_600_000
    return not counts.in_flight and (counts.next_due_ms or soon) >= soon


def arrived(node: Node, queue: str = QUEUE) -> list[str]:
    """The ids in a queue of a node, in order of arrival."""
    with node.client() as client:
        return [json.loads(one)["headers"]["id"] for one in client.lrange(queue, 0, -1)[::-1]]


def marks(node: Node, queue: str = QUEUE) -> list[tuple[str, bool]]:
    """The ids in a queue of a node, each with whether it says that it may be a second copy."""
    with node.client() as client:
        headers = [json.loads(one)["headers"] for one in client.lrange(queue, 0, -1)]
    return [(one["id"], bool(one.get("delayq_redelivered"))) for one in headers]


@dataclass(frozen=True)
class Copy:
    """One message that came; *at* is by the monotonic clock."""

    at: float
    task_id: str
    is_marked: bool


class Arrivals:
    """Takes what comes to a queue of a RabbitMQ, in a thread, from ``with`` on."""

    def __init__(self, url: str, queue: str):
        self.copies: list[Copy] = []
        self._url, self._queue = url, queue
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        queue = Queue(self._queue, Exchange(self._queue), routing_key=self._queue)
        with (
            Connection(self._url) as connection,
            connection.Consumer(queue, callbacks=[self._note], accept=["json"]),
        ):
            while not self._over.is_set():
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)

    def _note(self, _body: object, message) -> None:
        message.ack()
        headers = message.headers
        marked = bool(headers.get("delayq_redelivered"))
        self.copies.append(Copy(time.monotonic(), headers["id"], marked))

    def first(self, ids: set[str], since: float) -> float | None:
        """When the first of these came after that time."""
        return next((one.at for one in self.copies if one.at > since and one.task_id in ids), None)

    def ids(self, since: float = 0.0, until: float = float("inf")) -> set[str]:
        """What came between two times."""
        return {one.task_id for one in self.copies if since < one.at < until}


class Pulse:
    """How long this process, or its machine, stood still: it measures nothing but itself."""

    def __init__(self):
        self._late: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._over.wait(BEAT):
            now = time.monotonic()
            self._late.append((now, max(0.0, now - last - 2 * BEAT)))
            last = now

    def lost(self, since: float) -> float:
        """Seconds since then in which this thread should have been up, and was not."""
        return sum(late for at, late in self._late if at >= since)

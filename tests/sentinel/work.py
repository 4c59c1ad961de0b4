"""Work while a master fails: a caller, a reader of the queue, and a watch for a stopped clock."""

import itertools
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from kombu import Connection, Exchange, Queue

from celery_delayq import DelayQ
from celery_delayq.errors import StoreError, StoreUnavailable
from tests.support.sentinels import Node, SentinelGroup

TIMEOUT = 2.0  # seconds: `delayq_timeout`, if no call must succeed at the first try
QUEUE = "celery"
FAR = 4_102_444_800  # 2100-01-01
SOON = 0.2  # seconds
PAUSE = 0.01  # seconds between two calls
BEAT = 0.01


def note(*_args):
    """A task that the tests read in its queue."""


class NotDoneError(Exception):
    """A task scheduled a moment ago could not be cancelled: replication lost it."""


def settings(group: SentinelGroup | None) -> dict:
    """The settings of an app with this group as broker and store."""
    conf = {"task_publish_retry": False, "delayq_timeout": TIMEOUT}
    if group is not None:
        conf |= {"broker_url": group.url(), "broker_transport_options": group.options}
    return conf


@dataclass(frozen=True)
class Told:
    """One call to schedule or cancel a task, and its outcome; times by the monotonic clock."""

    what: str
    task_id: str
    due: float
    began: float
    ended: float
    error: Exception | None = None
    replicas: int = 0


@dataclass
class Caller:
    """Schedules tasks due soon or much later, and cancels half of the latter.

    With *delayq*, in a thread, from ``with`` on until its end. Its ids begin with *name*, and
    *is_mine* may leave some out.
    """

    delayq: DelayQ
    name: str = "task"
    is_mine: Callable[[str], bool] = bool
    calls: list[Told] = field(default_factory=list)

    def __post_init__(self):
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        ids = filter(self.is_mine, (f"{self.name} {number}" for number in itertools.count()))
        for number, task_id in enumerate(ids):
            if self._over.wait(PAUSE):
                return
            is_far = number % 4 > 1
            is_there = self._told("schedule", task_id, FAR if is_far else time.time() + SOON)
            if is_far and number % 2 and is_there:
                self._told("cancel", task_id)

    def _told(self, what: str, task_id: str, due: float = 0) -> bool:
        began, error, replicas = time.monotonic(), None, 0
        try:
            if what == "schedule":
                result = self.delayq.note.s().set(task_id=task_id).delay_until(due)
                replicas = result.replicas or 0
            elif not (outcome := self.delayq.cancel(task_id)):
                error = NotDoneError(outcome)
        except StoreError as caught:
            error = caught
        self.calls.append(Told(what, task_id, due, began, time.monotonic(), error, replicas))
        return error is None

    def done(self, what: str) -> list[Told]:
        return [one for one in self.calls if one.what == what and one.error is None]

    @property
    def odd(self) -> list[Exception]:
        """Errors that no caller should get."""
        errors = (one.error for one in self.calls if one.error)
        return [each for each in errors if not isinstance(each, (StoreUnavailable, NotDoneError))]


def schedule_row(delayq: DelayQ, count: int, *, first: float, every: float) -> list[str]:
    """Schedule tasks that fall due one after another, the first in so many seconds."""
    start = time.time() + first
    ids = [f"row {number}" for number in range(count)]
    items = [((), {}, start + number * every, task_id) for number, task_id in enumerate(ids)]
    bulk = delayq.schedule_many(delayq.note, items)
    assert list(bulk.ids) == ids
    return ids


def all_due_has_left(delayq: DelayQ) -> bool:
    """Whether only tasks due much later are still in the store."""
    counts = delayq.counts()
    soon = counts.now_ms + 3_600_000
    return not counts.in_flight and (counts.next_due_ms or soon) >= soon


def arrived(node: Node, queue: str = QUEUE) -> list[str]:
    """The ids in a queue of a node, in order of arrival."""
    with node.client() as client:
        return [json.loads(one)["headers"]["id"] for one in client.lrange(queue, 0, -1)[::-1]]


def marks(node: Node, queue: str = QUEUE) -> list[tuple[str, bool]]:
    """The ids in a queue of a node, each with whether it is marked as a possible duplicate."""
    with node.client() as client:
        headers = [json.loads(one)["headers"] for one in client.lrange(queue, 0, -1)]
    return [(one["id"], bool(one.get("delayq_redelivered"))) for one in headers]


@dataclass(frozen=True)
class Copy:
    """One message that arrived; *at* is by the monotonic clock."""

    at: float
    task_id: str
    is_marked: bool


class Arrivals:
    """Takes messages from a queue of a RabbitMQ, in a thread, from ``with`` on."""

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
        """The time at which the first of these came after that time."""
        return next((one.at for one in self.copies if one.at > since and one.task_id in ids), None)

    def ids(self, since: float = 0.0, until: float = float("inf")) -> set[str]:
        """The ids that came between two times."""
        return {one.task_id for one in self.copies if since < one.at < until}


class Pulse:
    """Measures how long this process, or its machine, stood still, by its own delays alone."""

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
        """Seconds since then in which this thread should have run, but did not."""
        return sum(late for at, late in self._late if at >= since)

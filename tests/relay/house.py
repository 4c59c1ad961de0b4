"""A store in Redis, a broker somewhere else, and scanners in this process between the two."""

import itertools
import json
import os
from contextlib import contextmanager, suppress

from kombu import Connection

from celery_delayq import DelayQ
from celery_delayq.core.handover.scanner import new_relays
from celery_delayq.errors import BrokerDown
from tests.support.shards import each
from tests.support.waiting import PATIENCE, eventually

LONG_AGO = 1_000_000_000  # Unix time: due at once

_numbers = itertools.count(1)


def note(*_args, **_kwargs):
    """A task that no worker of these tests runs."""


class House:
    """An app whose tasks wait in one Redis and go to another broker.

    Args:
        app: The app; its broker is where tasks go.
        where: A URL of the same broker, without faults, to read the messages that arrived.
    """

    def __init__(self, app, where: str):
        self.app = app
        self.delayq = DelayQ(app)
        self.task = app.task(name="note", shared=False)(note)
        self.where = where
        self.queue = app.conf.task_default_queue
        self.scanners, self._relays = [], []

    def close(self) -> None:
        for scanner in self.scanners:
            scanner.stop(PATIENCE)
        for relay in self._relays:
            relay.close()
            relay.steps.close()
        self.delayq.close()

    def start(self, count=1):
        """Start scanners; return the last one."""
        for _ in range(count):
            self.scanners.append(self.delayq.scanner())
            self.scanners[-1].start()
        return self.scanners[-1]

    def relay(self):
        """A relay without a scanner: `relay().batch(...)` is one step."""
        self._relays.append(new_relays(self.delayq.services)[0])
        return self._relays[-1]

    def relay_once(self) -> int:
        relay = self.relay()
        try:
            relay.steps.hand_over()
            return relay.batch(lambda: False).claimed
        finally:
            relay.close()

    def relay_all(self, relay=None) -> None:
        """Relay until nothing is left, however long the broker takes to answer."""
        relay = relay or self.relay()

        def nothing_is_left():
            with suppress(BrokerDown):
                relay.batch(lambda: False)
            return self.counts() == (0, 0, 0)

        eventually(nothing_is_left)

    def due_now(self, *args, **options):
        """Schedule a task that is due already."""
        return self.task.apply_async(args, delayq_at=LONG_AGO, **options)

    def relayed(self, *args, queue=None, **options):
        """The message of a due task, which is relayed at once; *queue* is where it arrives."""
        self.due_now(*args, **options)
        self.relay_once()
        [message] = self.take(queue)
        return message

    def due_now_many(self, count):
        """Schedule *count* such tasks; returns their ids, in order."""
        items = [((), {}, LONG_AGO, f"{number:04}") for number in range(count)]
        assert self.delayq.schedule_many(self.task, items)
        return [task_id for *_, task_id in items]

    @contextmanager
    def channel(self):
        with Connection(self.where) as connection:
            yield connection.default_channel

    def declare(self, *entities) -> None:
        with self.channel() as channel:
            for entity in entities:
                entity(channel).declare()

    def take(self, queue=None, count=1, timeout=30) -> list:
        """Wait for *count* messages; takes them off the queue, and returns them."""
        taken = []

        def more():
            while len(taken) < count and (message := get(queue or self.queue, no_ack=True)):
                taken.append(message)
            return len(taken) >= count

        with self.channel() as channel:
            get = channel.basic_get
            eventually(more, timeout, f"{count} messages")
        return taken

    def left(self, queue=None) -> int:
        """How many messages are in a queue."""
        with self.channel() as channel:
            return channel.queue_declare(queue or self.queue, passive=True).message_count

    def ids(self, queue=None) -> list[str]:
        """Empty a queue; returns the ids of its messages."""
        found = []
        with self.channel() as channel:
            while (message := channel.basic_get(queue or self.queue, no_ack=True)) is not None:
                found.append(message.headers["id"])
        return found

    def counts(self) -> tuple[int, int, int]:
        """(waiting, in flight, dead)."""
        counts = self.delayq.counts()
        return counts.scheduled, counts.in_flight, counts.dead


def call_of(message):
    """The arguments in a message."""
    args, kwargs, _ = json.loads(message.body)
    return args, kwargs


def end_leases(store, at_ms=1) -> None:
    """Let each lease end at this time, by default long ago; no scanner has reclaimed its entry."""
    for key in each("leased"):
        for member in store.zrange(key, 0, -1):
            store.zadd(key, {member: at_ms})


def new_name(kind="q") -> str:
    """A unique name for a queue or an exchange."""
    return f"{kind}-{os.getpid()}-{next(_numbers)}"

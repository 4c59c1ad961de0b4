"""What the store's Redis takes of this package's work, measured there on keys of its own.

    round trips -> schedule and cancel, one by one -> schedule in bulk -> weigh what waits
                -> hand all of it over to a list

Nothing is printed here. Each call of Redis is followed by a call of *tick*, between two calls and
outside of what is timed; what it raises ends the run, and the keys are removed all the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median, quantiles

from celery.utils import uuid

from ..clock import When
from ..errors import DelayQError, StoreError, StoreFull
from ..message.outgoing import InterceptingProducer, OutgoingMessage, recording_producer
from ..scheduling.bulk import SLICE
from ..scheduling.prepared import PreparedMessage
from ..services import Services
from ..store import Entries, NewEntry, ScratchKeys
from ..store.record import NewRecord, destination_for
from .measurements import Figures, Link, Measure

TASK = "celery_delayq.bench"  # no such task exists, and no worker ever sees it
ROUND_TRIPS = 200
ONE_BY_ONE = 300
PAYLOAD = 100_000  # bytes, about those of a slice
PAYLOADS = 15
BRIEFLY = 1.5  # seconds at most for what is done one by one
TIDY = 50  # calls after which what arrived is removed, and the keys' time to live set anew
ROOM_FOR_ONE = 600  # bytes of Redis's memory that a waiting task may take
ENVELOPE = 100  # bytes sent with a record: id, time and the protocol's own

# All are due at once; 13 digits as the times of today, each another.
FIRST_DUE_MS, DUE_WITHIN_MS = 1_000_000_000_000, 86_400_000

Tick = Callable[[int], object]


def units(tasks: int) -> int:
    """For how many units of work *tick* is called in all, if no time runs out."""
    return ROUND_TRIPS + 2 * PAYLOADS + 2 * ONE_BY_ONE + 2 * tasks


def _longest(tasks: int) -> float:
    """Seconds at most for what is done with all tasks: a million are worth more than a thousand."""
    return max(8.0, tasks / 5000)


def run(services: Services, tasks: int, tick: Tick) -> Figures:
    """Measure; takes some seconds, with Redis as busy as one process can make it.

    Args:
        services: Whose store it is.
        tasks: How many tasks wait at a time.
        tick: Called with how much was done since the last time.

    Raises:
        StoreError: Redis is away, is or would be full, refused a step, or lost entries.
    """
    with closing(services.scratch_keys()) as room:
        link = _link(room, tick)
        # From here on there is something to remove.
        with room:
            return _Run(services, room, tick).run(tasks, link)


def _link(room: ScratchKeys, tick: Tick) -> Link:
    room.round_trip()  # connects
    trips = [trip for (trip,) in _trips(room, tick, ROUND_TRIPS, b"")]
    # Beside each other, for a link is not the same from one second to the next.
    pairs = _trips(room, tick, PAYLOADS, b"", random.randbytes(PAYLOAD))
    carried = median(loaded - bare for bare, loaded in pairs)
    return Link(median(trips), quantiles(trips, n=100)[98], max(0.0, carried / PAYLOAD))


def _trips(room: ScratchKeys, tick: Tick, count: int, *payloads: bytes) -> list[tuple[float, ...]]:
    times: list[tuple[float, ...]] = []
    until = time.monotonic() + BRIEFLY
    while len(times) < count and not (times[1:] and time.monotonic() > until):
        times.append(tuple(map(room.round_trip, payloads)))
        tick(len(payloads))
    return times


class _Run:
    """The steps that write."""

    def __init__(self, services: Services, room: ScratchKeys, tick: Tick) -> None:
        self._services = services
        self._room = room
        self._tick = tick
        self._entries = Entries(room.scripts)
        self._producer = recording_producer(services.broker.options)
        self._destination = destination_for("L", room.list)

    def run(self, tasks: int, link: Link) -> Figures:
        self._check_memory(tasks)
        one, cancel = self._one_by_one()
        bulk = self._in_bulk(tasks)
        memory = self._memory(bulk.tasks)
        return Figures(
            direct=self._services.store_is_broker,
            link=link,
            one=one,
            cancel=cancel,
            bulk=bulk,
            hand_over=self._hand_over(bulk.tasks),
            memory=memory,
        )

    def _check_memory(self, tasks: int) -> None:
        spare = self._room.spare()
        # A full Redis refuses what others write, or evicts what others wrote.
        if spare is not None and tasks * ROOM_FOR_ONE > spare:
            raise StoreFull(
                "bench",
                f"{tasks} waiting tasks may take {tasks * ROOM_FOR_ONE} bytes, and Redis has "
                f"{max(0, spare)} left of its maxmemory",
            )

    def _one_by_one(self) -> tuple[Measure, Measure]:
        held: list[str] = []

        def schedule(_: int) -> int:
            new = self._new(self._message().new_record(self._destination, share=True))
            self._schedule([new])
            held.append(new.task_id)
            return 1

        def cancel(_: int) -> int:
            outcome, _message = self._entries.cancel(held.pop())
            if not outcome:
                raise StoreError("bench", f"an entry cannot be cancelled: {outcome.value}")
            return 1

        one = self._measure(schedule, ONE_BY_ONE, BRIEFLY, size=self._size())
        return one, self._measure(cancel, len(held), BRIEFLY)

    def _in_bulk(self, tasks: int) -> Measure:
        record = self._records()

        def schedule(left: int) -> int:
            new = [self._new(record(number)) for number in range(min(SLICE, left))]
            self._schedule(new)
            return len(new)

        return self._measure(schedule, tasks, _longest(tasks), size=self._size() * SLICE)

    def _memory(self, tasks: int) -> float | None:
        taken = self._room.memory()
        # The name of the list is part of each record, and longer than that of a usual queue.
        longer = len(self._room.list) - len(self._services.app.conf.task_default_queue)
        return None if taken is None else taken / tasks - longer

    def _hand_over(self, tasks: int) -> Measure:
        engine = self._services.engine(self._room.scripts)
        before = self._room.arrived

        def move(_: int) -> int:
            seen = engine.hand_over()
            for _task_id, reason in seen.dead:
                raise StoreError("hand-over", reason)
            return seen.handed_over

        measure = self._measure(move, tasks, _longest(tasks))
        if self._room.arrived - before != measure.tasks:
            raise self._lost()
        return measure

    def _measure(
        self, step: Callable[[int], int], wanted: int, longest: float, *, size: float = 0
    ) -> Measure:
        """Take *step* until all *wanted* tasks are dealt with, or *longest* seconds are over."""
        times: list[float] = []
        done, spent, used, before = 0, 0.0, 0.0, self._room.cpu()
        while done < wanted and spent < longest:
            began, computed = time.perf_counter(), time.process_time()
            dealt = step(wanted - done)
            times.append(time.perf_counter() - began)
            used += time.process_time() - computed
            if not dealt:
                raise self._lost()
            done, spent = done + dealt, spent + times[-1]
            if len(times) % TIDY == 1:
                self._room.tidy()
            self._tick(dealt)
        after = self._room.cpu()
        self._room.tidy()
        redis = None if before is None or after is None else after - before
        return Measure(len(times), done, spent, max(times), size, used, redis)

    def _message(self) -> OutgoingMessage:
        """What the app makes of a call, but by no way on which somebody would hear of a task."""
        got: list[OutgoingMessage] = []
        conf = self._services.app.conf
        made = self._services.app.amqp.create_task_message(
            uuid(), TASK, (42,), {}, reply_to=self._services.app.thread_oid
        )
        InterceptingProducer(self._producer, got.append).publish(
            made.body,
            routing_key=conf.task_default_queue,
            serializer=conf.task_serializer,
            compression=conf.task_compression,
            headers=made.headers,
            **made.properties,
        )
        return got[0]

    def _records(self) -> Callable[[int], NewRecord]:
        """What makes the records of a bulk, as ``schedule_many`` does."""
        message = self._message()
        prepared = PreparedMessage.of(self._services.app, message, self._destination)
        bare = message.new_record(self._destination, share=False)
        return lambda number: (prepared and prepared.new_record((number,), {})) or bare

    def _size(self) -> int:
        return len(self._records()(42).body) + len(self._destination) + ENVELOPE

    def _new(self, record: NewRecord) -> NewEntry:
        due_ms = FIRST_DUE_MS + random.randrange(DUE_WITHIN_MS)
        return NewEntry(uuid(), When("at", due_ms), record)

    def _schedule(self, new: list[NewEntry]) -> None:
        for answer in self._entries.schedule(new, operation=b"bench---", again=False):
            if isinstance(answer, DelayQError):
                raise answer

    def _lost(self) -> StoreError:
        return StoreError(
            "bench", "not all entries came out; Redis evicted some, or somebody removed them"
        )

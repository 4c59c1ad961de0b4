"""What the store's Redis takes of this package's work, measured there on scratch keys.

    round trip -> schedule, then cancel, one by one -> schedule in bulk -> weigh -> hand over

The entries are ready-made, of a usual size: what Celery does to make messages comes on top.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..clock import When
from ..errors import StoreError, StoreFull
from ..scheduling.bulk import SLICE
from ..services import Services
from ..store import Entries, NewEntry, ScratchKeys
from ..store.record import LINES, Template, destination_for, labels_for

ONE_BY_ONE = 200  # calls; enough on loopback, and on a slow link not too many
NEEDED = 600  # bytes of Redis's memory that a waiting task may take
LONG_AGO_MS, DAY_MS = 1_000_000_000_000, 86_400_000  # all are due at once, each at another time

# As long as the parts of a no-op task's message.
_TEMPLATE = Template.of(["_" * 70] * LINES)
_LABELS = labels_for("doctor", "doctor")
_DIFFERING = ("", "null", "null", '"(42,)"', '"{}"', '"' + "_" * 108 + '"')

Progress = Callable[[int], object]
Act = Callable[[int], int]


@dataclass(frozen=True)
class Step:
    """One kind of call; *limit*: what it waits for most, this_process, round_trip or redis."""

    per_second: float
    limit: str


@dataclass(frozen=True)
class Measurements:
    """All that was measured; *direct*: this app's tasks go to their lists as they did here."""

    direct: bool
    round_trip_ms: float
    schedule_one: Step
    cancel_one: Step
    schedule_many: Step
    memory_bytes_per_task: int | None
    hand_over: Step


def measure(services: Services, tasks: int, progress: Progress) -> Measurements:
    """Measure with so many waiting tasks, for some seconds in which Redis has little rest.

    *progress* is told after each call how much was done, of ``3 * ONE_BY_ONE + 2 * tasks``.

    Raises:
        StoreError: Redis is away, is or would be full, refused a step, or lost entries.
    """
    scratch = services.scratch_keys()
    entries, engine = (
        Entries(scratch.scripts, services.membership),
        services.engine(scratch.scripts),
    )
    schedule = partial(_schedule, entries, destination_for("L", scratch.list))
    with scratch:
        _refuse_if_full(scratch, tasks)
        step = partial(_step, scratch, progress)
        bare = step(0.0, lambda _: scratch.execute("EVAL", "return 1", 0), ONE_BY_ONE)
        step = partial(step, 1 / bare.per_second)
        one = step(partial(schedule, 1), ONE_BY_ONE)
        cancel = step(lambda left: bool(entries.cancel(_id(left - 1))[0]), ONE_BY_ONE)
        many = step(partial(schedule, SLICE), tasks)
        memory = scratch.memory()
        hand_over = step(lambda _: engine.hand_over().handed_over, tasks)
    size, trip_ms = memory and round(memory / tasks), round(1000 / bare.per_second, 3)
    return Measurements(services.store_is_broker, trip_ms, one, cancel, many, size, hand_over)


def _refuse_if_full(scratch: ScratchKeys, tasks: int) -> None:
    told = scratch.if_allowed("INFO", "memory") or b""
    found = dict(re.findall(rb"^(used_memory|maxmemory):(\d+)", told, re.MULTILINE))
    limit, used = int(found.get(b"maxmemory", 0)), int(found.get(b"used_memory", 0))
    # A full Redis refuses what others write, or evicts what others wrote.
    if limit and tasks * NEEDED > limit - used:
        why = f"{tasks} tasks may take {tasks * NEEDED} bytes, maxmemory leaves {limit - used}"
        raise StoreFull("doctor", why)


def _schedule(entries: Entries, destination: bytes, most: int, left: int) -> int:
    record = _TEMPLATE.new_record(destination, _LABELS, _DIFFERING)
    new = [
        NewEntry(_id(number), When("at", LONG_AGO_MS + random.randrange(DAY_MS)), record)
        for number in range(max(0, left - most), left)
    ]
    entries.schedule(new)
    return len(new)


def _id(number: int) -> str:
    return f"{number:036}"  # as long as Celery's


def _step(scratch: ScratchKeys, progress: Progress, trip: float, act: Act, wanted: int) -> Step:
    """*act* until all *wanted* tasks are dealt with; it says with how many it did."""
    calls, done, seconds, own = 0, 0, 0.0, 0.0
    while done < wanted:
        began, computed = time.perf_counter(), time.process_time()
        dealt = act(wanted - done)
        seconds += time.perf_counter() - began
        own += time.process_time() - computed
        if not dealt:
            raise StoreError("doctor", "entries are gone; Redis or somebody else removed them")
        done += dealt
        # Of what goes one by one, only now and then, and in the end: it takes as long as a call.
        if dealt > 1 or not calls % 10 or done >= wanted:
            scratch.tidy()
        calls += 1
        progress(dealt)
    # Of a round trip this process computes a part; and what is left, Redis does.
    link = min(calls * trip, max(0.0, seconds - own))
    parts = {"this_process": own, "round_trip": link, "redis": seconds - own - link}
    return Step(round(done / seconds, 1), max(parts, key=parts.__getitem__))

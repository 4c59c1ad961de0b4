"""Load a dump: what it has is kept as it was, slice by slice.

lines --checked--> entries as this app's store keeps them --SLICE at a time--> the store
                          |                                  loaded, or it is here already, has
                          +-- this app cannot take it        left since, or is in another's way

The same dump loaded again adds nothing: an entry is known by its id and the time of its scheduling.
So where it was broken off, the same call goes on. What has left is known so while the store has its
tombstone: the last 10,000 to 20,000 of a shard. A store that is paused hands nothing over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..care import dumps, loads
from ..care.loads import OldEntry
from ..errors import AlreadyScheduled, DelayQError, InvalidDump, MessageTooLarge, NotLoaded
from ..message.dumped import Target, least_size
from ..services import Services
from ..store import lane_for
from ..store.record import NewRecord, lanes_of
from .lines import DUMP, PAUSE, TASK, UNREADABLE, Given, bounded, read
from .pausing import is_all_paused

SLICE = 100  # tasks of one call: some 3 ms of Redis's time
SLICE_BYTES = 500_000  # of them, about
# By how much a line may be longer than its message, of which JSON has six characters a byte.
LONGER, BESIDE = 6, 1_000_000
_ID_TAKEN = "another task has its id here"
_KEY_TAKEN = "task {!r} has its unique key here"
_KEYS = "it has a unique key, and a key needs one shard: delayq_shards is {}"


@dataclass
class Loaded:
    """What became of the tasks of a dump.

    Attributes:
        loaded: How many were written; of a dry run: could be read, whatever the store has already.
        here: How many were here already: the same tasks.
        left: How many had left this store since they were scheduled, and do not come back.
        skipped: How many were left out, as told, because another task has their id or key.
        refused: Why others were not loaded.
        unreadable: The ids of those that the dump has as unreadable, and why.
    """

    loaded: int = 0
    here: int = 0
    left: int = 0
    skipped: int = 0
    refused: list[DelayQError] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Loaded) -> None:
        """Count what became of more of them."""
        for name in ("loaded", "here", "left", "skipped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.refused += other.refused
        self.unreadable += other.unreadable

    @property
    def met(self) -> int:
        """How many tasks of the dump were dealt with."""
        others = len(self.refused) + len(self.unreadable)
        return self.loaded + self.here + self.left + self.skipped + others

    def __bool__(self) -> bool:
        return not self.refused and not self.unreadable


Lines = Iterable[Given]


def load(
    services: Services,
    lines: Lines,
    *,
    progress: Callable[[Loaded], object] | None = None,
    **options: bool,
) -> Loaded:
    """Keep what a dump has; see :meth:`DelayQ.load`."""
    whole = Loaded()
    for part in steps(services, lines, **options):
        whole.add(part)
        if progress is not None:
            progress(whole)
    return whole


def steps(
    services: Services,
    lines: Lines,
    moving: Callable[[], object] | None = None,
    /,
    *,
    skip_existing: bool = False,
    paused: bool = False,
    dry_run: bool = False,
) -> Iterator[Loaded]:
    """The same slice by slice, while one iterates: what became of each.

    Calls *moving* before the first is written, unless everything is paused by then.

    Raises:
        InvalidDump: it is none, was cut, or has a line that is damaged. What came before is loaded.
        StoreError: what was loaded before stays.
    """
    loading = _Loading(services, skip_existing, paused, dry_run)
    loading.moving = moving
    longest = LONGER * services.settings.max_message + BESIDE
    try:
        for number, line in read(bounded(lines, longest)):
            loading.take(number, line)
            if loading.is_full:
                yield loading.write()
    except InvalidDump:
        yield loading.write()
        raise
    yield loading.write()


class _Loading:
    """What was read of a dump, and is still to be written."""

    def __init__(
        self, services: Services, skip_existing: bool, paused: bool, dry_run: bool
    ) -> None:
        self._services = services
        self._skip_existing = skip_existing
        self._paused = paused
        self._dry_run = dry_run
        self._target = Target(
            services.broker,
            services.app.amqp.queues,
            services.store_is_broker,
            services.settings.prefix,
        )
        self._entries: list[OldEntry] = []
        self._bytes = 0
        self._told = Loaded()
        self._paused_here: set[bytes] | None = None  # lanes that were, before the load
        self._late: set[bytes] = set()  # lanes whose pause counts as lateness in the dump
        self._excused: set[bytes] = set()  # those that come back there, and whose pause does not
        self._now_ms: int | None = None  # when this slice was begun
        self.moving: Callable[[], object] | None = None  # whom to tell that it is not paused

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= SLICE or self._bytes >= SLICE_BYTES

    def take(self, number: int, line: Mapping[str, Any]) -> None:
        """Take note of a line."""
        if line["kind"] == DUMP and self._paused:
            self._pause({})
        elif line["kind"] == PAUSE:
            if "queue" in line and "task" in line:
                raise InvalidDump(number, "it has a queue and a task; expected one of them")
            self._pause(line)
        elif line["kind"] == UNREADABLE:
            self._told.unreadable.append((line["id"], line.get("reason", "")))
        elif line["kind"] == TASK:
            self._take_task(line)

    def write(self) -> Loaded:
        """Write what was taken; what became of it."""
        entries, told = self._entries, self._told
        self._entries, self._bytes, self._told, self._now_ms = [], 0, Loaded(), None
        if self._dry_run:
            told.loaded += len(entries)
        elif entries:
            self._tell_whether_moving()
            for answer in loads.load(self._services.entries, entries):
                self._count(told, answer)
        return told

    def _tell_whether_moving(self) -> None:
        moving, self.moving = self.moving, None
        if moving is not None and not is_all_paused(self._services):
            moving()

    def _count(self, told: Loaded, answer: str | DelayQError) -> None:
        if isinstance(answer, str):
            setattr(told, answer, getattr(told, answer) + 1)
        elif not isinstance(answer, AlreadyScheduled):
            told.refused.append(answer)
        elif self._skip_existing:
            told.skipped += 1
        else:
            why = _KEY_TAKEN.format(answer.holder) if answer.holder else _ID_TAKEN
            told.refused.append(NotLoaded(answer.task_id, why))

    def _pause(self, line: Mapping[str, Any]) -> None:
        queue, task = line.get("queue"), line.get("task")
        lane, late, resumed = lane_for(queue, task), line.get("late", False), line.get("resumed")
        if late:
            self._late.add(lane)
        elif resumed:
            self._excused.add(lane)
        # What comes back has no pause any more.
        if not (self._dry_run or resumed or lane in self._lanes_paused_here()):
            self._services.entries.pause(lane, queue or task or "", late=late)

    def _lanes_paused_here(self) -> set[bytes]:
        if self._paused_here is None:
            found = self._services.entries.pauses()
            self._paused_here = {lane_for(one.queue, one.task) for one in found if not one.resumed}
        return self._paused_here

    def _take_task(self, line: Mapping[str, Any]) -> None:
        try:
            entry = self._entry_of(line)
        except DelayQError as error:
            self._told.refused.append(error)
            return
        self._entries.append(entry)
        self._bytes += entry.record.size

    def _entry_of(self, line: Mapping[str, Any]) -> OldEntry:
        settings = self._services.settings
        if settings.shards > 1 and "key" in line:
            raise NotLoaded(line["id"], _KEYS.format(settings.shards))
        record = self._record_of(line)
        if line["state"] == "paused" and "grace_ms" in line and self._excuses(record):
            excused_ms = max(line.get("excused_ms", 0), self._now())
            record = self._record_of({**line, "excused_ms": excused_ms})
        if record.size > settings.max_message:
            # Tags and key were not measured when it was scheduled, nor the headers of what a worker
            # adopted: what is measured everywhere is its body.
            size = least_size(line["message"])
            if size > settings.max_message:
                raise MessageTooLarge(line["id"], size, settings.max_message)
        # What was paused falls due again, and meets the pause; what was in flight may be a second
        # copy by now, as it is marked.
        place = line["state"] if line["state"] in ("refused", "dead") else "waiting"
        times = {"refused": "next_try_ms", "dead": "dead_since_ms"}
        return OldEntry(
            line["id"],
            line["due_ms"],
            line["scheduled_us"],
            record,
            place=place,
            when_ms=line.get(times.get(place, ""), 0),
            attempts=line.get("attempts", 0),
            refusals=line.get("refusals", 0),
            uncertain=line.get("may_be_delivered", False),
            error=line.get("error", ""),
            is_named=line.get("holds_key", False),
        )

    def _record_of(self, line: Mapping[str, Any]) -> NewRecord:
        return self._target.new_record(line["id"], line["scheduled_us"], line)

    def _excuses(self, record: NewRecord) -> bool:
        """Whether its lateness counts from now, as after a ``resume``."""
        lanes = lanes_of(record.labels)
        return bool(lanes & self._excused) or not lanes & self._late

    def _now(self) -> int:
        if self._now_ms is None:
            self._now_ms = dumps.now_ms(self._services.entries)
        return self._now_ms

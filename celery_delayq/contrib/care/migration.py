"""Moves a store to another number of shards, and lets it have a newer format.

    close ---> copy ---> switch ---> clear       each phase is noted at the meeting place
      '---------'-------abort

close   The old shards refuse changes. Calls and leases from before come to their end.
copy    Everything goes to the new shards, which no process uses yet. Places keep their order.
switch  The old shards refuse reads, too; the new ones open; the number of shards changes.
clear   The old keys are deleted.

The old shards are whole until the number changes, in one write. Each step may come twice, or late:
it has the name of its resharding, and the shard knows how far that is. So another run goes on after
a crash, and two at once do the same work. A run that goes on reads everything again, and writes
what is missing: as the old shards do not change, each copy is the same. Answers and fences of calls
are not copied, as their calls are over. With ``delayq_wait_replicas``, replicas have each step
before the next one begins, so a failover finds the old shards or the new ones whole.

A format is raised by hand, because only you know whether you may still want to go back to the
release before, and only as far as each live scanner reads. ``lua/prelude/record.lua`` and
``lua/prelude/rules.lua`` say what each format keeps, the changelog what it changes.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from ...core import clock
from ...core.errors import StoreDiffers, StoreError
from ...core.servers.risks import LEFT_BYTES, OK, WARNING, Facts, Line
from ...core.services import Configured, Services
from ...core.store.calls import Wanted
from ...core.store.keys import shard_of
from ...core.store.record import FORMAT
from ...core.store.scripts import Scripts
from ...core.text import counted, plain

PAGE = 200  # entries of a step: some 3 ms
PAGE_BYTES = 1_000_000
NOTES = 1000  # tombstones, marks, events and so on of a step: some 1 ms
# Those that fell due come first: they are earlier than any in `due` with the same time.
PLACES = ("parked", "refused", "leased", "behind", "dead", "due", "relay")
HASHES = (
    "tombstones",
    "tombstones_old",
    "arrived",
    "arrived_old",
    "outbox_messages",
    "held",
    "rules",
)
LISTS = ("history", "history_changes", "history_parts")
MOST_EVENTS = 10_000  # of the longest history, in each of these lists
LOOK_AGAIN = 0.2  # seconds between two looks at leases
CATCH_UP = 30.0  # seconds that replicas have for a step
ENTRY_BYTES = 480  # of an entry beside its record
COPYING = 2.5  # times as long as to read an entry
LEFT_SECONDS = 0.00001  # to copy a tombstone
# Levels of a shard; see store/lua/close.lua.
OPEN, NO_CHANGES, FINAL, MOVED, FILLING, EMPTY = range(6)

_ASIDE = "it lays such tasks and rules aside for another one: upgrade its worker"


class OutOfStepError(Exception):
    """Another process has gone on with the resharding, or ended it."""


class Copying:
    """A copy of all shards, under the name of a resharding."""

    def __init__(self, old: Sequence[Scripts], new: Sequence[Scripts], run: str) -> None:
        self._old = old
        self._new = new
        self._run = run
        self._last = 0  # insertion number
        self._sent = [set[bytes]() for _ in new]  # names of templates

    def entries(self, tell: Callable[[int], object]) -> None:
        """Copy all entries; *tell* is called with the number of those read so far.

        Raises:
            OutOfStepError: another process went on.
            StoreError: a task waits in two shards.
        """
        for scripts in self._old:
            count = sizes(scripts)
            for part in PLACES:
                first = 0
                while first >= 0:
                    page = read_page(scripts, part, first, self._last)
                    self._spread(part, page)
                    first = page.next
                    tell(self._last + max(first, 0))
                self._last += count[part]

    def _spread(self, part: str, page: Any) -> None:
        """Write a page of entries, each to its shard."""
        texts = {row.name: row.text for row in page.templates}
        rows: defaultdict[int, list[Any]] = defaultdict(list)
        for entry in page.found:
            number = self._number_of(entry.key or entry.id)
            template = (
                b"" if entry.template in self._sent[number] else texts.get(entry.template, b"")
            )
            self._sent[number].add(entry.template)
            rows[number] += (entry.id, entry.there, entry.score, entry.record)
            rows[number] += (entry.named, entry.claim, entry.error, template)
        for number, entries in rows.items():
            answer = self._new[number].call("move_in", run=self._run, part=part, entries=entries)
            if isinstance(answer, bytes):
                raise StoreError(
                    "reshard",
                    f"the task {answer.decode(errors='replace')} waits in two shards; run: "
                    "reshard --abort, and cancel one of the two",
                )
            in_step(answer)

    def rest(self) -> None:
        """Copy what is beside the entries, after these.

        Raises:
            OutOfStepError: another process went on.
        """
        for part in HASHES:
            for some in _slices(self._old, part):
                parts: defaultdict[int, list[Any]] = defaultdict(list)
                for item in some:
                    # A mark does not tell its task, so each shard gets it.
                    is_mark = part.startswith("arrived")
                    for number in (
                        range(len(self._new)) if is_mark else [self._number_of(_home(part, item))]
                    ):
                        parts[number].append(item)
                for number, given in parts.items():
                    self._fill(number, part, given)
        # A lane that is paused in one shard and comes back in another one is paused.
        pauses = sorted(_all(self._old, "paused"), key=lambda item: bytes(item.value[:1]))
        # As old as the oldest; unknown, if that of one is: such a shard is older still.
        began = min(shard.call("agreed").began for shard in self._old)
        for number in range(len(self._new)):
            self._fill(number, "paused", {pause.field: pause.value for pause in pauses}.items())
            meta = [("seq", self._last), ("format", format_of(self._old)), ("began", began)]
            self._fill(number, "meta", meta)
        # In one shard: readers merge the events of all, and see the latest.
        for part in LISTS:
            events = sorted((item.value for item in _all(self._old, part)), key=_when)
            self._fill(0, part, enumerate(events[-MOST_EVENTS:]))

    def _fill(self, number: int, part: str, given: Iterable[tuple[Any, Any]]) -> None:
        rest, rate = iter(given), len(self._old) / len(self._new)
        while some := list(islice(rest, _most(part))):
            flat = [word for pair in some for word in pair]
            answer = self._new[number].call(
                "fill_rest", run=self._run, part=part, rate=rate, last=self._last, given=flat
            )
            in_step(answer)

    def _number_of(self, name: bytes) -> int:
        """Return the shard of an id, a key or, after a byte of its own, a key's tombstone."""
        return shard_of(name.removeprefix(b"\xff").decode(errors="replace"), len(self._new))


def _home(part: str, item: Any) -> bytes:
    """Return the name that says the shard of a field; the row of a rule has its own."""
    if part != "rules":
        return bytes(item.field)
    try:
        return str(json.loads(item.value)["home"]).encode()
    except (KeyError, TypeError, ValueError):  # another program wrote it
        return bytes(item.field)


def read_page(scripts: Scripts, part: str, first: int, base: int) -> Any:
    """Return the reply of ``move_out.lua``."""
    return scripts.call(
        "move_out", part=part, first=first, base=base, count=PAGE, max_bytes=PAGE_BYTES
    )


def sizes(scripts: Scripts) -> Counter[str]:
    """Return how many entries each place of a shard has; of records; of leases that still hold."""
    return Counter({item.field.decode(): item.value for item in _all([scripts], "sizes")})


def in_step(answer: int) -> None:
    """Check a script's answer.

    Raises:
        OutOfStepError: it did nothing.
    """
    if not answer:
        raise OutOfStepError


def _most(part: str) -> int:
    return PAGE if part == "outbox_messages" else NOTES


def _slices(shards: Iterable[Scripts], part: str) -> Iterator[Sequence[Any]]:
    for scripts in shards:
        cursor: Any = 0
        while True:
            cursor, found = scripts.call("move_rest", part=part, cursor=cursor, count=_most(part))
            yield found
            if int(cursor) == 0:
                break


def _all(shards: Iterable[Scripts], part: str) -> list[Any]:
    return [item for some in _slices(shards, part) for item in some]


def _when(event: bytes) -> bytes:
    return event[1:14]


class Phase(NamedTuple):
    """A phase of a resharding, as the meeting place notes it."""

    name: str
    before: int
    after: int
    run: str

    @classmethod
    def read(cls, text: str) -> Phase | None:
        name, *rest = text.split(" ")
        return cls(name, int(rest[0]), int(rest[1]), rest[2]) if rest else None

    @property
    def text(self) -> str:
        return " ".join(map(str, self))


@dataclass(frozen=True)
class Estimate:
    """The time and memory for a resharding.

    Attributes:
        entries: The number of tasks in the store.
        bytes: The memory for their copies.
        seconds: How long nothing can be scheduled or delivered, about.
        lacks: The bytes that Redis lacks for that; 0 if there is enough, or no limit is known.
    """

    entries: int
    bytes: int
    seconds: float
    lacks: int


class Resharding:
    """Moves the store of an app.

    Args:
        services: The app's. Its own number of shards makes no difference.
        tell: Called with the number of entries that were copied so far.
    """

    def __init__(self, services: Services, tell: Callable[[int], object] = lambda _: None) -> None:
        self._services = services
        self._tell = tell
        self._layouts: dict[int, Configured] = {}

    def shards(self) -> int | None:
        """Return the store's number of shards; ``None`` if no process has used it yet."""
        return self._read()[0]

    def under_way(self) -> Phase | None:
        """Return the phase of an unfinished resharding; ``None`` if there is none."""
        return self._read()[1]

    def run(self, shards: int) -> bool:
        """Move the store to this number of shards, or go on with that; return whether it changed.

        Raises:
            StoreError: another resharding is under way, memory is short, or the store is damaged.
        """
        number, phase, _ = self._read()
        if phase is None:
            if number in (None, shards):
                return False
            self._check(number or 1, shards)
            run = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
            phase = self._go_on(None, Phase("close", number or 1, shards, run))
        if phase is not None and (phase.after != shards or phase.name == "abort"):
            wanted = "--abort" if phase.name == "abort" else phase.after
            raise _error(
                f"the store is being resharded from {phase.before} to {phase.after} shards; finish "
                f"that first: reshard {wanted}"
            )
        self._finish()
        if self.shards() != shards:
            raise _error("another process has aborted it")
        return True

    def _check(self, before: int, after: int) -> None:
        """Raise an error if all tasks could not be copied, or not be delivered afterwards."""
        if self._layout(before).store_is_broker and not self._layout(after).store_is_broker:
            raise _error(
                "the tasks are bound for queues in the slot of a single shard; use dump and load, "
                "which find the new way to each queue"
            )
        if lacks := self.estimate(after).lacks:
            raise _error(f"Redis lacks {lacks:,} bytes of memory for a copy of all tasks")

    def abort(self) -> bool:
        """Give a resharding up; return whether there was one.

        Raises:
            StoreError: it is too late, so it can only be finished.
        """
        phase = was = self.under_way()
        if phase is not None and phase.name in ("close", "copy"):
            phase = self._go_on(phase, phase._replace(name="abort"))
        if phase is not None and phase.name != "abort":
            raise _error(f"it is too late to abort; finish it: reshard {phase.after}")
        self._finish()
        return was is not None

    def estimate(self, shards: int) -> Estimate:
        """Return what it takes, from a sample; changes nothing."""
        old = self._shards(self.shards() or shards)
        entries, left, read, length, seconds = 0, 0, 0, 0, 0.0
        for scripts in old:
            size = sizes(scripts)
            entries += size["records"]
            left += size["left"]
            began = clock.monotonic()
            found = read_page(scripts, max(("due", "relay"), key=size.__getitem__), 0, 0).found
            seconds += clock.monotonic() - began
            read += len(found)
            length += sum(len(entry.record) for entry in found)
        share = entries / max(1, read)
        need = round(share * length) + entries * ENTRY_BYTES + left * LEFT_BYTES
        lacks = _lacking(self._shards(shards), need)
        seconds = share * seconds * COPYING + left * LEFT_SECONDS
        return Estimate(entries, need, self._longest_call() + seconds, lacks)

    def close(self) -> None:
        """Close its connections."""
        for layout in self._layouts.values():
            layout.close()

    def _finish(self) -> None:
        stuck = None
        while (phase := self.under_way()) is not None:
            self._go_on(phase, phase)
            try:
                getattr(self, f"_{phase.name}")(phase)
            except (OutOfStepError, StoreDiffers):
                if stuck == phase:
                    raise _error("a new shard is in use; give up: reshard --abort") from None
                stuck = phase

    # The phases; each notes the next one at its end.

    def _close(self, phase: Phase) -> None:
        old = self._shards(phase.before)
        self._set(old, NO_CHANGES, phase)
        # Calls from before end meanwhile, or are refused: no copy needs their answers and fences.
        clock.sleep(self._longest_call())
        while any(sizes(shard)["lasting"] for shard in old):
            clock.sleep(LOOK_AGAIN)
        self._set(old, FINAL, phase)
        self._set(self._shards(phase.after), FILLING, phase)
        self._go_on(phase, phase._replace(name="copy"))

    def _copy(self, phase: Phase) -> None:
        old, new = self._shards(phase.before), self._shards(phase.after)
        copying = Copying(old, new, phase.run)
        copying.entries(self._tell)
        copying.rest()
        self._set(new, FILLING, phase)  # once more, to wait for the replicas
        if _records(old) != _records(new):
            if self.under_way() != phase:
                raise OutOfStepError
            raise _error(
                "some tasks have lost their place; run: reshard --abort, and then: check --repair"
            )
        self._go_on(phase, phase._replace(name="switch"))

    def _switch(self, phase: Phase) -> None:
        self._set(self._shards(phase.before), MOVED, phase)
        self._set(self._shards(phase.after), OPEN, phase)
        self._go_on(phase, phase._replace(name="clear"))

    def _clear(self, phase: Phase) -> None:
        self._set(self._shards(phase.before), EMPTY, phase)
        self._go_on(phase, None)

    def _abort(self, phase: Phase) -> None:
        back = phase._replace(before=phase.after, after=phase.before)
        for shard in self._shards(phase.after):
            self._ask(shard, EMPTY, back)  # it may not be filled yet
        self._set(self._shards(phase.before), OPEN, phase)
        self._go_on(phase, None)

    def _set(self, shards: Iterable[Scripts], level: int, phase: Phase) -> None:
        for shard in shards:
            in_step(self._ask(shard, level, phase))

    def _ask(self, scripts: Scripts, level: int, phase: Phase) -> int:
        numbers = phase[2:0:-1] if level == FILLING else phase[1:3]
        ours, theirs = numbers
        arguments = {"level": level, "ours": ours, "theirs": theirs, "run": phase.run}
        done: int = self._write(scripts, "close", **arguments)
        return done

    def _write(self, scripts: Scripts, name: str, **arguments: Any) -> Any:
        """Run a script; return its reply once replicas have what was written here so far.

        Raises:
            StoreError: too few replicas have it.
        """
        wait = self._services.settings.wait_replicas
        if wait is None:
            return scripts.call(name, **arguments)
        wanted = Wanted(*wait)
        until = clock.monotonic() + CATCH_UP + self._services.settings.timeout
        answer, told = scripts.call_and(name, wanted.packed(CATCH_UP), until=until, **arguments)
        local, reached = wanted.reached(told)
        if not local or reached < wanted.replicas:
            raise _error(
                f"within {CATCH_UP:g} s {reached} of {wanted.replicas} replicas had what was "
                "written (delayq_wait_replicas); nothing is lost: run it again"
            )
        return answer

    # The meeting place.

    def _read(self) -> tuple[int | None, Phase | None, float]:
        return self._noted("", "")

    def _go_on(self, seen: Phase | None, then: Phase | None) -> Phase | None:
        """Note the next phase, unless another process has gone on; return the noted one."""
        return self._noted(seen.text if seen else "", then.text if then else "")[1]

    def _noted(self, seen: str, then: str) -> tuple[int | None, Phase | None, float]:
        (scripts,) = self._shards(1)
        if then:
            shards, phase, timeout = self._write(scripts, "reshard", seen=seen, next=then)
        else:
            shards, phase, timeout = scripts.call("reshard", seen=seen, next=then)
        return int(shards) if shards else None, Phase.read(phase.decode()), timeout / 1000

    def _longest_call(self) -> float:
        """Return how many seconds a call of the store's processes may take."""
        return self._read()[2]

    def _shards(self, number: int) -> Sequence[Scripts]:
        """Return the shards of which there are so many."""
        return self._layout(number).scripts

    def _layout(self, number: int) -> Configured:
        if number not in self._layouts:
            self._layouts[number] = Configured(self._services, number)
        return self._layouts[number]


def _records(shards: Iterable[Scripts]) -> int:
    return sum(sizes(shard)["records"] for shard in shards)


def _lacking(shards: Sequence[Scripts], need: int) -> int:
    """Return how many bytes the servers lack for this need, shared by all shards."""
    needs, room = Counter[str](), dict[str, int]()
    for shard in shards:
        facts = Facts.ask(shard.connection)
        name = facts.info.get("run_id", "")
        needs[name] += need // len(shards)
        if facts.maxmemory and facts.used is not None:
            room[name] = max(0, facts.maxmemory - facts.used)
    return max([0, *(needs[name] - left for name, left in room.items())])


def _error(why: str) -> StoreError:
    return StoreError("reshard", why)


def format_of(shards: Iterable[Scripts]) -> str:
    """Return the newest format of records and rules of these shards; empty, if unused."""
    return max(_text(shard.call("agreed").format) for shard in shards)


def upgrade(services: Services) -> str:
    """Let records and rules have the newest format that this release and each live scanner read.

    Returns:
        The newest that they may have from now on. It is never lowered.

    Raises:
        StoreDiffers: other processes use the store with different settings.
        StoreError: the store cannot be reached, or refuses.
    """
    services.entries.check_membership()
    return min(_text(shard.call("upgrade")[0]) for shard in services.scripts)


def older_scanners(services: Services, than: str) -> list[str]:
    """Return the names of the live scanners that do not read a format."""
    return sorted(one.name for one in services.entries.scanners() if one.reads < than)


def formats(services: Services) -> Iterator[Line]:
    """Say whether each scanner reads what the store has, and whether more is possible."""
    has = format_of(services.scripts) or FORMAT
    old = older_scanners(services, has)
    for name in old:
        yield Line("format", WARNING, f"scanner {plain(name)} reads none of format {has}", _ASIDE)
    if has < FORMAT and not older_scanners(services, FORMAT):
        found = f"tasks and rules have format {has}, and each scanner reads {FORMAT}"
        yield Line("format", WARNING, found, "run celery delayq upgrade, if you do not go back")
    elif not old:
        yield Line("format", OK, f"tasks and rules have format {has}, and each scanner reads it")


def told(new: str, old: Sequence[str]) -> str:
    """Say what an upgrade did; *old*: the scanners that are in the way of a newer format."""
    if new >= FORMAT:
        return f"tasks and rules may have format {new}, the newest that this release knows"
    names = ", ".join(map(plain, old))
    scanners = counted(len(old), "scanner")
    return f"tasks and rules keep format {new}: {scanners} cannot read {FORMAT}: {names}"


def _text(word: bytes) -> str:
    return word.decode()

"""Copies closed shards to those of another number, page by page; see ``resharding.py``.

    old shard --move_out--> entries   --by key, or id--> move_in   --> new shards
              --move_rest-> the rest  --by id, or all--> fill_rest -->

The old shards do not change, so each copy is the same: entries have the order number in which they
come here, place after place. Writing one twice changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ...core.errors import StoreError
from ...core.store.keys import shard_of
from ...core.store.scripts import Scripts
from .upgrading import format_of

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

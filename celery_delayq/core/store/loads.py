"""The step that restores entries as they were: of a dump, or of a canvas that waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ..errors import AlreadyScheduled, DelayQError
from .entries import Entries
from .record import NewRecord
from .shard import Shard

WAITING, REFUSED, DEAD = "waiting", "refused", "dead"


@dataclass(frozen=True)
class OldEntry:
    """An entry to restore.

    Attributes:
        task_id: The task's id.
        due_ms: Its due time.
        created_us: When it was scheduled; ``None``: now, even if its id has left the store.
        record: The record to write.
        place: ``waiting``, ``refused``, ``behind`` or ``dead``.
        when_ms: The next attempt of a refused entry; the time of death of a dead one; the due time
            of one behind another.
        attempts, refusals, uncertain, error, is_named: See :class:`Kept`.
    """

    task_id: str
    due_ms: int
    created_us: int | None
    record: NewRecord
    place: str = WAITING
    when_ms: int = 0
    attempts: int = 0
    refusals: int = 0
    uncertain: bool = False
    error: str = ""
    is_named: bool = True

    @property
    def claim(self) -> str:
        """Its attempts, as ``load.lua`` takes them; empty if there were none."""
        if not (self.attempts or self.refusals or self.uncertain):
            return ""
        return f"{self.attempts}:{self.refusals}:{int(self.uncertain)}"


def restore(entries: Entries, given: Sequence[OldEntry]) -> list[str | DelayQError]:
    """Restore entries, those of a shard in one step; the caller bounds how many.

    Returns:
        For each entry ``loaded``; ``here``, if it is in the store already; ``left``, if a task with
        its id has left the store since it was scheduled; or ``AlreadyScheduled``, if another entry
        has its id, or its key.

    Raises:
        StoreUnavailable: no answer came in time; entries of earlier shards may be loaded.
    """
    return entries.in_parts(given, _load)


def _load(shard: Shard, given: Sequence[OldEntry]) -> Iterator[str | DelayQError]:
    (text,) = shard.calls.call("load", entries=list(_arguments(given)))
    words = text.decode(errors="replace").split(" ")
    return (_answer(word, entry) for word, entry in zip(words, given, strict=True))


def _arguments(entries: Sequence[OldEntry]) -> Iterator[object]:
    sent: set[bytes] = set()
    for entry in entries:
        record, name = entry.record, entry.record.name
        template = b"" if name in sent else record.template
        if name is not None:
            sent.add(name)
        created = b"" if entry.created_us is None else b"%016d" % entry.created_us
        yield from (entry.task_id, entry.due_ms, created, record.header)
        yield from (record.labels + record.body, template, entry.place, entry.when_ms)
        yield from (entry.claim, entry.error, int(entry.is_named))


def _answer(word: str, entry: OldEntry) -> str | DelayQError:
    status, _, holder = word.partition(":")
    if status not in ("taken", "held"):
        return status
    return AlreadyScheduled(entry.task_id, unquote_to_bytes(holder).decode(errors="replace"))

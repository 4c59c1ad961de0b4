"""The caller's steps: schedule, cancel, reschedule, look, list, count."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

from ..clock import MAX_DUE_MS, When, from_ms
from ..errors import AlreadyScheduled, DelayQError, InvalidDueTime, UnreadableRecord
from . import checking
from .calls import Calls, Member, Membership
from .keys import Keys
from .outcome import Outcome
from .record import Record
from .scripts import Scripts
from .values import Cancelled, Counts, Entry, NewEntry, Receipt, State

Row = tuple[float, bytes, Record, bytes | None]

SENT_AT_MOST = 1000  # names of templates that a process remembers to have sent
PAGE = 200
PAGE_BYTES = 4_000_000

# What ``schedule.lua`` answers where it wrote nothing.
_CONFLICT, _LATE = -1, -2


class Entries:
    """What callers do with the store."""

    def __init__(self, scripts: Scripts, membership: Membership) -> None:
        self._scripts = scripts
        self._member = Member(scripts, membership)
        self._calls = Calls(scripts, self._member, membership.timeout)
        self._templates: set[bytes] = set()

    @property
    def keys(self) -> Keys:
        """Of which shard they are."""
        return self._scripts.keys

    def join(self) -> None:
        """Find out whether this process may use the store; a call does so by itself.

        Raises:
            StoreDiffers: it is used in another way than this process would.
        """
        self._member.join()

    def schedule(
        self,
        new: Sequence[NewEntry],
        *,
        supersede: bool = False,
        until: float | None = None,
        pauses: Iterable[float] = (),
    ) -> list[Receipt | DelayQError]:
        """Schedule entries, all of them in one step of Redis's; the caller bounds how many.

        Args:
            new: The entries.
            supersede: The caller is this very task, running: an entry of its id that may have
                been delivered gives way. One that has not left is another task, and stays.
            until: When to give up, by the monotonic clock.
            pauses: Seconds before each repetition while Redis cannot be reached.

        Returns:
            Of each a receipt; or, where it is not scheduled, why: ``AlreadyScheduled`` (the
            entry with its id is untouched) or ``InvalidDueTime`` (past 2255-06-05).
        """
        # A template that this process has sent before is there, as a rule: not once more, unless it
        # is for many.
        known: Container[bytes] = self._templates if len(new) == 1 else ()
        answer = self._calls.call(
            "schedule",
            until=until,
            pauses=pauses,
            whole=lambda: {"entries": _arguments(new, ())},
            latest=MAX_DUE_MS,
            supersede=int(supersede),
            entries=_arguments(new, known),
        )[0]
        if len(self._templates) < SENT_AT_MOST:
            self._templates.update(one.record.name for one in new if one.record.name)
        words = answer.split()
        return [_scheduled(int(word), one) for word, one in zip(words, new, strict=True)]

    def cancel(self, task_id: str) -> tuple[Outcome, bytes | None]:
        """Remove an entry that has not left; returns its message where it was removed."""
        outcome, cancelled = self.cancel_owing(task_id, owes=False)
        return outcome, None if cancelled is None else cancelled.message

    def cancel_owing(self, task_id: str, *, owes: bool = True) -> tuple[Outcome, Cancelled | None]:
        """Remove an entry that has not left.

        With *owes*, it is noted that ``REVOKED`` is to be stored for it, until :meth:`settle`.
        """
        answer, *rest = self._calls.call("cancel", id=task_id, owes=int(owes))
        outcome = _outcome(task_id, answer)[0]
        if not rest or not rest[1]:
            return outcome, None
        return outcome, Cancelled(task_id, outcome, *rest)

    def settle(self, cancelled: Cancelled) -> None:
        """Note that ``REVOKED`` was stored for a task."""
        settle(self._scripts, [cancelled])

    def reschedule(self, task_id: str, when: When) -> tuple[Outcome, int | None]:
        """Give an entry another due time; returns it, in ms, where that was done."""
        (answer,) = self._calls.call(
            "reschedule", id=task_id, mode=when.mode, ms=when.ms, latest=MAX_DUE_MS
        )
        if answer == b"too_late":
            raise _too_late(when)
        outcome, rest = _outcome(task_id, answer)
        return outcome, int(rest) if rest else None

    def find(self, task_id: str) -> Entry | None:
        """The entry, or ``None``.

        Raises:
            UnreadableRecord: it is of a format that this version does not know.
        """
        found = self._look(task_id)
        if not found:
            return None
        state, text, header_end, template, reason = found
        record = Record(text, header_end)
        return _entry(task_id, _state(state), record, template, reason.decode(errors="replace"))

    def state(self, task_id: str) -> State | None:
        """Where an entry stands; ``None`` if it is not in the store.

        Raises:
            UnreadableRecord: it is of a format that this version does not know.
        """
        found = self._look(task_id)
        return _state(found[0]) if found else None

    def handed_over_ms(self, task_id: str) -> int | None:
        """When an entry was handed over, while its tombstone is kept."""
        found = self._scripts.call("find", id=task_id)
        return found[1] if found and found[0] == b"handed_over" else None

    def cancelled_ms_ago(self, task_id: str) -> int | None:
        """How long ago an entry was cancelled of which no copy was delivered, while it is known."""
        found = self._scripts.call("find", id=task_id)
        return found[1] if found and found[0] == b"cancelled" else None

    def _look(self, task_id: str) -> Any:
        found = self._scripts.call("find", id=task_id)
        _refuse_unreadable(task_id, *found)
        return [] if found and found[0] in (b"handed_over", b"cancelled") else found

    def waiting(self, earliest_ms: int, end_ms: int) -> Iterator[Entry]:
        """Entries due from *earliest_ms* to just before *end_ms*, in due order, page by page.

        Entries that come or go meanwhile make it neither skip nor repeat another one, and one that
        is rescheduled does not come again: so it ends, whatever is done with what it gives. What
        cannot be read is left out; it becomes a dead letter when it falls due.
        """
        return readable(self.rows(earliest_ms, end_ms))

    def rows(self, earliest_ms: int, end_ms: int) -> Iterator[Row]:
        """The same as read: due time in ms, member, record and template; some come twice."""
        indexes = (self._index(name, earliest_ms, end_ms) for name in ("due", "relay"))
        return heapq.merge(*indexes, key=itemgetter(0, 1))

    def _index(self, name: str, earliest_ms: int, end_ms: int) -> Iterator[Row]:
        score, order = str(earliest_ms - 1), 2**48
        while True:
            flat, known, shared = self._scripts.call(
                "page",
                index=name,
                score=score,
                order=order,
                before=end_ms,
                limit=PAGE,
                max_bytes=PAGE_BYTES,
            )
            templates = dict(zip(shared[::2], shared[1::2], strict=True))
            words = iter(known.decode().split())
            for member, text in zip(flat[::2], flat[1::2], strict=True):
                score, header_end = next(words), int(next(words))
                order = int.from_bytes(member[:6].ljust(6, b"\0"), "big")
                if text:
                    record = Record(text, header_end)
                    yield float(score), member, record, templates.get(record.name)
            if not flat:
                return

    def check(self) -> Iterator[checking.Finding]:
        """What in the store does not fit together."""
        return checking.check(self._scripts)

    def counts(self) -> Counts:
        """All counts at one instant."""
        now_us, scheduled, in_flight, dead, scanners, *heads = self._scripts.call("counts")
        known = [head for head in heads if head >= 0]
        return Counts(
            scheduled, in_flight, dead, scanners, min(known) if known else None, now_us // 1000
        )


def readable(rows: Iterable[Row]) -> Iterator[Entry]:
    """The entries that *rows* have, each once, without those that cannot be read."""
    given: set[int] = set()  # hashes, which take less than the members
    for _, member, record, template in rows:
        if hash(member) in given:
            continue
        given.add(hash(member))
        task_id = member[6:].decode(errors="replace")
        with suppress(UnreadableRecord):
            yield _entry(task_id, State.SCHEDULED, record, template)


def settle(scripts: Scripts, cancelled: Iterable[Cancelled]) -> None:
    """Note that ``REVOKED`` was stored for tasks."""
    stored = [word for one in cancelled for word in (one.task_id, one.when)]
    scripts.call("settle", stored=stored)


def _entry(
    task_id: str, state: State, record: Record, template: bytes | None, reason: str = ""
) -> Entry:
    try:
        message = record.message(task_id.encode(), template)
        return Entry(task_id, state, record.due_ms, record.created_ms, message, reason)
    except ValueError as error:
        raise UnreadableRecord(task_id, str(error)) from error


def _arguments(new: Sequence[NewEntry], known: Container[bytes]) -> list[Any]:
    """The fields of entries in ``schedule.lua``'s order; a template once, or not if *known*."""
    flat: list[Any] = []
    sent: set[bytes] = set()
    for one in new:
        record, name = one.record, one.record.name
        template = b"" if name in known or name in sent else record.template
        if name is not None:
            sent.add(name)
        when, body = one.when, record.labels + record.body
        flat += (one.task_id, when.mode, when.ms, record.destination, body, template)
    return flat


def _scheduled(answer: int, new: NewEntry) -> Receipt | DelayQError:
    if answer == _CONFLICT:
        return AlreadyScheduled(new.task_id)
    return _too_late(new.when) if answer == _LATE else Receipt(new.task_id, answer)


def _too_late(when: When) -> InvalidDueTime:
    return InvalidDueTime(when.given, f"what ends before {from_ms(MAX_DUE_MS):%Y-%m-%d}")


def _outcome(task_id: str, answer: bytes) -> tuple[Outcome, bytes]:
    """An answer's first word as an outcome, and the rest of it."""
    word, _, rest = answer.partition(b" ")
    _refuse_unreadable(task_id, word, rest)
    return Outcome(word.decode()), rest


def _state(word: bytes) -> State:
    return State(word.decode().upper())


def _refuse_unreadable(task_id: str, status: bytes = b"", why: Any = b"", *_: Any) -> None:
    if status == b"unreadable":
        raise UnreadableRecord(task_id, why.decode(errors="replace"))

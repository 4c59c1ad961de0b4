"""The caller's steps: schedule, cancel, reschedule, look, list, count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..clock import When
from ..errors import DelayQError, UnreadableRecord
from . import checking, listing, repairing
from .calls import Calls
from .changes import Changes, only
from .dumps import Dumps
from .happened import Happened
from .ids import Target, named, target_of, target_of_member
from .keys import Keys
from .listing import Row, entry_of
from .loads import Loads
from .member import Member, Membership
from .misfits import Finding, Repaired
from .outcome import Outcome
from .overview import Counts, Pause, Scanner, counts_in, pauses_in, scanners_in
from .queues import Tally, tallies_in
from .record import NewRecord, Record
from .replicas import Replicas
from .schedule import Scheduler
from .scripts import Scripts
from .selecting import Chosen, Place, Sieve
from .values import Cancelled, Change, Entry, NewEntry, Receipt, State, letters_in, time_in

NO_RECORD = "no record"  # why a record cannot be read that is not there
# What `peek.lua` says where it knows more than users are told.
_STATES = {"LAPSED": State.IN_FLIGHT, "UNREADABLE": State.DEAD}


class Entries:
    """What callers do with the store."""

    def __init__(self, scripts: Scripts, membership: Membership) -> None:
        self._scripts = scripts
        self._member = Member(scripts, membership)
        self._calls = Calls(scripts, self._member, membership.timeout)
        self._scheduler = Scheduler(self._calls, membership.timeout)
        self.changes = Changes(self._calls)
        self.replicas = Replicas(scripts)
        self.sieve = Sieve(scripts, self._member)
        self.dumps = Dumps(scripts, self.sieve)
        self.loads = Loads(self._calls)

    @property
    def keys(self) -> Keys:
        """Of which shard they are."""
        return self._scripts.keys

    def join(self, until: float | None = None) -> None:
        """Find out whether this process may use the store; a call does so by itself.

        Args:
            until: When to give up, by the monotonic clock.

        Raises:
            StoreDiffers: it is used in another way than this process would.
        """
        self._member.join(until)

    def look(self) -> str:
        """Find out whether this process may read the store; it changes nothing.

        Returns:
            The broker of the scanners, where it is not this process's; else empty.

        Raises:
            StoreDiffers: it is used in another way than this process would.
        """
        return self._member.look()

    def schedule(
        self,
        new: Sequence[NewEntry],
        *,
        supersede: bool = False,
        owes: int = 0,
        until: float | None = None,
        pauses: Iterable[float] = (),
    ) -> list[Receipt | DelayQError]:
        """Schedule entries, all of them in one step of Redis's; the caller bounds how many.

        Args:
            new: The entries.
            supersede: The caller is this very task, running: an entry of its id that may have
                been delivered gives way. One that has not left is another task, and stays.
            owes: Whether it is noted that ``REVOKED`` is to be stored: 1, for what is replaced; 2,
                also for a new entry whose id was given out, and that gives way to another.
            until: When to give up, by the monotonic clock.
            pauses: Seconds before each repetition while Redis cannot be reached.

        Returns:
            Of each a receipt; or, where it is not scheduled, why: ``AlreadyScheduled`` (the
            entry with its id or key is untouched), ``InFlight``, or ``InvalidDueTime`` (past
            2255-06-05).
        """
        return self._scheduler.schedule(
            new, supersede=supersede, owes=owes, until=until, pauses=pauses
        )

    def cancel(self, who: Target) -> tuple[Outcome, bytes | None]:
        """Remove an entry that has not left; returns its message where it was removed."""
        outcome, cancelled = self.cancel_owing(who, owes=False)
        return outcome, cancelled.message or None if cancelled else None

    def cancel_owing(
        self, who: Target, *, owes: bool = True, tells: bool = True, remove: bool = False
    ) -> tuple[Outcome, Cancelled | None]:
        """Remove an entry that has not left.

        Args:
            who: The entry.
            owes: Whether it is noted that ``REVOKED`` is to be stored for it, until :meth:`settle`.
            tells: Whether its message is wanted.
            remove: Only if it is dead.
        """
        asked: dict[str, Any] = {"owes": int(owes), "tells": tells, "remove": remove}
        try:
            outcome, change = only(self.changes.cancel([who], **asked))
        except UnreadableRecord as error:
            member = self._dead_member(error.task_id) if remove else None
            if member is None:
                if error.why == NO_RECORD:
                    return Outcome.NOT_FOUND, None
                raise
            outcome, change = only(self.changes.cancel([target_of_member(member)], **asked))
        return outcome, change.cancelled

    def _dead_member(self, task_id: str) -> bytes | None:
        """What is dead under an id whose record cannot be read, so that its number is not known."""
        dead = Chosen(state=State.DEAD)
        for page in self.sieve.pages(dead, *self.sieve.start(), Place()):
            for member in page:
                if member[6:] == task_id.encode():
                    return member
        return None

    def settle(self, cancelled: Cancelled) -> None:
        """Note that ``REVOKED`` was stored for a task."""
        settle(self._scripts, [cancelled])

    def reschedule(self, who: Target, when: When, **conditions: Any) -> tuple[Outcome, int | None]:
        """Give an entry another due time; returns it, in ms, where that was done."""
        outcome, change = self.move(who, when, **conditions)
        return outcome, change.due_ms

    def move(self, who: Target, when: When, **conditions: Any) -> tuple[Outcome, Change]:
        """The same, under the *conditions* of :meth:`Changes.reschedule`."""
        return only(self.changes.reschedule([who], when, **conditions))

    def edit(self, who: Target, seen: Record | None, new: NewRecord) -> Outcome:
        """Give an entry another message; what it is, and when it is due, stays.

        Args:
            who: The entry.
            seen: Its record, of which *new* was made; nothing is done where it is another one now.
            new: Made by :meth:`Record.with_message`.
        """
        (answer,) = self._calls.call(
            "edit",
            target=target_of(who),
            seen=seen.seen if seen else b"",
            destination=new.destination,
            body=new.labels + new.body,
            template=new.template,
        )
        return _outcome(who, answer)[0]

    def find(self, who: Target) -> Entry | None:
        """The entry, or ``None``.

        Raises:
            UnreadableRecord: it is of a format that this version does not know.
        """
        found = self._look(who)
        if not found:
            return None
        state, task_id, whole, header_end, template, *known = found
        reason, attempts, next_try, since, paused_by = known
        return replace(
            entry_of(
                task_id.decode(errors="replace"),
                State(state.decode()),
                Record(whole, header_end),
                template,
            ),
            reason=reason.decode(errors="replace"),
            attempts=attempts,
            next_try_ms=time_in(next_try),
            since_ms=time_in(since),
            paused_by=letters_in(paused_by),
        )

    def state(self, who: Target) -> State | None:
        """Where an entry stands; ``None`` if it is not in the store.

        Raises:
            UnreadableRecord: it is of a format that this version does not know.
        """
        found = self._look(who)
        return State(found[0].decode()) if found else None

    def handed_over_ms(self, who: Target) -> int | None:
        """When an entry was handed over, while its tombstone is kept."""
        found = self._scripts.call("find", target=target_of(who))
        return found[1] if found and found[0] == b"handed_over" else None

    def cancelled_ms_ago(self, who: Target) -> int | None:
        """How long ago an entry was cancelled of which no copy was delivered, while it is known."""
        found = self._scripts.call("find", target=target_of(who))
        return found[1] if found and found[0] == b"cancelled" else None

    def _look(self, who: Target) -> Any:
        found = self._scripts.call("find", target=target_of(who))
        _refuse_unreadable(who, *found)
        return [] if found and found[0] in (b"handed_over", b"cancelled") else found

    def waiting(self, earliest_ms: int, end_ms: int) -> Iterator[Entry]:
        """Entries due from *earliest_ms* to just before *end_ms*, in due order, page by page.

        Entries that come or go meanwhile make it neither skip nor repeat another one, and one that
        is rescheduled does not come again: so it ends, whatever is done with what it gives. What
        cannot be read is left out; it becomes a dead letter when it falls due.
        """
        return listing.readable(self.rows(0, earliest_ms, end_ms))

    def rows(self, shard: int, earliest_ms: int, end_ms: int, **options: Any) -> Iterator[Row]:
        """The same as read; see :func:`listing.rows`."""
        return listing.rows(self._scripts, shard, earliest_ms, end_ms, **options)

    def store(self) -> str:
        """What tells this store from every other one."""
        return listing.store_of(self._scripts)

    def history(self, limit: int) -> list[Happened]:
        """What happened last, the newest first."""
        events = []
        for event in self._scripts.call("history", limit=limit):
            with suppress(ValueError):  # somebody else's
                events.append(Happened.read(event))
        return events

    def pause(self, lane: bytes, name: str, *, late: bool = False) -> None:
        """Let what falls due in a lane be parked, from when this returns.

        Args:
            lane: As :func:`lane_for` says.
            name: Of the queue or task, to be shown.
            late: Whether what is parked counts as late for that time.
        """
        self._calls.call("pause", lane=lane, called=name, late=int(late))

    def resume(self, lane: bytes, rate: float | None = None) -> bool:
        """Let what is parked in a lane come back, *rate* a second; whether it was paused."""
        (answer,) = self._calls.call("resume", lane=lane, rate=rate or 0)
        return bool(answer == b"done")

    def pauses(self) -> list[Pause]:
        """What is paused, or comes back."""
        return pauses_in(self._scripts)

    def chosen(self, chosen: Chosen, members: Sequence[bytes]) -> Iterator[tuple[bytes, Entry]]:
        """Those of *members* that a selection means, as read; of what cannot be, what is known."""
        for seen in self.sieve.peek(chosen, members, reads=True):
            task_id = seen.member[6:].decode(errors="replace")
            state = _STATES.get(seen.state) or State(seen.state)
            entry = Entry(task_id, state, seen.due_ms, 0, b"")
            if seen.record is not None:
                with suppress(UnreadableRecord):
                    entry = entry_of(task_id, state, seen.record, seen.template)
            yield (
                seen.member,
                replace(
                    entry,
                    reason=seen.error,
                    attempts=seen.attempts,
                    next_try_ms=seen.next_try_ms,
                    since_ms=seen.since_ms,
                    paused_by=seen.paused_by,
                ),
            )

    def check(self) -> Iterator[Finding]:
        """What in the store does not fit together."""
        return checking.check(self._scripts)

    def repair(self, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
        """Mend what was found, where it is still so; see :func:`repairing.repair`."""
        return repairing.repair(self._scripts, findings)

    def counts(self) -> Counts:
        """All counts at one instant."""
        return counts_in(self._scripts)

    def scanners(self) -> list[Scanner]:
        """The scanners that are alive."""
        return scanners_in(self._scripts)

    def tallies(self, most: int) -> tuple[list[Tally], bool]:
        """What waits by its queues; see :func:`tallies_in`."""
        return tallies_in(self._scripts, most)


def settle(scripts: Scripts, cancelled: Iterable[Cancelled]) -> None:
    """Note that ``REVOKED`` was stored for tasks."""
    stored = [word for one in cancelled for word in (one.task_id, one.when)]
    scripts.call("settle", stored=stored)


def _outcome(who: Target, answer: bytes) -> tuple[Outcome, bytes]:
    """An answer's first word as an outcome, and the rest of it."""
    word, _, rest = answer.partition(b" ")
    _refuse_unreadable(who, word, rest)
    return Outcome(word.decode()), rest


def _refuse_unreadable(who: Target, status: bytes = b"", why: Any = b"", *_: Any) -> None:
    if status == b"unreadable":
        raise UnreadableRecord(named(who), why.decode(errors="replace"))

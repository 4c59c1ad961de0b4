"""Changes of waiting entries: values, and the step that makes them.

Removal, Move, Rewrite --CHUNK targets at a time--> the script --a word for each--> Change
                                  ^                    |
                                  +------- again ------+      more bytes than one call reads

First the values: what is changed, and what must hold for it. The face makes one, and it travels
whole to ``changed`` (many entries) or ``one``. Behind them stand ``mark_stored``, of cancelled
entries, and how a script's words are read. Only this module knows the scripts' arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union
from urllib.parse import unquote_to_bytes

from ..clock import MAX_DUE_MS, When, due_in_ms, from_ms
from ..errors import AlreadyScheduled, DelayQError, NotUndone, StoreError, UnreadableRecord
from . import selection
from .calls import Shard
from .keys import Target, named, target_of, target_of_member
from .record import NewRecord, Record
from .selection import Match
from .values import Cancelled, Change, Outcome, key_held, too_late

CHUNK = 100  # targets of one call: some 5 ms of Redis's time
REVISION_BYTES = 7
MAX_BYTES = 1_000_000  # of the records that one call reads

# The states, as `peek.lua` returns them, of entries that were not delivered yet.
WAITING = {"SCHEDULED", "PAUSED", "DEAD", "LAPSED"}

# The scripts' answers about a target, apart from the outcomes.
_AGAIN = [b"again"]
# The outcome of each; an entry that was not looked at must be read again, as if it had changed.
_OUTCOMES = {one.encode(): one for one in Outcome} | {b"again": Outcome.UNCHANGED, b"skipped": None}
_AT_ONCE = When("at", 0)  # stands for the time if the mode of a move alone decides
_NO_RECORD = "no record"  # the reason in an UnreadableRecord if the record is missing


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change of entries.

    Attributes:
        chosen: The filter of a selection; entries that no longer match it are skipped.
        revision: The revision that the only target must have; ``None``: any.
        until: When to give up, by the monotonic clock; ``None``: ``delayq_timeout`` after each
            step began.
    """

    chosen: str = ""
    revision: int | None = None
    until: float | None = None

    @property
    def _seen(self) -> bytes:
        """The last change that a target must have, as the scripts take it."""
        return b"" if self.revision is None else self.revision.to_bytes(REVISION_BYTES, "big")


@dataclass(frozen=True)
class Removal(_Change):
    """Remove entries that were not delivered yet.

    Attributes:
        revoker: Who must store ``REVOKED`` for them. ``none``; ``caller``, who then calls
            :func:`mark_stored`, and if it does not, a scanner stores it; or ``scanner``.
        tells: Whether to return their messages.
        only_dead: Whether to remove only dead letters.
        undo: How long, and of how many tasks, to keep what an undo needs, as ``delayq_undo``.
    """

    revoker: str = "none"
    tells: bool = True
    only_dead: bool = False
    undo: Sequence[Any] | int = 0

    @property
    def owes(self) -> bool:
        """Whether ``REVOKED`` must be stored."""
        return self.revoker != "none"

    def takes(self, met: Match) -> bool:
        """Return whether the script would change an entry that a selection met."""
        return met.state in ({"DEAD", "UNREADABLE"} if self.only_dead else WAITING)

    def asked(self, targets: Sequence[Target]) -> tuple[str, dict[str, Any]]:
        """Return the script, and its arguments."""
        mode = "remove" if self.only_dead else "cancel"
        return "cancel", {
            "mode": f"{mode} {_kept(self.undo)}".rstrip(),
            "revoker": self.revoker,
            "tells": int(self.tells),
            "seen": self._seen,
            "targets": [target_of(who) for who in targets],
        }


def _kept(undo: Sequence[Any] | int) -> str:
    """Return how long, ms, and of how many tasks an undo is kept, as scripts take it."""
    if not isinstance(undo, Sequence):
        return ""
    seconds, tasks = undo
    return f"{seconds * 1000:.0f} {tasks}"


@dataclass(frozen=True)
class Move(_Change):
    """Give entries that were not delivered yet another due time.

    Attributes:
        when: The new time.
        mode: Replaces *when*. ``"now"``: at once, ignoring pauses. ``"retry"``: at once, and only
            dead letters. ``"back"``: to where they were before the change of many whose name the
            call has moved them; ``"hurry"``: the same, or now if that time has come since.
        only: ``earlier`` or ``later``: only in this direction; empty: in both.
        if_due_ms: Only if this is the due time; ``None``: at any.
        undo: As for a :class:`Removal`; of a change of many only.
    """

    when: When = _AT_ONCE
    mode: str = ""
    only: str = ""
    if_due_ms: int | None = None
    undo: Sequence[Any] | int = 0

    def takes(self, met: Match) -> bool:
        """Return whether the script would change an entry that a selection met."""
        when = self.when
        if self.mode == "retry":
            return met.state == "DEAD"
        if met.state not in WAITING or self.if_due_ms not in (None, met.due_ms):
            return False
        if when.mode == "by":
            new_ms = max(0, met.due_ms + when.ms)
        else:
            new_ms = due_in_ms(when.us + (met.now_us if when.mode == "after" else 0), met.now_us)
        if self.only == "earlier":
            return new_ms < met.due_ms
        return self.only != "later" or new_ms > met.due_ms

    def asked(self, targets: Sequence[Target]) -> tuple[str, dict[str, Any]]:
        """Return the script, and its arguments."""
        return "reschedule", {
            "mode": self.mode or self.when.mode,
            "us": self.when.us,
            "latest": MAX_DUE_MS,
            "only": self.only,
            "if_due": "" if self.if_due_ms is None else self.if_due_ms,
            "undo": _kept(self.undo),
            "seen": self._seen,
            "targets": [target_of(who) for who in targets],
        }


@dataclass(frozen=True)
class Rewrite(_Change):
    """Give an entry another message, queue, key or tags; its task and due time stay.

    Attributes:
        seen: Its record as you read it; ``None``: nothing is changed.
        new: The new one, made by :meth:`Record.with_message`; to release, by
            :meth:`Record.released`.
        releases: Whether to deliver it at once.
    """

    seen: Record | None
    new: NewRecord
    releases: bool = False


Changing = Union[Removal, Move]
AnyChange = Union[Removal, Move, Rewrite]


def changed(shard: Shard, what: Changing, targets: Sequence[Target]) -> Iterator[list[Change]]:
    """Change entries of a shard; yield what was done, in order, step by step."""
    left = list(targets)
    while left:
        some, left = left[:CHUNK], left[CHUNK:]
        script, arguments = what.asked(some)
        text, *more = shard.calls.call(
            script, until=what.until, filter=what.chosen, max_bytes=MAX_BYTES, **arguments
        )
        words = [word.split(b":") for word in text.split(b" ")]
        # The rows refer to places in the whole chunk, so yield all of it.
        told = {row.place: (row.when, row.message) for rows in more for row in rows}
        yield [
            _read(shard, what, who, word, told.get(at, (b"", b"")))
            for at, (who, word) in enumerate(zip(some, words, strict=True), 1)
            if word != _AGAIN
        ]
        left = [who for who, word in zip(some, words, strict=True) if word == _AGAIN] + left


def rewritten(shard: Shard, parts: Sequence[tuple[Target, Rewrite]]) -> list[Change]:
    """Rewrite up to 100 entries of a shard; all to release or none, by one filter, until one time.

    Returns:
        A change for each part, in order; ``UNCHANGED`` if you must read the record again. The error
        of one may be ``AlreadyScheduled``: another entry has the new key.
    """
    first, flat = parts[0][1], list[bytes]()
    for who, what in parts:
        new = what.new
        flat += (target_of(who), what.seen.seen if what.seen else b"", new.header)
        flat += (new.labels + new.body, new.template)
    try:
        (text,) = shard.calls.call(
            "rewrite",
            until=first.until,
            releases=int(first.releases),
            filter=first.chosen,
            max_bytes=MAX_BYTES,
            parts=flat,
        )
    except StoreError as error:
        if error.step == "rewrite":
            error.step = "release" if first.releases else "edit"
            error.args = (error.step, *error.args[1:])  # a result backend makes it anew from these
        raise
    words = (word.split(b":") for word in text.split(b" "))
    return [_read(shard, what, who, word) for (who, what), word in zip(parts, words, strict=True)]


def one(shard: Shard, what: AnyChange, who: Target) -> tuple[Outcome, Change]:
    """Change one entry.

    Raises:
        UnreadableRecord: its record cannot be read, and it is not to be removed as a dead one.
        InvalidDueTime: it would be due too late.
        AlreadyScheduled: another entry has its new key.
    """
    if isinstance(what, Rewrite):
        (change,) = rewritten(shard, [(who, what)])
    else:
        ((change,),) = changed(shard, what, [who])
    error = change.error
    if isinstance(error, UnreadableRecord) and isinstance(what, Removal) and who[:1] != b"m":
        # Only a record tells the last change.
        asks = what.only_dead and what.revision is None
        member = selection.dead_member(shard, error.task_id) if asks else None
        if member is not None:
            return one(shard, what, target_of_member(member))
        if error.why == _NO_RECORD:
            return Outcome.NOT_FOUND, change
    if error is not None:
        raise error
    # None: it was dead under this number, and has left since.
    return Outcome.NOT_FOUND if change.outcome is None else change.outcome, change


def mark_stored(shard: Shard, cancelled: Iterable[Cancelled]) -> set[str]:
    """Note that ``REVOKED`` was stored for tasks; return the ids that were scheduled anew since."""
    stored = [word for entry in cancelled for word in (entry.task_id, entry.when)]
    anew = shard.scripts.call("mark_stored", stored=stored)
    return {task_id.decode(errors="replace") for task_id in anew}


def _read(
    shard: Shard,
    what: AnyChange,
    who: Target,
    word: Sequence[bytes],
    row: tuple[bytes, bytes] = (b"", b""),
) -> Change:
    """Return the change of which a script's answer tells, and the row beside it."""
    name, *rest = word
    parts = {part[:1]: unquote_to_bytes(part[1:]).decode(errors="replace") for part in rest}
    task_id = parts.get(b"i") or ("" if who[:1] == b"k" else named(who))
    if name in _OUTCOMES:
        outcome, due = _OUTCOMES[name], parts.get(b"d")
        removed = None
        if isinstance(what, Removal) and outcome in (Outcome.DONE, Outcome.UNCERTAIN):
            removed = Cancelled(task_id, outcome, *row, shard=shard.number)
        due_ms = None if due is None else int(due)
        expires = parts.get(b"x", "")
        return Change(outcome, task_id, due_ms, expires=expires, cancelled=removed)
    error: DelayQError
    if name == b"unreadable":
        error = UnreadableRecord(task_id, parts[b"w"])
    elif name == b"held":
        error = key_held(task_id, parts[b"h"], parts.get(b"u", ""))
    elif name == b"overdue":
        due_text = from_ms(int(parts[b"d"])).isoformat()
        error = NotUndone(task_id, "overdue", due_text, "move")
    elif name == b"taken":
        error = AlreadyScheduled(task_id, parts[b"h"])
    else:  # too_late
        error = too_late(what.when if isinstance(what, Move) else _AT_ONCE)
    return Change(None, task_id, error=error)

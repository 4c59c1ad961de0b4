"""Changes of waiting entries: values, and the step that makes them.

Removal, Move, Rewrite --CHUNK targets at a time--> the script --a word for each--> Change
                                  ^                    |
                                  +------- again ------+      more bytes than one call reads

First the values: what is changed, and what must hold for it. The face makes one, and it travels
whole to ``changed`` (many entries) or ``one``. Behind them stand ``mark_stored``, of cancelled
entries, and how a script's words are read. Only this module knows the scripts' arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union
from urllib.parse import unquote_to_bytes

from ..clock import MAX_DUE_MS, When, due_in_ms
from ..errors import AlreadyScheduled, UnreadableRecord
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
# Why an entry cannot have a new key.
_HOLDS: Mapping[bytes, Callable[..., AlreadyScheduled]] = {
    b"taken": AlreadyScheduled,
    b"held": key_held,
}
_AT_ONCE = When("at", 0)  # stands for the time if the mode of a move alone decides
_NO_RECORD = "no record"  # the reason in an UnreadableRecord if the record is missing


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change of entries.

    Attributes:
        chosen: The filter of a selection; entries that no longer match it are skipped.
        revision: The revision that the only target must have; ``None``: any.
    """

    chosen: str = ""
    revision: int | None = None

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
        keeps: How to keep what an undo needs, as the script takes it; empty: not at all.
    """

    revoker: str = "none"
    tells: bool = True
    only_dead: bool = False
    keeps: str = ""

    @property
    def owes(self) -> bool:
        """Whether ``REVOKED`` must be stored."""
        return self.revoker != "none"

    def takes(self, met: Match) -> bool:
        """Return whether the script would change an entry that a selection met."""
        return met.state in ({"DEAD", "UNREADABLE"} if self.only_dead else WAITING)

    def asked(self, targets: Sequence[Target]) -> tuple[str, dict[str, Any]]:
        """Return the script, and its arguments."""
        return "cancel", {
            "mode": ("remove" if self.only_dead else "cancel") + self.keeps,
            "revoker": self.revoker,
            "tells": int(self.tells),
            "seen": self._seen,
            "targets": [target_of(who) for who in targets],
        }


@dataclass(frozen=True)
class Move(_Change):
    """Give entries that were not delivered yet another due time.

    Attributes:
        when: The new time.
        mode: Replaces *when*. ``"now"``: at once, ignoring pauses. ``"retry"``: at once, and only
            dead letters.
        only: ``earlier`` or ``later``: only in this direction; empty: in both.
        if_due_ms: Only if this is the due time; ``None``: at any.
    """

    when: When = _AT_ONCE
    mode: str = ""
    only: str = ""
    if_due_ms: int | None = None

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


def changed(
    shard: Shard, what: Changing, targets: Sequence[Target], until: float | None = None
) -> Iterator[list[Change]]:
    """Change entries of a shard; yield what was done, in order, step by step.

    Args:
        shard: Their shard.
        what: The change.
        targets: The entries.
        until: When to give up, by the monotonic clock.
    """
    left = list(targets)
    while left:
        some, left = left[:CHUNK], left[CHUNK:]
        script, arguments = what.asked(some)
        text, *more = shard.calls.call(
            script, until=until, filter=what.chosen, max_bytes=MAX_BYTES, **arguments
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


def rewritten(
    shard: Shard, parts: Sequence[tuple[Target, Rewrite]], until: float | None = None
) -> list[Change]:
    """Rewrite up to 100 entries of a shard; all to release or none, chosen by one filter.

    Returns:
        A change for each part, in order; ``UNCHANGED`` if you must read the record again. The error
        of one may be ``AlreadyScheduled``: another entry has the new key.
    """
    flat: list[bytes] = []
    for who, what in parts:
        new = what.new
        flat += (target_of(who), what.seen.seen if what.seen else b"", new.header)
        flat.append(new.labels + new.body)
        if not what.releases:
            flat.append(new.template)
    first = parts[0][1]
    (text,) = shard.calls.call(
        "release" if first.releases else "edit",
        until=until,
        filter=first.chosen,
        max_bytes=MAX_BYTES,
        parts=flat,
    )
    words = (word.split(b":") for word in text.split(b" "))
    return [_read(shard, what, who, word) for (who, what), word in zip(parts, words, strict=True)]


def one(shard: Shard, what: AnyChange, who: Target, until: float) -> tuple[Outcome, Change]:
    """Change one entry; arguments as of :func:`changed`.

    Raises:
        UnreadableRecord: its record cannot be read, and it is not to be removed as a dead one.
        InvalidDueTime: it would be due too late.
        AlreadyScheduled: another entry has its new key.
    """
    if isinstance(what, Rewrite):
        (change,) = rewritten(shard, [(who, what)], until)
    else:
        ((change,),) = changed(shard, what, [who], until)
    error = change.error
    if isinstance(error, UnreadableRecord) and isinstance(what, Removal) and who[:1] != b"m":
        # Only a record tells the last change.
        asks = what.only_dead and what.revision is None
        member = selection.dead_member(shard, error.task_id) if asks else None
        if member is not None:
            return one(shard, what, target_of_member(member), until)
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
    told: tuple[bytes, bytes] = (b"", b""),
) -> Change:
    """Return the change of which a script's answer tells, and the row beside it."""
    name, *parts = word
    if name == b"unreadable":
        task_id = _id_of(who, *parts[1:])
        return Change(None, task_id, error=UnreadableRecord(task_id, _text(parts[0])))
    if name == b"too_late" and isinstance(what, Move):
        return Change(None, _id_of(who), error=too_late(what.when))
    if name in _HOLDS:
        task_id = _id_of(who)
        return Change(None, task_id, error=_HOLDS[name](task_id, *map(_text, parts)))
    outcome = _OUTCOMES[name]
    if isinstance(what, Move) and parts:
        due_ms, *others = parts
        given, expires = (*others, b"", b"")[:2]
        named_as = _id_of(who, *filter(None, [given]))
        return Change(outcome, named_as, int(due_ms), expires=_text(expires))
    task_id = _id_of(who, *parts)
    cancelled = None
    if isinstance(what, Removal) and outcome in (Outcome.DONE, Outcome.UNCERTAIN):
        cancelled = Cancelled(task_id, outcome, *told, shard=shard.number)
    return Change(outcome, task_id, cancelled=cancelled)


def _id_of(who: Target, *known: bytes) -> str:
    """Return the id of a target; if the target is a key, the id in the answer."""
    if known:
        return _text(known[0])
    return "" if isinstance(who, bytes) and who.startswith(b"k") else named(who)


def _text(quoted: bytes) -> str:
    return unquote_to_bytes(quoted).decode(errors="replace")

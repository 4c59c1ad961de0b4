"""Steps that change one or many entries: cancel, remove, reschedule, run now, retry, edit, release.

targets --CHUNK at a time--> the script --a word for each--> changes
             ^                  |
             +----- again ------+      more bytes than one call reads
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from ..clock import MAX_DUE_MS, When
from ..errors import AlreadyScheduled, UnreadableRecord
from .calls import Shard
from .keys import Target, named, target_of
from .record import NewRecord, Record
from .values import Cancelled, Change, Outcome, key_held, too_late

CHUNK = 100  # targets of one call: some 5 ms of Redis's time
REVISION_BYTES = 7
MAX_BYTES = 1_000_000  # of the records that one call reads

# The scripts' answers about a target, apart from the outcomes.
_AGAIN, _SKIPPED, _TOO_LATE = [b"again"], [b"skipped"], [b"too_late"]
_UNREADABLE = b"unreadable"
# Why an entry cannot have a new key.
_HOLDS: Mapping[bytes, Callable[..., AlreadyScheduled]] = {
    b"taken": AlreadyScheduled,
    b"held": key_held,
}
_DONE = (b"done", b"uncertain", b"behind")
NO_RECORD = "no record"  # the reason in an UnreadableRecord if the record is missing

NOW = When("at", 0)  # placeholder if the mode alone decides


@dataclass(frozen=True)
class Conditions:
    """The conditions for moving an entry.

    Attributes:
        only: ``earlier`` or ``later``: move it only in this direction; empty: in both.
        if_due_ms: Move it only if this is its due time; ``None``: at any.
    """

    only: str = ""
    if_due_ms: int | None = None


ALWAYS = Conditions()


def cancel(
    shard: Shard,
    targets: Sequence[Target],
    *,
    revoker: str = "none",
    tells: bool = True,
    remove: bool = False,
    keeps: str = "",
    chosen: str = "",
    seen: bytes = b"",
    until: float | None = None,
) -> Iterator[list[Change]]:
    """Remove entries that were not delivered yet.

    Args:
        shard: Their shard.
        targets: The entries.
        revoker: Who must store ``REVOKED`` for them. ``none``; ``caller``, who then calls
            :func:`mark_stored`, and if it does not, a scanner stores it; or ``scanner``.
        tells: Whether to return their messages.
        remove: Whether to remove only dead letters.
        keeps: How to keep what an undo needs, as the script takes it; empty: not at all.
        chosen: The filter of the selection; entries that no longer match it are skipped.
        seen: Change the only target only if this is its last change; see :func:`revision`.
        until: When to give up, by the monotonic clock.
    """

    def call(some: Sequence[bytes]) -> Any:
        return shard.calls.call(
            "cancel",
            until=until,
            mode=("remove" if remove else "cancel") + keeps,
            revoker=revoker,
            tells=int(tells),
            seen=seen,
            filter=chosen,
            max_bytes=MAX_BYTES,
            targets=some,
        )

    for some, words, (rows,) in _in_chunks(targets, call):
        messages = {row.place: (row.when, row.message) for row in rows}
        yield [
            _read(who, word) or _cancelled(who, word, messages.get(at), shard.number)
            for at, (who, word) in enumerate(zip(some, words, strict=True), 1)
            if word != _AGAIN
        ]


def reschedule(
    shard: Shard,
    targets: Sequence[Target],
    when: When,
    *,
    mode: str = "",
    conditions: Conditions = ALWAYS,
    chosen: str = "",
    seen: bytes = b"",
    until: float | None = None,
) -> Iterator[list[Change]]:
    """Move entries that were not delivered yet to another due time.

    Args:
        shard: Their shard.
        targets: The entries.
        when: The new time.
        mode: Replaces *when*. ``"now"``: at once, ignoring pauses. ``"retry"``: at once, and only
            dead letters.
        conditions: What must hold for an entry to be moved.
        chosen, seen, until: As in :func:`cancel`.
    """
    if_due_ms = conditions.if_due_ms

    def call(some: Sequence[bytes]) -> Any:
        return shard.calls.call(
            "reschedule",
            until=until,
            mode=mode or when.mode,
            us=when.us,
            latest=MAX_DUE_MS,
            only=conditions.only,
            if_due="" if if_due_ms is None else if_due_ms,
            seen=seen,
            filter=chosen,
            max_bytes=MAX_BYTES,
            targets=some,
        )

    for some, words, _ in _in_chunks(targets, call):
        yield [
            _read(who, word) or _moved(who, word, when)
            for who, word in zip(some, words, strict=True)
            if word != _AGAIN
        ]


def release(
    shard: Shard, parts: Sequence[tuple[Target, Record, NewRecord]], *, chosen: str = ""
) -> list[Change]:
    """Deliver waiting entries at once, with other messages.

    Args:
        shard: Their shard.
        parts: Up to 100 triples: the target, its record as you read it, and its new record, made
            by :meth:`Record.released`.
        chosen: As in :func:`cancel`.

    Returns:
        A change for each part, in order; ``UNCHANGED`` if you must read the record again.
    """
    flat = [
        word
        for who, seen, new in parts
        for word in (target_of(who), seen.seen, new.header, new.labels + new.body)
    ]
    (text,) = shard.calls.call("release", filter=chosen, max_bytes=MAX_BYTES, parts=flat)
    words = (word.split(b":") for word in text.split(b" "))
    return [_released(who, word) for (who, *_), word in zip(parts, words, strict=True)]


def cancel_one(
    shard: Shard,
    who: Target,
    *,
    owes: bool,
    tells: bool,
    remove: bool,
    keeps: str,
    seen: bytes,
    until: float,
) -> tuple[Outcome, Cancelled | None]:
    """Remove an entry that was not delivered yet; return its details if it was removed.

    Args:
        shard: Its shard.
        who: The entry.
        owes: Whether to note that ``REVOKED`` must be stored for it, until :func:`mark_stored`.
        tells: Whether to return its message.
        remove: Whether to remove it only if it is dead.
        keeps, seen: As in :func:`cancel`.
        until: When to give up, by the monotonic clock.

    Raises:
        UnreadableRecord: its record cannot be read, and *remove* is false, or it is not dead under
            the insertion number in *who*.
    """
    changes = cancel(
        shard,
        [who],
        revoker="caller" if owes else "none",
        tells=tells,
        remove=remove,
        keeps=keeps,
        seen=seen,
        until=until,
    )
    outcome, change = only(changes)
    return outcome, change.cancelled


def edit(
    shard: Shard,
    parts: Sequence[tuple[Target, Record | None, NewRecord]],
    *,
    chosen: str = "",
    until: float | None = None,
) -> list[Change]:
    """Give entries another message, queue, key or tags; their tasks and due times stay.

    Args:
        shard: Their shard.
        parts: Up to 100 triples, as in :func:`release`; a new record is made by
            :meth:`Record.with_message`. Without an old one, nothing is changed.
        chosen, until: As in :func:`cancel`.

    Returns:
        A change for each part, in order; ``UNCHANGED`` if you must read the record again. The error
        of one may be ``AlreadyScheduled``: another task has the new key.
    """
    flat = [
        word
        for who, seen, new in parts
        for word in (
            target_of(who),
            seen.seen if seen else b"",
            new.header,
            new.labels + new.body,
            new.template,
        )
    ]
    (text,) = shard.calls.call("edit", until=until, filter=chosen, max_bytes=MAX_BYTES, parts=flat)
    words = (word.split(b":") for word in text.split(b" "))
    return [_edited(who, word) for (who, *_), word in zip(parts, words, strict=True)]


def mark_stored(shard: Shard, cancelled: Iterable[Cancelled]) -> set[str]:
    """Note that ``REVOKED`` was stored for tasks; return the ids that were scheduled anew since."""
    stored = [word for entry in cancelled for word in (entry.task_id, entry.when)]
    anew = shard.scripts.call("mark_stored", stored=stored)
    return {task_id.decode(errors="replace") for task_id in anew}


def revision(changed_us: int | None) -> bytes:
    """Return the last change that an entry must have, as the steps take it; empty for any."""
    return b"" if changed_us is None else changed_us.to_bytes(REVISION_BYTES, "big")


def _in_chunks(
    targets: Sequence[Target], call: Callable[[Sequence[bytes]], Any]
) -> Iterator[tuple[list[Target], list[list[bytes]], list[Any]]]:
    """Yield for each call: the targets, the parts of each one's answer, the rest of the reply."""
    left = list(targets)
    while left:
        some, left = left[:CHUNK], left[CHUNK:]
        text, *more = call([target_of(entry) for entry in some])
        words = [word.split(b":") for word in text.split(b" ")]
        # The other rows refer to places in the whole chunk, so yield all of it.
        yield some, words, more
        left = [entry for entry, word in zip(some, words, strict=True) if word == _AGAIN] + left


def _read(who: Target, word: Sequence[bytes]) -> Change | None:
    """Return the change if the answer needs no more than its word; else ``None``."""
    if word == _SKIPPED:
        return Change(None, _id_of(who))
    if word[0] == _UNREADABLE:
        task_id = _id_of(who, *word[2:])
        return Change(None, task_id, error=UnreadableRecord(task_id, _text(word[1])))
    if len(word) == 1 and word != _TOO_LATE and word[0] not in _DONE:
        return Change(Outcome(_text(word[0])), _id_of(who))
    return None


def _cancelled(
    who: Target, word: Sequence[bytes], message: tuple[bytes, bytes] | None, shard: int
) -> Change:
    outcome, task_id = Outcome(_text(word[0])), _id_of(who, *word[1:])
    cancelled = Cancelled(task_id, outcome, *(message or (b"", b"")), shard=shard)
    return Change(outcome, task_id, cancelled=cancelled)


def _moved(who: Target, word: Sequence[bytes], when: When) -> Change:
    if word == _TOO_LATE:
        return Change(None, _id_of(who), error=too_late(when))
    outcome, due_ms, *others = word
    task_id, expires = (*others, b"", b"")[:2]
    named = _id_of(who, *filter(None, [task_id]))
    return Change(Outcome(_text(outcome)), named, int(due_ms), expires=_text(expires))


def _released(who: Target, word: Sequence[bytes]) -> Change:
    # A record that was not looked at must be read again, as if it had changed.
    if word == _AGAIN:
        return Change(Outcome.UNCHANGED, _id_of(who))
    return _read(who, word) or Change(Outcome(_text(word[0])), _id_of(who))


def _edited(who: Target, word: Sequence[bytes]) -> Change:
    if word[0] in _HOLDS:
        task_id = _id_of(who)
        return Change(None, task_id, error=_HOLDS[word[0]](task_id, *map(_text, word[1:])))
    return _released(who, word)


def only(steps: Iterable[list[Change]]) -> tuple[Outcome, Change]:
    """Return the outcome and the change of the only target.

    Raises:
        UnreadableRecord: its record cannot be read.
        InvalidDueTime: it would be due too late.
    """
    ((change,),) = steps
    if change.error is not None:
        raise change.error
    assert change.outcome is not None  # noqa: S101 - only a selection skips targets
    return change.outcome, change


def _id_of(who: Target, *known: bytes) -> str:
    """Return the id of a target; if the target is a key, the id in the answer."""
    if known:
        return _text(known[0])
    return "" if isinstance(who, bytes) and who.startswith(b"k") else named(who)


def _text(quoted: bytes) -> str:
    return unquote_to_bytes(quoted).decode(errors="replace")

"""The steps that change what is there, one entry or many of them.

cancel, remove, reschedule, run now, retry, release, each as

targets --CHUNK at a time--> the script --a word of each--> changes
             ^                  |
             +----- again ------+      more bytes than one call reads
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from ..clock import MAX_DUE_MS, When
from ..errors import UnreadableRecord
from .ids import Target, named, target_of
from .outcome import Outcome
from .record import NewRecord, Record
from .shard import Shard
from .values import Cancelled, Change, too_late

CHUNK = 100  # targets of one call: some 5 ms of Redis's time
MAX_BYTES = 1_000_000  # of their records

# What the scripts answer about a target, beside the outcomes.
_AGAIN, _SKIPPED, _TOO_LATE = [b"again"], [b"skipped"], [b"too_late"]
_UNREADABLE = b"unreadable"
_DONE = (b"done", b"uncertain")
NO_RECORD = "no record"  # why a record cannot be read that is not there

NOW = When("at", 0)  # what is given where the mode says it all


def cancel(
    link: Shard,
    targets: Sequence[Target],
    *,
    owes: int = 0,
    tells: bool = True,
    remove: bool = False,
    chosen: str = "",
) -> Iterator[list[Change]]:
    """Remove entries that have not left.

    Args:
        link: To their shard.
        targets: Who is meant.
        owes: Whether it is noted that ``REVOKED`` is to be stored for them: 1, by the caller,
            who says so by :func:`mark_stored`, or else by a scanner; 2, by a scanner.
        tells: Whether their messages are wanted.
        remove: Only those that are dead.
        chosen: What the selection that met them picks by: none that it does not mean any more.
    """
    asked = {"mode": "remove" if remove else "cancel", "owes": owes, "tells": int(tells)}
    for some, words, (rows,) in _ask(link, "cancel", targets, {**asked, "filter": chosen}):
        told = {one.place: (one.when, one.message) for one in rows}
        yield [
            _read(who, word) or _cancelled(who, word, told.get(at))
            for at, (who, word) in enumerate(zip(some, words, strict=True), 1)
            if word != _AGAIN
        ]


def reschedule(
    link: Shard,
    targets: Sequence[Target],
    when: When,
    *,
    mode: str = "",
    only: str = "",
    if_due_ms: int | None = None,
    chosen: str = "",
) -> Iterator[list[Change]]:
    """Give entries that have not left another due time.

    Args:
        link: To their shard.
        targets: Who is meant.
        when: The time.
        mode: In its place: ``"now"``, at once, and through a pause; ``"retry"``, at once, and
            only those that are dead.
        only: ``"earlier"`` or ``"later"``: no other move.
        if_due_ms: Only where that is the due time until now.
        chosen: As for :func:`cancel`.
    """
    asked = {
        "mode": mode or when.mode,
        "us": when.us,
        "latest": MAX_DUE_MS,
        "only": only,
        "if_due": "" if if_due_ms is None else if_due_ms,
        "filter": chosen,
    }
    for some, words, _ in _ask(link, "reschedule", targets, asked):
        yield [
            _read(who, word) or _moved(who, word, when)
            for who, word in zip(some, words, strict=True)
            if word != _AGAIN
        ]


def release(
    link: Shard, parts: Sequence[tuple[Target, Record, NewRecord]], *, chosen: str = ""
) -> list[Change]:
    """Let entries that wait go at once, with other messages.

    Args:
        link: To their shard.
        parts: Up to 100 times who is meant, the record as it was read, and the new one, made by
            :meth:`Record.released`.
        chosen: As for :func:`cancel`.

    Returns:
        What was made of each, in their order; ``UNCHANGED`` where it is to be read anew.
    """
    flat = [
        word
        for who, seen, new in parts
        for word in (target_of(who), seen.seen, new.labels + new.body)
    ]
    (text,) = link.calls.call("release", filter=chosen, max_bytes=MAX_BYTES, parts=flat)
    words = (word.split(b":") for word in text.split(b" "))
    return [_released(who, word) for (who, *_), word in zip(parts, words, strict=True)]


def cancel_one(
    link: Shard, who: Target, *, owes: bool = False, tells: bool = True, remove: bool = False
) -> tuple[Outcome, Cancelled | None]:
    """Remove an entry that has not left; what there is to tell, if it was removed.

    Args:
        link: To its shard.
        who: The entry.
        owes: Whether ``REVOKED`` is noted as to be stored for it, until :func:`mark_stored`.
        tells: Whether its message is wanted.
        remove: Only if it is dead.

    Raises:
        UnreadableRecord: its record cannot be read, and *remove* is false, or it is not dead under
            the number that *who* has.
    """
    outcome, change = only(cancel(link, [who], owes=int(owes), tells=tells, remove=remove))
    return outcome, change.cancelled


def edit(link: Shard, who: Target, seen: Record | None, new: NewRecord) -> Outcome:
    """Give an entry another message; what it is, and when it is due, stays.

    Args:
        link: To its shard.
        who: The entry.
        seen: Its record, of which *new* was made; nothing is done where it is another one now.
        new: Made by :meth:`Record.with_message`.

    Raises:
        UnreadableRecord: its record cannot be read.
    """
    (answer,) = link.calls.call(
        "edit",
        target=target_of(who),
        seen=seen.seen if seen else b"",
        destination=new.destination,
        body=new.labels + new.body,
        template=new.template,
    )
    word, _, why = answer.partition(b" ")
    if word == _UNREADABLE:
        raise UnreadableRecord(named(who), why.decode(errors="replace"))
    return Outcome(word.decode())


def mark_stored(link: Shard, cancelled: Iterable[Cancelled]) -> None:
    """Note that ``REVOKED`` was stored for tasks."""
    stored = [word for one in cancelled for word in (one.task_id, one.when)]
    link.scripts.call("mark_stored", stored=stored)


def _ask(
    link: Shard, script: str, targets: Sequence[Target], asked: dict[str, Any]
) -> Iterator[tuple[list[Target], list[list[bytes]], list[Any]]]:
    """Of each call who was looked at, the parts of a word of each, and what else it answers."""
    left = list(targets)
    while left:
        some, left = left[:CHUNK], left[CHUNK:]
        text, *more = link.calls.call(
            script, **asked, max_bytes=MAX_BYTES, targets=[target_of(one) for one in some]
        )
        words = [word.split(b":") for word in text.split(b" ")]
        # What is told of them goes by the places of all.
        yield some, words, more
        left = [one for one, word in zip(some, words, strict=True) if word == _AGAIN] + left


def _read(who: Target, word: Sequence[bytes]) -> Change | None:
    """What is not an outcome, or not one with more to it."""
    if word == _SKIPPED:
        return Change(None, _id_of(who))
    if word[0] == _UNREADABLE:
        task_id = _id_of(who, *word[2:])
        return Change(None, task_id, error=UnreadableRecord(task_id, _text(word[1])))
    if len(word) == 1 and word != _TOO_LATE and word[0] not in _DONE:
        return Change(Outcome(_text(word[0])), _id_of(who))
    return None


def _cancelled(who: Target, word: Sequence[bytes], told: tuple[bytes, bytes] | None) -> Change:
    outcome, task_id = Outcome(_text(word[0])), _id_of(who, *word[1:])
    return Change(outcome, task_id, cancelled=Cancelled(task_id, outcome, *(told or (b"", b""))))


def _moved(who: Target, word: Sequence[bytes], when: When) -> Change:
    if word == _TOO_LATE:
        return Change(None, _id_of(who), error=too_late(when))
    outcome, due_ms, *others = word
    task_id, expires = (*others, b"", b"")[:2]
    named = _id_of(who, *filter(None, [task_id]))
    return Change(Outcome(_text(outcome)), named, int(due_ms), expires=_text(expires))


def _released(who: Target, word: Sequence[bytes]) -> Change:
    # What was not looked at is read anew, like what was changed meanwhile.
    if word == _AGAIN:
        return Change(Outcome.UNCHANGED, _id_of(who))
    return _read(who, word) or Change(Outcome(_text(word[0])), _id_of(who))


def only(steps: Iterable[list[Change]]) -> tuple[Outcome, Change]:
    """What became of the only target.

    Raises:
        UnreadableRecord: its record cannot be read.
        InvalidDueTime: it would be due too late.
    """
    ((change,),) = steps
    if change.error is not None:
        raise change.error
    assert change.outcome is not None  # noqa: S101 - only a selection means what it does not mean
    return change.outcome, change


def _id_of(who: Target, *told: bytes) -> str:
    """The id of who is meant; of a key, as the answer has it."""
    if told:
        return _text(told[0])
    return "" if isinstance(who, bytes) and who.startswith(b"k") else named(who)


def _text(quoted: bytes) -> str:
    return unquote_to_bytes(quoted).decode(errors="replace")

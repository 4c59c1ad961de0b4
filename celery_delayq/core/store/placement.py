"""The shard of an entry, among several, and the shards that a call asks for it.

    an entry with a key, a call by key ----> shard_of(key): so a key has one holder
    an entry without one ------------------> shard_of(id)
    a call by id --------------------------> shard_of(id), then the others in turn

An id that this package makes is drawn so that both agree. With an id of the caller's, or of
Celery's, and a key, an entry can lie on another shard than its id's own.

A call by id therefore searches. The other way would be a pointer, from the id's own shard to the
key's. A search needs no second write and nothing to sweep, and it is never stale. Its price is one
more read a shard, and only for ids without an entry on their own shard. A tombstone there does not
end it: the task may wait again, with a key by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from .. import clock
from ..errors import AlreadyScheduled, DelayQError, InFlight, StoreUnavailable, UnreadableRecord
from . import lookup
from .caller import Attempts
from .ids import Target, named
from .keys import shard_of
from .outcome import Outcome
from .record import NewRecord
from .shard import Shard
from .values import Entry, NewEntry, State

_GONE = (Outcome.NOT_FOUND, Outcome.HANDED_OVER)

Detail = TypeVar("Detail")


class Placed(Protocol):
    """An entry that is to be written."""

    @property
    def task_id(self) -> str: ...

    @property
    def record(self) -> NewRecord: ...


def shard_for(placed: Placed, shards: int) -> int:
    """Return the shard of an entry."""
    return shard_of(placed.record.key or placed.task_id, shards)


def to_ask(shards: Sequence[Shard], who: Target) -> Sequence[Shard]:
    """Return the shards that may have an entry, the likeliest first."""
    own = shard_of(named(who), len(shards))
    return [shards[own]] if who[:1] == b"k" else [*shards[own:], *shards[:own]]


def change(
    shards: Sequence[Shard],
    who: Target,
    step: Callable[[Shard, float], tuple[Outcome, Detail]],
) -> tuple[Outcome, Detail]:
    """Change an entry on the first shard that has it.

    Args:
        shards: All shards.
        who: The entry.
        step: Changes it on one shard; gets the shard, and when the call ends.

    Returns:
        The answer of that shard. If none has it: ``HANDED_OVER``, if one knows of that.
    """
    until = clock.monotonic() + shards[0].calls.timeout
    best: tuple[Outcome, Detail] | None = None
    for shard in to_ask(shards, who):
        answer = step(shard, until)
        if answer[0] not in _GONE:
            return answer
        if best is None or answer[0] is Outcome.HANDED_OVER:
            best = answer
    assert best is not None  # noqa: S101 - there is at least one shard
    return best


def refused(
    shards: Sequence[Shard],
    new: Sequence[NewEntry],
    *,
    supersede: bool,
    until: float,
    pauses: Iterable[float],
) -> dict[int, DelayQError]:
    """Return by place the new entries whose id waits on its own shard, but their key has another.

    Each shard looks only at itself, and an id must not wait twice.

    Args:
        shards, new: All shards, and the entries.
        supersede, until, pauses: As for :func:`schedule.schedule`.
    """
    errors: dict[int, DelayQError] = {}
    shard_by_id: dict[str, int] = {}
    for place, entry in enumerate(new):
        own, here = shard_of(entry.task_id, len(shards)), shard_for(entry, len(shards))
        error: DelayQError | None = None
        if shard_by_id.setdefault(entry.task_id, here) != here:
            error = AlreadyScheduled(entry.task_id)
        elif own != here:
            error = _in_the_way(shards[own], entry.task_id, supersede, until, pauses)
        if error is not None:
            errors[place] = error
    return errors


def _in_the_way(
    shard: Shard, task_id: str, supersede: bool, until: float, pauses: Iterable[float]
) -> DelayQError | None:
    try:
        entry = _found(shard, task_id, until, pauses)
    except UnreadableRecord:
        return AlreadyScheduled(task_id)
    # The running task schedules itself anew, and this is the entry that delivered it.
    if entry is None or (supersede and (entry.state is State.IN_FLIGHT or entry.attempts)):
        return None
    return (InFlight if entry.state is State.IN_FLIGHT else AlreadyScheduled)(task_id)


def _found(shard: Shard, task_id: str, until: float, pauses: Iterable[float]) -> Entry | None:
    attempts = Attempts(until, iter(pauses))
    while True:
        try:
            return lookup.find(shard, task_id, until)
        except StoreUnavailable as error:
            # The call that schedules was not sent yet.
            attempts.wait_after(StoreUnavailable("schedule", error.why, False))

"""Brings cancelled tasks back: one by its id, or all of a bulk; and moves those of a bulk back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from urllib.parse import unquote

from ...core.clock import from_ms
from ...core.errors import InvalidOption, NotUndone
from ...core.hooks import part_of
from ...core.services import HasServices, Services
from ...core.store import Cancelled, Change, Outcome
from ...core.store.calls import Shard
from ...core.store.changes import Move, changed
from ...core.store.entries import to_ask
from ...core.store.keys import target_of
from ...core.store.lookup import UNDO_PARTS
from ...core.tasks.scheduled_task import Named, id_of, of_one_task
from ...core.text import counted

CHUNK = 50  # tasks of one call: some 5 ms of Redis's time
READ = 100  # lines of one look for those of a bulk

_UNKNOWN = "unknown"
_NO_BULK = "no change of many with this name is kept; see delayq_undo"
_LOST = "{} cannot come back: no undo of theirs is kept any more; see delayq_undo"


@dataclass(frozen=True)
class Undoable:
    """A task that was cancelled or moved and that an undo can bring back.

    Attributes:
        id: Its id.
        when: When that was, UTC.
        bulk: The name of the change of many tasks that did it; empty if it was cancelled by itself.
        moved: Whether it was moved, by a change of many.
    """

    id: str
    when: datetime
    bulk: str
    moved: bool = False


@dataclass
class Undone:
    """The result of an undo of many tasks; it is true if all are back.

    Attributes:
        done: How many wait again.
        refused: Why others do not.
        lost: How many others of the bulk stay cancelled because no undo of theirs is kept any
            more; ``None`` if no bulk of that name is known.
    """

    done: int = 0
    refused: list[NotUndone] = field(default_factory=list)
    lost: int | None = 0

    def __bool__(self) -> bool:
        return not self.refused and self.lost == 0

    @property
    def reasons(self) -> list[str]:
        """Why tasks are not back: a sentence for those that are lost, and one for each refused."""
        if self.lost is None:
            lost = [_NO_BULK]
        else:
            lost = [_LOST.format(counted(self.lost))] if self.lost else []
        return lost + [str(error) for error in self.refused]


@of_one_task
def undo(delayq: HasServices, task_id: Named, *, now: bool = False) -> datetime:
    """Bring back a task that was cancelled or removed: it waits again, as it was.

    The setting ``delayq_undo`` says for how long, and of how many tasks, that can be done. The
    task has its id, due time, tags and attempts, its key if no other task has that, and its
    result is no longer ``REVOKED``.

    Args:
        task_id: As for :meth:`cancel`; a key names no task that has left.
        now: Whether the task is due now if its due time has come since it was cancelled.

    Returns:
        Its due time, UTC.

    Raises:
        NotUndone: it cannot be brought back; ``reason`` and the sentence say why.
    """
    (answer,) = undo_some(delayq.services, [id_of(task_id)], now=now)
    if isinstance(answer, NotUndone):
        raise answer
    return from_ms(answer)


def undo_some(
    services: Services, task_ids: Sequence[str], *, now: bool = False
) -> list[int | NotUndone]:
    """Bring back cancelled tasks.

    Args:
        services: The app's.
        task_ids: At most :data:`CHUNK` of their ids.
        now: Whether those whose due time has come since are due now, in place of being refused.

    Returns:
        For each its due time, ms; or why it is not back.
    """
    return _told(services, _undo(services, task_ids, now=now))


def undo_all(
    delayq: HasServices,
    bulk: str,
    *,
    now: bool = False,
    progress: Callable[[Undone], object] | None = None,
) -> Undone:
    """Bring back the tasks that one change of many cancelled, removed or moved, as far as is kept.

    A moved task gets its old due time again, unless it was moved or changed since.
    The setting ``delayq_undo`` says for how long, and of how many tasks, that is. You can
    repeat the call: it goes on with those that are not back.

    Args:
        bulk: The ``bulk`` of the ``Count`` that the change returned.
        now: As for :meth:`undo`.
        progress: Called after each 50 tasks with the result so far.

    Returns:
        How many are ``done``; why others were ``refused``, a list of ``NotUndone``; and how
        many are ``lost``, as no undo of theirs is kept any more (``None``: no change of that
        name is known). It is true if all are back, from this call or earlier ones.

    Raises:
        InvalidOption: *bulk* is not such a name.
        kombu.exceptions.OperationalError: Redis cannot be reached. What is back stays.
    """
    services = delayq.services
    if not isinstance(bulk, str) or not bulk.isalnum():
        raise InvalidOption("bulk", bulk, "the bulk of a Count, as a cancel of many returned it")
    undone, tasks = Undone(), _undoable(services, bulk)
    while some := [*islice(tasks, CHUNK)]:
        with part_of(bulk):
            moved = [(shard, task.id) for shard, task in some if task.moved]
            answers = _move_back(services, moved, now=now)
            back = _undo(services, [task.id for _, task in some if not task.moved], now=now)
        for answer in [*answers, *_told(services, back)]:
            if isinstance(answer, NotUndone):
                undone.refused.append(answer)
            else:
                undone.done += 1
        if progress is not None:
            progress(undone)
    # Those that were refused are still kept.
    kept, left = services.entries.undoable(bulk)
    undone.lost = None if left is None else max(0, left - kept)
    return undone


def _move_back(
    services: Services, moved: Sequence[tuple[Shard, str]], *, now: bool
) -> list[int | NotUndone]:
    """Move tasks back to where a bulk found them; return their due times, or why not."""
    what, answers = Move(mode="hurry" if now else "back"), list[int | NotUndone]()
    for shard in {id(shard): shard for shard, _ in moved}.values():
        targets = [target_of(task_id) for its, task_id in moved if its is shard]
        for made in changed(shard, what, targets):
            answers += [_moved_back(services, change) for change in made]
    return answers


def _moved_back(services: Services, change: Change) -> int | NotUndone:
    if change.due_ms is not None:
        services.hooks.rescheduled(change.task_id, change.due_ms)
        return change.due_ms
    if isinstance(change.error, NotUndone):
        return change.error
    is_there = change.error is not None or change.outcome is Outcome.UNCHANGED
    return NotUndone(change.task_id, "changed" if is_there else "gone", change="move")


def _undo(services: Services, task_ids: Sequence[str], *, now: bool) -> dict[str, int | NotUndone]:
    found: dict[str, int | NotUndone] = {}
    for shard in services.entries.unasked_shards:
        rest = [task_id for task_id in dict.fromkeys(task_ids) if task_id not in found]
        found.update(_undo_in(services, shard, rest, now=now))
    return {task_id: found.get(task_id) or _why_unknown(services, task_id) for task_id in task_ids}


def _told(services: Services, answers: dict[str, int | NotUndone]) -> list[int | NotUndone]:
    """Notify of the tasks that are back; return the answers."""
    back = [(task_id, due) for task_id, due in answers.items() if isinstance(due, int)]
    if back:
        services.hooks.undone(back)
    return list(answers.values())


def undoable(delayq: HasServices) -> Iterator[Undoable]:
    """The tasks that an undo can bring back, in no order, read as you iterate.

    Returns:
        Objects with ``id``, ``when`` it was cancelled or ``moved``, and the ``bulk`` of which it
        was one, or an empty text.
    """
    return (task for _, task in _undoable(delayq.services))


def _undoable(services: Services, bulk: str = "") -> Iterator[tuple[Shard, Undoable]]:
    """Yield the tasks that an undo can bring back, or a bulk's, each once; with its shard."""
    seen = set[tuple[str, bool]]()
    for shard in services.entries.shards:
        for part in UNDO_PARTS:
            for task in _lines_in(shard, part, bulk):
                if (task.id, task.moved) not in seen:
                    seen.add((task.id, task.moved))
                    yield shard, task


def _lines_in(shard: Shard, part: str, bulk: str) -> Iterator[Undoable]:
    cursor: bytes | int = 0
    while True:
        answer = shard.scripts.call(
            "undoable", part=part, cursor=cursor, count=READ, bulk=bulk, tells=1
        )
        for row in answer.found:
            name = row.bulk.decode()
            when = from_ms(int(row.when) // 1000)
            task_id = row.id.decode(errors="replace")
            yield Undoable(task_id, when, "" if name == "-" else name, bool(int(row.moved)))
        cursor = answer.cursor
        if int(cursor) == 0:
            return


def _undo_in(
    services: Services, shard: Shard, task_ids: list[str], *, now: bool
) -> Iterator[tuple[str, int | NotUndone]]:
    """Bring back what was cancelled in a shard; yield the answers about those that it knows."""
    shards, ids = services.entries.unasked_shards, list(task_ids)
    for task_id in task_ids:
        # A script looks only at its own shard, and an id must not wait twice.
        own = to_ask(shards, target_of(task_id))[0]
        if own is not shard and services.entries.state(target_of(task_id)) is not None:
            ids.remove(task_id)
    if not ids:
        return
    tells = services.has_backend
    text, rows = shard.calls.call("undo", hurries=int(now), tells=int(tells), ids=ids)
    for row in rows:
        cancelled = Cancelled(ids[row.place - 1], Outcome.DONE, b"", row.message)
        services.take_back(cancelled)
    for task_id, word in zip(ids, text.decode().split(" "), strict=True):
        answer, _, detail = word.partition(":")
        if answer == "done":
            yield task_id, int(detail)
        elif answer != _UNKNOWN:
            yield task_id, _refusal(task_id, answer, unquote(detail))


def _refusal(task_id: str, answer: str, detail: str) -> NotUndone:
    if answer == "overdue":
        detail = from_ms(int(detail)).isoformat()
    return NotUndone(task_id, "waits" if answer == "here" else answer, detail)


def _why_unknown(services: Services, task_id: str) -> NotUndone:
    """Return why no line of a task is known."""
    waits = services.entries.state(target_of(task_id)) is not None
    return NotUndone(task_id, "waits" if waits else _UNKNOWN)

"""A selection whose tasks' messages can be changed, too: edited, or released.

Both give each task a new record, batch by batch:

read a batch --> make the new records --> write them, each if it is unchanged
      ^                                             |
      +---------- changed since they were read -----+

A release sends waiting tasks as plain Celery messages with an ``eta``. First it looks at all of
them: a run of a recurring rule, or a canvas without ``canvas=True``, is refused, and nothing is
sent. Then they go in due order, each with its due time as the ``eta``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from celery.app.task import Task

from ..core import clock
from ..core.clock import TimeInput, celery_time, from_ms
from ..core.errors import InvalidOption, NotATask, RulesRemain, StoreUnavailable, UnreadableRecord
from ..core.hooks import part_of
from ..core.leaves import LEAVES, leaf
from ..core.message.headers import LAUNCH, warn_of_expiry
from ..core.services import HasServices, Services
from ..core.store import Filter, Match, Outcome, Position, Shard, State, label_of, target_of_member
from ..core.store.changes import WAITING, Rewrite, rewritten
from ..core.store.record import Entry, NewRecord, Record, entry_of
from ..core.store.selection import peek
from ..core.tasks import selection
from ..core.tasks.changing import Changes
from ..core.tasks.reading import OneOf, Picks
from ..core.tasks.selection import (
    Count,
    Progress,
    Selection,
    Tally,
    of_many,
    report,
    telling_so_far,
)
from ..core.threads import awaited
from .edits import CANVAS, KEPT, Draft, Edit, Edited, edited, hurry

if TYPE_CHECKING:
    from typing_extensions import Unpack

STEP = 50  # members to read and write in one step: about 5 ms of Redis's time
_FIRST = 5  # tasks that an edit shows
_WHY = 10  # refused tasks that it names
STEP_BYTES = 1_000_000  # approximate limit of new records in one call

_SomeTally = TypeVar("_SomeTally", bound=Tally)
_Part = tuple[Match, Record, NewRecord]


class _Rewriting(Generic[_SomeTally]):
    """An operation that rewrites the tasks of a selection.

    Args:
        services: The app's.
        chosen: The selection's filters.
        bulk: The name of the change.

    Attributes:
        name: The operation, to name in errors.
        releases: Whether it delivers them at once.
    """

    name: str
    releases = False

    def __init__(self, services: Services, chosen: Filter, bulk: str) -> None:
        self._services = services
        self._chosen = chosen
        self._bulk = bulk

    def new_record(self, met: Match, tally: _SomeTally) -> NewRecord | None:
        """Return the new record of a task; ``None`` if that stays as it is."""
        raise NotImplementedError

    def done(self, met: Match, seen: Record, tally: _SomeTally) -> None:
        """Note that a task has its new record."""

    def step(self, shard: Shard, members: Sequence[bytes], tally: _SomeTally) -> None:
        """Rewrite the waiting tasks among *members*.

        Raises:
            StoreUnavailable: other processes keep changing them.
        """
        until = clock.monotonic() + self._services.settings.timeout
        left = list(members)
        while left:
            again = []
            for some in self._batches(shard, left, tally):
                parts = [
                    (
                        target_of_member(met.member),
                        Rewrite(seen, new, self.releases, chosen=self._chosen.text),
                    )
                    for met, seen, new in some
                ]
                with part_of(self._bulk):
                    changes = rewritten(shard, parts)
                for (met, seen, _), change in zip(some, changes, strict=True):
                    if change.outcome is Outcome.UNCHANGED:
                        again.append(met.member)
                        continue
                    tally.changed(change.outcome)
                    if change.outcome in (Outcome.DONE, Outcome.UNCERTAIN):
                        self.done(met, seen, tally)
            left = again
            if left and clock.monotonic() >= until:
                raise StoreUnavailable(
                    self.name, "other processes keep changing the same tasks", False
                )

    def _batches(
        self, shard: Shard, members: Sequence[bytes], tally: _SomeTally
    ) -> Iterator[list[_Part]]:
        """Yield the tasks to rewrite with their new records, in batches for one call each."""
        batch: list[_Part] = []
        size = 0
        for met in peek(shard, self._chosen, members, reads=True):
            new = self.new_record(met, tally)
            if new is None or met.record is None:
                continue
            batch.append((met, met.record, new))
            size += new.size
            if size >= STEP_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def _is_run(met: Match, record: Record) -> bool:
    """Whether a recurring rule has written a task: such a run has a UUID of version 5 as id."""
    if met.task_id[14:15] != "5" or "rules" not in LEAVES:
        return False
    tags = entry_of(met.task_id, met.facts, record, met.template).extras.tags
    return bool(leaf("rules").is_run(met.task_id, tags))


_CANVAS = label_of(LAUNCH)
_STAYS = ("DEAD", "UNREADABLE")
_CANVASES = "True: only a worker with celery_delayq can run a canvas, and there {}"


class Released(Count):
    """The number of tasks that were released, or would be.

    Attributes:
        canvases: How many of these are canvases.
        beyond: How many of these are due later than the broker lets a worker hold a message.
        dead: How many others stay because they are dead.
    """

    canvases: int = 0
    beyond: int = 0
    dead: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all matching tasks were released, and none was delivered before."""
        return super().is_complete and not self.dead


class _ReleaseTally(Tally):
    """Counts released tasks, step by step; and runs of recurring rules among them."""

    def __init__(self) -> None:
        super().__init__()
        self.canvases = self.beyond = self.dead = self.runs = 0

    @property
    def count(self) -> Released:
        plain = super().count
        made = Released(
            plain,
            uncertain=plain.uncertain,
            in_flight=plain.in_flight,
            unreadable=plain.unreadable,
        )
        made.canvases, made.beyond, made.dead = self.canvases, self.beyond, self.dead
        return made


class _Release(_Rewriting[_ReleaseTally]):
    """The release of the tasks of a selection.

    Args:
        services: The app's.
        chosen: The selection's filters.
        bulk: The name of the change.
    """

    name = "release"
    releases = True

    def __init__(self, services: Services, chosen: Filter, bulk: str) -> None:
        super().__init__(services, chosen, bulk)
        self._limit = services.broker.hold_limit
        self._has_rules = services.entries.counts().rules > 0
        self._found: list[bytes] = []  # sorted by due time: due time, shard and member of each

    def count_page(self, number: int, members: Sequence[bytes], tally: _ReleaseTally) -> None:
        """Count the tasks among *members* that would be released, and remember all of them."""
        shard = self._services.entries.shards[number]
        for met in peek(shard, self._chosen, members, reads=True):
            place = met.due_ms.to_bytes(6, "big") + number.to_bytes(2, "big")
            self._found.append(place + met.member)
            if met.state in _STAYS:
                tally.dead += 1
            elif met.record is not None and not met.record.is_released:
                tally.met(met.state, would=met.state != "IN_FLIGHT")
                tally.runs += self._has_rules and _is_run(met, met.record)
                self._note(met, met.record, tally)

    def steps(self, size: int) -> Iterator[tuple[Shard, list[bytes]]]:
        """Yield the members that were counted, in due order: shard by shard of each next *size*.

        A worker takes messages in the order of its queue. If it met the far ones first, the others
        would be late.
        """
        self._found.sort()
        for first in range(0, len(self._found), size):
            of_shard = defaultdict(list)
            for found in self._found[first : first + size]:
                of_shard[int.from_bytes(found[6:8], "big")].append(found[8:])
            for number, members in of_shard.items():
                yield self._services.entries.shards[number], members

    def new_record(self, met: Match, tally: _ReleaseTally) -> NewRecord | None:
        if met.state in _STAYS:
            tally.dead += 1
            return None
        if met.record is None or met.record.is_released:
            return None
        try:
            return self._new_record(met, met.record)
        except Exception:  # an invalid message fails in many ways
            tally.unreadable += 1
            return None

    def done(self, met: Match, seen: Record, tally: _ReleaseTally) -> None:
        self._note(met, seen, tally)

    def _new_record(self, met: Match, record: Record) -> NewRecord:
        entry = entry_of(met.task_id, met.facts, record, met.template)
        draft = Draft(entry.message, record, self._services.app)
        if draft.is_v1 and not draft.is_readable:
            raise ValueError("its body cannot be decoded, or may not be")
        draft.set_eta(from_ms(entry.due_ms))
        grace_ms = entry.extras.grace_ms
        if grace_ms is not None:
            # Celery has no grace period, but it does not run expired tasks either.
            last = from_ms(max(entry.due_ms, met.facts.late_from_ms or 0) + grace_ms)
            expires = draft.expires
            if expires is None or celery_time(expires) > last:
                draft.set_expiry(last)
        return draft.released()

    def _note(self, met: Match, record: Record, tally: _ReleaseTally) -> None:
        tally.canvases += record.task_label == _CANVAS
        ahead_ms = met.due_ms - met.now_us // 1000
        tally.beyond += self._limit is not None and ahead_ms > self._limit.seconds * 1000


class Before(NamedTuple):
    """A task that an edit fits to other code, as logs show its call.

    Attributes:
        id: Its id.
        before: The call as it waits.
        after: The call that it becomes.
    """

    id: str
    before: str
    after: str


class Edits(Count):
    """The number of tasks that were edited, or would be.

    Attributes:
        first: The first five of them, if the edit has ``task`` or ``change``.
        of_rules: How many others stay, because their rule writes them: :meth:`Rule.rewrite` changes
            that. A run that somebody moved or edited is not among them.
        refused: How many others stay, because their new arguments do not fit the task, or
            ``change`` raised an error.
        why: The first ten of these: the id, and the error.
    """

    first: tuple[Before, ...] = ()
    of_rules: int = 0
    refused: int = 0
    why: tuple[tuple[str, str], ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether no matching task was left unchanged, refused, or delivered before."""
        return super().is_complete and not self.refused


class _EditTally(Tally):
    """Counts edited tasks, and keeps the first of them, and of those that were refused."""

    def __init__(self) -> None:
        super().__init__()
        self._first, self._refused = list[Before](), dict[str, str]()
        self._refusals = self.of_rules = 0

    @property
    def count(self) -> Edits:
        return self.of(super().count)

    def of(self, plain: Count) -> Edits:
        """Return a count with what this one keeps."""
        made = Edits(
            plain,
            uncertain=plain.uncertain,
            in_flight=plain.in_flight,
            unreadable=plain.unreadable,
        )
        made.first, made.of_rules = (*self._first,), self.of_rules
        made.refused, made.why = self._refusals, (*self._refused.items(),)
        return made

    def edited(self, task_id: str, what: Edited) -> None:
        """Keep one of the first that were edited, or would be."""
        if what.before and len(self._first) < _FIRST:
            self._first.append(Before(task_id, what.before, what.after))

    def refuse(self, task_id: str, error: Exception) -> None:
        """Count a task that stays."""
        self._refusals += 1
        if len(self._refused) < _WHY:
            self._refused[task_id] = f"{type(error).__name__}: {error}"


class _EditMany(_Rewriting[_EditTally]):
    """An edit of the tasks of a selection.

    Args:
        services: The app's.
        chosen: The selection's filters.
        bulk: The name of the change.
        changes: The new values.
    """

    name = "edit"

    def __init__(self, services: Services, chosen: Filter, bulk: str, changes: Edit) -> None:
        super().__init__(services, chosen, bulk)
        self._changes = changes
        self._made: dict[bytes, tuple[Entry, Edited]] = {}
        self._edited: list[tuple[str, int, str]] = []

    def refuse_canvases(self, shard: Shard, members: Sequence[bytes]) -> None:
        """Raise ``NotATask`` if there is a canvas among *members* that cannot be edited."""
        if not self._changes.has_message or self._changes.suits_canvases:
            return
        for met in peek(shard, replace(self._chosen, tasks=(LAUNCH,)), members):
            raise NotATask("task", met.task_id, CANVAS)

    def step(self, shard: Shard, members: Sequence[bytes], tally: _EditTally) -> None:
        self._made.clear()
        super().step(shard, members, tally)
        warn_of_expiry(self._edited)
        self._edited.clear()

    def look(self, shard: Shard, members: Sequence[bytes], tally: _EditTally) -> None:
        """Count the tasks among *members* that would be edited, as if they were."""
        for met in peek(shard, self._chosen, members, reads=True):
            if self.new_record(met, tally) is not None:
                would = met.state in WAITING
                tally.met(met.state, would=would)
                if would:
                    tally.edited(met.task_id, self._made[met.member][1])
        self._made.clear()

    def new_record(self, met: Match, tally: _EditTally) -> NewRecord | None:
        if met.record is None or met.state == "UNREADABLE":
            tally.unreadable += met.state == "UNREADABLE"
            return None
        if met.record.is_released:
            return None
        # A rule that says another task writes its runs anew, beside those that have changed.
        is_as_written = met.record.changed_us // 1000 == met.record.created_ms
        if self._changes.moves_along and is_as_written and _is_run(met, met.record):
            tally.of_rules += 1
            return None
        made = self._made_of(met, met.record, tally)
        return made.record if made else None

    def _made_of(self, met: Match, record: Record, tally: _EditTally) -> Edited | None:
        made = None
        try:
            entry = entry_of(met.task_id, met.facts, record, met.template)
            made = edited(self._services, entry, self._changes)
        except UnreadableRecord:
            tally.unreadable += 1
        except Exception as error:
            if not self._changes.moves_along:
                raise
            tally.refuse(met.task_id, error)
        if made is not None:
            self._made[met.member] = entry, made
        return made

    def done(self, met: Match, seen: Record, tally: _EditTally) -> None:  # noqa: ARG002
        self._services.hooks.edited(met.task_id)
        entry, made = self._made[met.member]
        hurry(self._services, entry, self._changes)
        tally.edited(entry.task_id, made)
        self._edited.append((entry.task_id, entry.due_ms, made.expires))


class RewritableSelection(Selection):
    """A selection of whose tasks the messages can be changed, too.

    Only :meth:`release` works in due order.
    """

    @of_many
    def edit(
        self,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
        **changes: Unpack[Changes],
    ) -> Edits:
        """Change their arguments, task, priority, expiry, queue or tags; see :meth:`DelayQ.edit`.

        Otherwise like :meth:`cancel`. You can repeat an edit that was interrupted; a ``change``
        that returns ``None`` for arguments that are new already changes none twice.

        With ``task`` or ``change``, a task whose new arguments do not fit stays, and is counted as
        ``refused``; a dry run makes all the new arguments to tell that before.

        Raises:
            InvalidOption: as :meth:`DelayQ.edit`; there is a canvas (``NotATask``), and nothing was
                changed; or a ``key`` is given, which only one task can have.
        """
        edit = Edit(**changes)
        if edit.key is not KEPT:
            raise InvalidOption("key", edit.key, "none: only one task can have a key")
        edit.check_names(self._services)
        edits, tally = _EditMany(self._services, self._chosen, self.bulk, edit), _EditTally()
        for _, shard, page in self._pages():
            edits.refuse_canvases(shard, page)
        if dry_run and not edit.moves_along:
            return tally.of(self._would_change(lambda met: met.state in WAITING, progress))
        self._rewrite(edits.look if dry_run else edits.step, tally, progress)
        return tally.count

    def release(
        self, *, canvas: bool = False, dry_run: bool = False, progress: Progress | None = None
    ) -> Released:
        """Send them at once, as plain Celery messages whose ``eta`` is their due time.

        They go in due order, so that no worker takes far ones before near ones. For that, this
        process needs some 100 bytes of memory for each task.

        Each goes to its queue now, even if it is paused. The worker that takes it waits until the
        ``eta``, with or without this package. A relative ``expires`` still counts from the due
        time, and a grace period becomes an ``expires``. To cancel a released task, use Celery.

        If no scanner is alive, call :meth:`DelayQ.hand_over` to send the released tasks. Tasks that
        are dead or being published stay; another call can release them later, also after an error:
        :attr:`cursor` stays at the start until the end.

        Args:
            canvas: Also release canvases; only a worker with this package can run them.
            dry_run: Only count.
            progress: Called after each step with the count so far.

        Raises:
            InvalidOption: there are canvases, and *canvas* is false; nothing was sent.
            RulesRemain: there are runs of recurring rules that are still there; nothing was sent.
            StoreError: as for :meth:`cancel`; ``StoreFull`` is possible, as messages grow.
        """
        releases, seen = _Release(self._services, self._chosen, self.bulk), _ReleaseTally()
        at = self._at = self._begun
        with telling_so_far(seen):
            for number, _, page in self._pages():
                releases.count_page(number, page, seen)
                at = self._begun.behind(number, Position.of(page[-1]))
                report(progress if dry_run else None, seen)
        if seen.runs:
            raise RulesRemain(seen.runs)
        if seen.canvases and not canvas:
            are = "is 1" if seen.canvases == 1 else f"are {seen.canvases}"
            raise InvalidOption("canvas", False, _CANVASES.format(are))
        if dry_run:
            return seen.count
        tally = _ReleaseTally()
        with telling_so_far(tally):
            for shard, members in releases.steps(STEP):
                releases.step(shard, members, tally)
                report(progress, tally)
        self._at = at
        return tally.count

    def _rewrite(
        self,
        step: Callable[[Shard, Sequence[bytes], _SomeTally], None],
        tally: _SomeTally,
        progress: Progress | None,
    ) -> None:
        self._at = self._begun
        with telling_so_far(tally):
            for number, shard, page in self._pages():
                for first in range(0, len(page), STEP):
                    some = page[first : first + STEP]
                    step(shard, some, tally)
                    self._at = self._begun.behind(number, Position.of(some[-1]))
                    report(progress, tally)


def select(
    delayq: HasServices,
    *,
    tag: OneOf[str] | None = None,
    task: OneOf[Task[..., Any] | str] | None = None,
    queue: OneOf[str] | None = None,
    state: OneOf[State | str] | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    all: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> RewritableSelection:
    """Select tasks; see :func:`celery_delayq.core.tasks.selection.select`."""
    picks = Picks(tag, task, queue, state, after_due, before_due, all, limit, cursor)
    return RewritableSelection(delayq.services, picks)


select.__doc__ = selection.select.__doc__
aselect = awaited(select, reads=True)

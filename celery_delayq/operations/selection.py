"""Selections whose messages can be changed, too: edited, or released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.app.task import Task

from ..core.clock import TimeInput
from ..core.errors import InvalidOption
from ..core.services import HasServices
from ..core.store import Position, State
from ..core.store.changes import WAITING
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
from .editing_many import EditMany
from .edits import KEPT, Edit
from .releasing import Release, Released, ReleaseTally, refuse_canvases, refuse_runs
from .rewriting import STEP, Rewriting, SomeTally

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    ) -> Count:
        """Change their arguments, priority, expiry, queue or tags; see :meth:`DelayQ.edit`.

        Otherwise like :meth:`cancel`. You can repeat an edit that was interrupted.

        Raises:
            InvalidOption: as :meth:`DelayQ.edit`; there is a canvas (``NotATask``), and nothing was
                changed; or a ``key`` is given, which only one task can have.
        """
        edit = Edit(**changes)
        if edit.key is not KEPT:
            raise InvalidOption("key", edit.key, "none: only one task can have a key")
        edits = EditMany(self._services, self._chosen, self.bulk, edit)
        for _, shard, page in self._pages():
            edits.refuse_canvases(shard, page)
        if dry_run:
            return self._would_change(lambda met: met.state in WAITING, progress)
        tally = Tally()
        self._rewrite(edits, tally, progress)
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
        releases, seen = Release(self._services, self._chosen, self.bulk), ReleaseTally()
        at = self._at = self._begun
        with telling_so_far(seen):
            for number, _, page in self._pages():
                releases.count_page(number, page, seen)
                at = self._begun.behind(number, Position.of(page[-1]))
                report(progress if dry_run else None, seen)
        refuse_runs(seen.runs)
        if not canvas:
            refuse_canvases(seen.canvases)
        if dry_run:
            return seen.count
        tally = ReleaseTally()
        with telling_so_far(tally):
            for shard, members in releases.steps(STEP):
                releases.step(shard, members, tally)
                report(progress, tally)
        self._at = at
        return tally.count

    def _rewrite(
        self, rewriting: Rewriting[SomeTally], tally: SomeTally, progress: Progress | None
    ) -> None:
        self._at = self._begun
        with telling_so_far(tally):
            for number, shard, page in self._pages():
                for first in range(0, len(page), STEP):
                    some = page[first : first + STEP]
                    rewriting.step(shard, some, tally)
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

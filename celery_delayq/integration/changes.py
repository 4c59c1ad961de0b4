"""What ``DelayQ`` changes: one task, by its id or key, or many, by a selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery.app.task import Task

from ..clock import DelayInput, TimeInput, one_of
from ..leaves import leaf
from ..operations import changing, editing, pausing
from ..operations.changing import Direction
from ..operations.editing import KEPT, Edit
from ..operations.selecting import select
from ..operations.selection import Selection
from ..operations.targets import Named
from ..services import Services
from ..store import Outcome, State

if TYPE_CHECKING:
    from ..care.loading import Lines, Loaded
    from ..care.misfits import Finding, Repaired


class Changes:
    """The part of ``DelayQ`` that changes what waits.

    A task is named by what scheduling returned, or by its id, as text or a UUID; or, with ``key``,
    by its unique key.
    """

    services: Services

    def cancel(
        self, task_id: Named | None = None, *, key: str | None = None, revoke: bool = False
    ) -> Outcome:
        """Remove a scheduled task; its result becomes ``REVOKED``.

        Args:
            task_id: What scheduling returned, or its id, as text or a UUID.
            key: In place of *task_id*: whoever has this unique key.
            revoke: When it has left already, or may have, tell the workers to drop it, as
                ``app.control.revoke`` does; with *task_id* only.

        Returns:
            ``Outcome.DONE``, the only true one; or why not.
        """
        return changing.cancel(self.services, task_id, key=key, revoke=revoke)

    def reschedule(
        self,
        task_id: Named | None = None,
        at: TimeInput | None = None,
        *,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
        key: str | None = None,
        only: Direction | None = None,
        if_due: TimeInput | None = None,
    ) -> Outcome:
        """Give a scheduled task another due time; its id stays.

        Args:
            task_id: What scheduling returned, or its id, as text or a UUID.
            at: As for :meth:`schedule`.
            after: From now: a timedelta, or seconds.
            by: From its present due time, negative for earlier: a timedelta, or seconds.
            key: In place of *task_id*: whoever has this unique key.
            only: ``"earlier"`` or ``"later"``: do not move it the other way, or not at all.
            if_due: Only if this is its due time, to the millisecond.

        Returns:
            ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: *only* or *if_due* does
            not hold. A task that is moved past its own absolute ``expires`` is moved; a warning in
            the log says that no worker will run it.

        Raises:
            InvalidDueTime: not a time, or past 2255-06-05.
        """
        when = one_of(self.services.timezone, at=at, after=after, by=by)
        return changing.reschedule(self.services, task_id, when, key=key, only=only, if_due=if_due)[
            0
        ]

    def edit(
        self,
        task_id: Named | None = None,
        *,
        key: str | None = None,
        args: Sequence[Any] = KEPT,
        kwargs: Mapping[str, Any] = KEPT,
        priority: int | None = KEPT,
        expires: float | timedelta | datetime | str | None = KEPT,
        if_revision: int | None = None,
    ) -> Outcome:
        """Give a scheduled task other arguments, another priority or expiry; all else stays.

        What is not given stays as it is. The message keeps its serializer, compression, headers
        and links; it is not routed anew, and no signal of Celery's is sent.

        Args:
            task_id: What scheduling returned, or its id, as text or a UUID.
            key: Its unique key, in place of an id.
            args: All positional arguments. An ``argsrepr`` of the call's own stays.
            kwargs: All keyword arguments.
            priority: 0 to 255, as the broker takes it; ``None``: the broker's default.
            expires: Seconds after the due time, or a timedelta; a time, as a datetime or ISO 8601
                text; ``None``: never.
            if_revision: Only if the task's ``revision`` is still this one.

        Returns:
            ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it has another revision.

        Raises:
            InvalidOption: nothing is given, or something that cannot be; the arguments that it has
                cannot be read; it is a canvas (``NotATask``).
            TypeError: the arguments do not fit the task.
            MessageTooLarge: larger than ``delayq_max_message``.
        """
        changes = Edit(args, kwargs, priority, expires)
        return editing.edit(self.services, task_id, changes, key=key, if_revision=if_revision)

    def run_now(self, task_id: Named | None = None, *, key: str | None = None) -> Outcome:
        """Let a task go at once, also where it is paused, or dead.

        It is due now, by Redis's clock, until it is rescheduled.

        Returns:
            ``Outcome.DONE``, the only true one; or why not.
        """
        return changing.run_now(self.services, task_id, key=key)[0]

    def retry(self, task_id: Named | None = None, *, key: str | None = None) -> Outcome:
        """Try the hand-over of a dead task again: it is due now.

        Returns:
            ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it is not dead.
        """
        return changing.retry(self.services, task_id, key=key)[0]

    def remove(self, task_id: Named | None = None, *, key: str | None = None) -> Outcome:
        """Delete a dead task, also one that cannot be read; its result becomes ``REVOKED``.

        Returns:
            ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it is not dead.

        Raises:
            UnreadableRecord: it cannot be read, and is not dead yet; it will be once it is due.
        """
        return changing.remove(self.services, task_id, key=key)

    def repair(self, finding: Finding) -> Repaired:
        """Mend what :meth:`check` found, if it is still so; what fits is not touched.

        All that the finding is about is looked at again in the step that mends it. A wrong count of
        a template takes a look at all records.

        Args:
            finding: One of this app's store.

        Returns:
            ``what`` became of it: ``done``; ``back``: the task waits again; ``dead``, with the
            ``reason``; ``lost``: its record is gone, and now its place is; ``gone``: it was so no
            more, and nothing was done; or ``left``, the only one that is false: such a thing is
            only told.

        Raises:
            InvalidOption: it is no finding.
        """
        repaired: Repaired = leaf("care").repair(self.services, finding)
        return repaired

    def pause(
        self, *, queue: str | None = None, task: str | Task | None = None, late: bool = False
    ) -> None:
        """Hand over nothing of a queue, of a task, or at all, until it is resumed.

        It is in force when this returns. What a scanner is publishing this moment still goes. What
        is due meanwhile waits, and holds up nothing else; it can be cancelled, and rescheduled.

        Args:
            queue: The queue: the name that tasks were sent with, or their routing key.
            task: The task, or its name.
            late: Whether tasks with a grace count as late for that time.

        Raises:
            InvalidOption: not a name, or both a queue and a task.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        pausing.pause(self.services, queue=queue, task=task, late=late)

    def resume(
        self,
        *,
        queue: str | None = None,
        task: str | Task | None = None,
        rate: float | None = None,
    ) -> bool:
        """Hand over again what :meth:`pause` holds back; each pause is resumed as it was made.

        Args:
            queue: As for :meth:`pause`.
            task: As for :meth:`pause`.
            rate: At how many tasks a second what has fallen due goes, in the order of due times; by
                default as fast as it can. What falls due from now on goes at once.

        Returns:
            Whether it was paused, or coming back.

        Raises:
            InvalidOption: not a name, or not a rate from 0.001 to 1,000,000.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        return pausing.resume(self.services, queue=queue, task=task, rate=rate)

    def load(
        self,
        lines: Lines,
        *,
        skip_existing: bool = False,
        paused: bool = False,
        dry_run: bool = False,
        progress: Callable[[Loaded], object] | None = None,
    ) -> Loaded:
        """Keep what :meth:`dump` gave, as it was: ids, due times, keys, tags, attempts, the dead.

        What was paused is paused here, before anything else. Where each message goes is found out
        for this app's broker. What is here already, and is the same task, stays as it is; what has
        left this store since it was scheduled does not come back. So the same call can be repeated;
        where the store is not paused, until 10,000 tasks have left it.

        Args:
            lines: What :meth:`dump` gave, or the same as lines of JSON, or an open file of them.
                Consumed in slices of 100.
            skip_existing: Leave out what has the id, or the key, of another task that waits here.
            paused: Pause all, before anything else.
            dry_run: Only look at the lines, and say how many tasks can be read: not whether their
                ids and keys are taken.
            progress: Called after each slice with what there is so far.

        Returns:
            How many were ``loaded``, are ``here`` already, had ``left`` and were ``skipped``; why
            others were ``refused``; and which were ``unreadable`` when they were dumped. It is true
            where none of either is.

        Raises:
            InvalidDump: it is none, was cut, or has a line that is damaged. What came before that
                line is loaded.
            kombu.exceptions.OperationalError: Redis cannot be reached. What was loaded stays.
        """
        loaded: Loaded = leaf("care").load(
            self.services,
            lines,
            skip_existing=skip_existing,
            paused=paused,
            dry_run=dry_run,
            progress=progress,
        )
        return loaded

    def select(
        self,
        *,
        tag: str | None = None,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        state: State | str | None = None,
        after_due: TimeInput | None = None,
        before_due: TimeInput | None = None,
        all: bool = False,
        cursor: str | None = None,
    ) -> Selection:
        """Pick tasks, to count, read or change them all; all that is given has to be so.

        By tag it costs what has the tag; by a state other than ``SCHEDULED``, what is in that
        state; else, what waits: some seconds of Redis's time for a million tasks, in short steps.

        Args:
            tag: It has this tag.
            task: It is of this task, or of the task of this name.
            queue: It was sent with this queue.
            state: It is in this state.
            after_due: It is due at this time or later.
            before_due: It is due before this time.
            all: Everything, where nothing else is given.
            cursor: Go on behind the ``cursor`` of an earlier selection by the same arguments.

        Raises:
            InvalidOption: nothing was given; or *cursor* is none, or one of another selection or
                store.
            InvalidDueTime: not a time.
        """
        return select(
            self.services,
            tag=tag,
            task=task,
            queue=queue,
            state=state,
            after_due=after_due,
            before_due=before_due,
            everything=all,
            cursor=cursor,
        )

"""``DelayQ(app)``: wires the store to an app, and is the door to what is in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.app.task import Context, Task
from celery.canvas import Signature
from celery.result import EagerResult

from .. import clock
from ..clock import DelayInput, TimeInput, When
from ..errors import InvalidOption, NotATask, NotHeld, UnreadableRecord
from ..message import canvas
from ..operations.revoked import mark_revoked
from ..operations.task import ScheduledTask
from ..scheduling import sender
from ..scheduling.bulk import Bulk, Item, Loader, Spread, times_for
from ..scheduling.prepared import Moulds
from ..scheduling.request import OPTION, Hold
from ..services import Parts
from ..store import Counts, Outcome, State
from ..store.record import DUE_HEADER
from . import registry
from .results import ScheduledResult, has_run, scheduled
from .setup import wire

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)

logger = logging.getLogger(__name__)


class DelayQ(Parts):
    """Delayed tasks for a Celery app, held in Redis until they are due.

    Making one adds the scanner to the app's workers, ``delay_until`` and ``delay_for`` to tasks
    and signatures, and lets ``revoke`` reach what is held. It opens no connection.

    Args:
        app: The Celery app. Settings are read from its configuration, when first needed. It gets
            the attribute ``delayq``, which a type checker cannot know: keep the object instead.
    """

    def __init__(self, app: Celery[Any]) -> None:
        super().__init__(app)
        self._moulds = Moulds(app)
        if registry.find(app) is None:
            registry.attach(app, self)
            wire(app)

    # Scheduling.

    def schedule(
        self,
        signature: Signature[R] | Task[..., R],
        *,
        at: TimeInput | None = None,
        after: DelayInput | None = None,
    ) -> ScheduledResult[R]:
        """Hold a signature until it is due; all of its options are honoured.

        Args:
            signature: A signature, a canvas (held as one entry), or a task without arguments.
            at: Aware datetime; naive datetime, read in the app's time zone; Unix time in
                seconds; or ISO 8601 text. The past means at once.
            after: From now: a timedelta, or seconds.

        Returns:
            A result with ``due``, ``cancel`` and ``reschedule``. With ``task_always_eager`` the
            task has run: it is an ``EagerResult`` as well, and too late to be cancelled.

        Raises:
            InvalidDueTime: not a time, or past 2255-06-05.
            AlreadyScheduled: the signature brings a task id that is held already.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        signature = _signature(signature)
        owner = registry.of(signature.app)
        if owner.app is not self.app:
            # Its message will be held in its own app's store, and only that one can cancel it.
            return owner.schedule(signature, at=at, after=after)
        hold = Hold(self._when(at=at, after=after))
        if canvas.is_canvas(signature) and not self.app.conf.task_always_eager:
            result, launch = canvas.freeze(signature, self.app)
            launch.apply_async(**{OPTION: hold})
            return self._result(result, hold)
        return self._result(signature.apply_async(**{OPTION: hold}), hold)

    def schedule_many(
        self,
        signature: Signature[Any] | Task[..., Any],
        items: Iterable[Item],
        *,
        at: TimeInput | Sequence[TimeInput] | None = None,
        after: DelayInput | Sequence[DelayInput] | None = None,
        spread: Spread | None = None,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Hold one task for many arguments, some nine times as fast as one by one.

        Args:
            signature: A task, or a signature with options for all; no canvas.
            items: Any iterable of ``(args, kwargs)``. It is consumed in slices of 200. Behind them
                an item may bring a time of its own (a timedelta is from now, all else is as for
                *at*), and a task id of its own.
            at: One time for all, as for :meth:`schedule`; or a list with one for each item.
            after: The same from now. It counts from when an item's slice reaches Redis.
            spread: Two times, or two timedeltas from now: each item gets its own one at random,
                these two included.
            progress: Called after each slice with what there is so far.

        Returns:
            The ids in the order of the items, and which items were refused and why: one that is
            bad does not spoil the others. (With ``task_always_eager`` each task has run.)

        Raises:
            InvalidOption: the times do not fit the items; the signature is a canvas, or brings a
                task id. Nothing was written.
            InvalidDueTime: a time that is not an item's own is no time. Nothing was written.
            kombu.exceptions.OperationalError: Redis cannot be reached. What was stored before
                stays; the error's ``so_far`` has it.
            NotHeld: the task's ``apply_async`` drops options, so one task was sent, not held.
        """
        signature = _signature(signature)
        if canvas.is_canvas(signature):
            raise NotATask("signature", signature, "a plain task; schedule takes a canvas")
        if signature.options.get("task_id"):
            raise InvalidOption("task_id", signature.options["task_id"], "an id in each item")
        owner = registry.of(signature.app)
        if not owner.app.conf.task_always_eager:
            owner.check()  # a wrong setting is no item's fault
        times = times_for(items, owner.timezone, at=at, after=after, spread=spread)
        return Loader(owner, signature, progress).load(items, times)

    def send_task(
        self,
        task: Task,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        at: TimeInput | None = None,
        after: DelayInput | None = None,
    ) -> ScheduledResult[Any]:
        when, unsent = self._when(at=at, after=after), sender.unsent(self.app)
        mould = self._moulds.find(task) if unsent else None
        new = mould and mould.new(task, args, kwargs, when)
        if mould and new:
            (answer,) = sender.store(self.entries, [new], mould.policy)
            result = task.AsyncResult(new.task_id)
            result.ignored = task.ignore_result
            return scheduled(result, self, sender.due_of(answer))
        hold = Hold(when)
        held = self._result(task.apply_async(args, kwargs, **{OPTION: hold}, **unsent), hold)
        if hold.ready and unsent:
            self._moulds.learn(task, hold.ready)
        return held

    def _result(self, result: Any, hold: Hold) -> ScheduledResult[Any]:
        if hold.due_ms is not None:
            return scheduled(result, self, hold.due_ms)
        if isinstance(result, EagerResult) or self.app.conf.task_always_eager:
            return has_run(result, self, clock.to_ms(hold.expected_due(), self.timezone))
        raise NotHeld(result.id)

    def _when(
        self,
        *,
        at: TimeInput | None = None,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
    ) -> When:
        times: dict[str, Any] = {"at": at, "after": after, "by": by}
        given = {name: value for name, value in times.items() if value is not None}
        if len(given) != 1:
            raise InvalidOption("time", given or None, "exactly one of at, after, by")
        if at is not None:
            return clock.at(at, self.timezone)
        return clock.by(by) if by is not None else clock.after(given["after"])

    # Changing one's mind.

    def cancel(self, task_id: str, *, revoke: bool = False) -> Outcome:
        """Remove a scheduled task; its result becomes ``REVOKED``.

        Args:
            task_id: The id that scheduling returned.
            revoke: When it has left already, or may have, tell the workers to drop it, as
                ``app.control.revoke`` does.

        Returns:
            ``Outcome.DONE``, the only true one; or why not.
        """
        outcome, message = self.entries.cancel(sender.checked_id(task_id))
        if message is not None:
            mark_revoked(self.app, task_id, message, outcome)
        if revoke and not outcome:
            self.app.control.broadcast("revoke", arguments={"task_id": task_id, "terminate": False})
        return outcome

    def reschedule(
        self,
        task_id: str,
        at: TimeInput | None = None,
        *,
        after: DelayInput | None = None,
        by: DelayInput | None = None,
    ) -> Outcome:
        """Move a scheduled task to another time; its id stays.

        Args:
            task_id: The id that scheduling returned.
            at: As for :meth:`schedule`.
            after: From now: a timedelta, or seconds.
            by: From its present due time, negative for earlier: a timedelta, or seconds.

        Returns:
            ``Outcome.DONE``, the only true one; or why not.

        Raises:
            InvalidDueTime: not a time, or past 2255-06-05.
        """
        return self.move(task_id, at=at, after=after, by=by)[0]

    def move(self, task_id: str, **times: Any) -> tuple[Outcome, int | None]:
        when = self._when(**times)
        return self.entries.reschedule(sender.checked_id(task_id), when)

    # Reading.

    def get(self, task_id: str) -> ScheduledTask | None:
        """A task that is held, or ``None``.

        Raises:
            UnreadableRecord: it was written by a version that this one cannot read.
        """
        entry = self.entries.find(sender.checked_id(task_id))
        return None if entry is None else ScheduledTask.of(entry, self.app)

    def tasks(
        self,
        *,
        after: TimeInput | None = None,
        before: TimeInput | None = None,
        limit: int | None = None,
    ) -> Iterator[ScheduledTask]:
        """Waiting tasks in due order, read page by page while one iterates.

        Args:
            after: Only tasks due at this time or later.
            before: Only tasks due earlier than this.
            limit: At most so many.
        """
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or limit < 0
        ):
            raise InvalidOption("limit", limit, "a whole number of tasks from 0")
        after_ms = 0 if after is None else clock.at(after, self.timezone).ms
        before_ms = clock.MAX_DUE_MS + 1 if before is None else clock.at(before, self.timezone).ms
        return islice(self._readable(after_ms, before_ms), limit)

    def _readable(self, after_ms: int, before_ms: int) -> Iterator[ScheduledTask]:
        for entry in self.entries.waiting(after_ms, before_ms):
            try:
                yield ScheduledTask.of(entry, self.app)
            except UnreadableRecord as error:
                logger.warning("%s", error)

    def counts(self) -> Counts:
        """How many tasks are in which state, and how many scanners are alive."""
        return self.entries.counts()

    def state(self, task_id: str) -> State | None:
        """Where a held task stands, or ``None`` if it is not held."""
        return self.entries.state(sender.checked_id(task_id))

    def handed_over(self, task_id: str) -> datetime | None:
        """When a task went to its queue; ``None`` once that is more than 10,000 tasks ago."""
        when_ms = self.entries.handed_over_ms(sender.checked_id(task_id))
        return None if when_ms is None else clock.from_ms(when_ms)

    def due_of(self, request: Context) -> datetime | None:
        """When the task of *request* (``self.request`` in a bound task) was due, if it was held."""
        due_ms = request.get(DUE_HEADER)
        return None if due_ms is None else clock.from_ms(due_ms)

    def is_running(self, task_id: str) -> bool:
        """Whether the caller is this very task, in a worker."""
        running = self.app.current_worker_task
        return running is not None and running.request.id == task_id


def _signature(given: Signature | Task) -> Signature:
    if isinstance(given, Task):
        return given.s()
    if not isinstance(given, Signature):
        raise NotATask("signature", given, "a signature, or a task")
    return given

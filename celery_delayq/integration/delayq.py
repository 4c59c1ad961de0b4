"""``DelayQ(app)``: sets an app up, and is the door to what waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from celery.result import AsyncResult, GroupResult

from .. import handover
from ..clock import DelayInput, TimeInput, one_of
from ..errors import NotATask
from ..handover.scanner import Scanner
from ..libraries import check_messages
from ..revoked import mark_revoked
from ..scheduling import bulk
from ..scheduling.bulk import Bulk
from ..scheduling.options import Conflict, Late, Tags, as_options
from ..scheduling.times import Spread
from ..services import Services, attach, find, services_of
from .apply_async import call_signature
from .results import ScheduledResult
from .setup import set_up
from .table import Operations
from .task import install

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

_ARGUMENT = "it in the signature, schedule(task.s({0!r}), ...), or by its name, as after={0!r}"


class DelayQ(Operations):
    """Delayed tasks for a Celery app, which wait in Redis until they are due.

    Making one adds the scanner to the app's workers, ``delay_until`` and ``delay_for`` to tasks
    and signatures, and lets ``revoke`` reach what waits. It opens no connection. With the setting
    ``delayq_enabled = False`` the app stays as Celery made it, and methods raise ``SwitchedOff``.

    Methods that take a task take what scheduling returned, or its id, as text or a UUID; or, as
    ``key``, its unique key.

    Args:
        app: The Celery app. Settings are read from its configuration, when first needed. It gets
            the attribute ``delayq``, which a type checker cannot know: keep the object instead.

    Attributes:
        app: The Celery app.
        services: Its settings, broker and store, for what builds on this package.
    """

    def __init__(self, app: Celery[Any]) -> None:
        check_messages()
        if not isinstance(app, Celery):
            raise TypeError(f"DelayQ takes a Celery app, DelayQ(app); got {app!r}")
        self.app = app
        self.services = find(app) or Services(app)
        if find(app) is None:
            attach(app, self)
            install()
            set_up(app, self.services)

    # Scheduling.

    def schedule(
        self,
        signature: Signature[R] | Task[..., R],
        *arguments: NoReturn,
        at: TimeInput | None = None,
        after: DelayInput | None = None,
        key: str | None = None,
        conflict: Conflict | None = None,
        max_wait: DelayInput | None = None,
        tags: Tags | None = None,
        late: Late | None = None,
        grace: DelayInput | None = None,
    ) -> ScheduledResult[R]:
        """Schedule a signature; all of its options are honoured.

        What is not given here is as the signature has it, as the option ``delayq_key`` and the
        like; or else, but for the key, as the task has it, as an attribute of that name.

        Args:
            signature: A signature, a canvas (scheduled as one entry), or a task without arguments.
            *arguments: None: those of the task are the signature's, ``task.s(42)``.
            at: Aware datetime; naive datetime, read in the app's time zone; Unix time in
                seconds; or ISO 8601 text. The past means at once.
            after: From now: a timedelta, or seconds.
            key: Text of 1 to 255 bytes, without NUL. Of the tasks that wait under one key there is
                one at most. Free again once that one has left, was cancelled, or is dead.
            conflict: What happens where a task waits under the key, or one of the same id is there.
                ``reject`` (the default): this one is refused. ``keep``: that one stays.
                ``replace``: this one takes its place. ``earliest``, ``latest``: the one that is due
                then stays. ``debounce``: as ``replace``, and see *max_wait*.
            max_wait: With ``debounce``: from the first of a row of calls that replace one another,
                how long the last one's due time can be put off. Seconds, or a timedelta; by
                default for ever.
            tags: Up to 16 texts, each as a key is, by which tasks can be selected.
            late: ``skip``: it does not run more than *grace* after its due time. ``run`` (the
                default): it runs, however late.
            grace: With ``skip``: seconds, or a timedelta.

        Returns:
            A result with ``due``, ``cancel`` and ``reschedule``; where an earlier task was kept,
            that one's, with ``existed``. With ``task_always_eager`` the task has run: it is an
            ``EagerResult`` as well, and too late to be cancelled.

        Raises:
            InvalidDueTime: not a time, or past 2255-06-05; or a number that is surely the other of
                the two: a moment before 1980, a delay of more than 31 years.
            InvalidOption: a key, a tag or a policy that is none; or the signature has a time of
                Celery's, ``countdown`` or ``eta``.
            AlreadyScheduled: its key, or the id that the signature brings, is that of a task which
                is scheduled. ``InFlight``, one of these: that task is being published just now.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        signature = _signature(signature)
        if arguments:
            raise NotATask("argument", arguments[0], _ARGUMENT.format(arguments[0]))
        # Its message goes to its own app's store, and only that one can cancel it.
        services = services_of(signature.app)
        when = one_of(services.timezone, at=at, after=after)
        options = as_options(
            key=key, conflict=conflict, max_wait=max_wait, tags=tags, late=late, grace=grace
        )
        return call_signature(services, signature, when, **options)

    def schedule_many(
        self,
        signature: Signature[Any] | Task[..., Any],
        items: Iterable[tuple[Any, ...]],
        *,
        at: TimeInput | Sequence[TimeInput] | None = None,
        after: DelayInput | Sequence[DelayInput] | None = None,
        spread: Spread | None = None,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Schedule one task for many arguments, many times as fast as one by one.

        It is one call, and has one trace: what a tracer knows of the call is in all of its messages
        alike. Where something on a message's way is patched or overridden, or a handler listens to
        ``before_task_publish``, Celery makes each item's message, at the pace of single calls.

        Args:
            signature: A task, or a signature with options for all; no canvas.
            items: Any iterable of ``(args, kwargs)``. It is consumed in slices of 200. An item may
                bring more of its own, as ``celery_delayq.Item`` says: a time, a task id, and what
                else :meth:`schedule` takes. What all have in common, the signature has as options.
            at: One time for all, as for :meth:`schedule`; or a list with one for each item.
            after: The same from now. It counts from when an item's slice reaches Redis.
            spread: Two times, or two timedeltas from now: each item gets its own one at random,
                these two included.
            progress: Called after each slice with what there is so far.

        Returns:
            The ids in the order of the items, and which items were refused and why: one that is
            bad, or that the task's own ``apply_async`` rejects, does not spoil the others.
            ``existed`` has the places of those in whose stead an earlier task was kept; that one's
            ids are theirs. It is true where none was refused, and its ``raise_for_refused()``
            raises where some were. (With ``task_always_eager`` each task has run.)

        Raises:
            InvalidOption: the times do not fit the items, or are missing; the signature is a
                canvas, brings a task id, or an option that none can have. Nothing was written.
            InvalidDueTime: a time that is not an item's own is no time. Nothing was written.
            kombu.exceptions.OperationalError: Redis cannot be reached. What was stored before
                stays; the error's ``so_far`` has it.
            NotScheduled: the task's ``apply_async`` drops options, so one task was sent at once.
        """
        signature = _signature(signature)
        services = services_of(signature.app)
        return bulk.schedule_many(
            services, signature, items, at=at, after=after, spread=spread, progress=progress
        )

    # Handing over.

    def hand_over(self) -> int:
        """Deliver all due tasks once, as a scanner does; for tests, or if no scanner runs.

        Returns:
            How many tasks went to their queues.

        Raises:
            BrokerDown: the broker cannot be reached; what goes through it waits on.
            StoreError: Redis cannot be reached, or refuses a step.
        """
        return handover.hand_over(self.services, owes=self.services.has_backend)

    def scanner(self) -> Scanner:
        """A scanner for you to start and stop; it also stores the ``REVOKED`` that is owed."""
        owes = self.services.has_backend
        mark = partial(mark_revoked, self.app, late=True) if owes else None
        return handover.new_scanner(self.services, mark)

    def close(self) -> None:
        """Close this process's idle connections to Redis; the next call opens new ones."""
        self.services.close()


def _signature(given: Signature | Task) -> Signature:
    if isinstance(given, Task):
        return given.s()
    if not isinstance(given, Signature):
        raise NotATask("signature", given, f"a signature, or a task{_hint(given)}")
    return given


def _hint(given: Any) -> str:
    if isinstance(given, (AsyncResult, GroupResult)):
        return "; this one is sent already: pass task.s(...), which sends nothing"
    if isinstance(given, (list, tuple)):
        return "; of many, one by one, or a group"
    if isinstance(given, str):
        return "; by its name it is app.signature(name)"
    return ", like task.s(...)"

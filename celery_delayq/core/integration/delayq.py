"""``DelayQ(app)``: sets up an app, and gives access to its scheduled tasks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from celery.local import Proxy

from ..clock import DelayInput, TimeInput, one_of
from ..errors import NotATask
from ..hooks import acting
from ..leaves import methods
from ..libraries import check_messages
from ..scheduling.options import TaskOptions, as_options
from ..services import Services, attach, find, mark_revoked, services_of
from ..threads import in_thread
from .apply_async import call_signature, signature_of
from .methods import TaskMethods
from .results import ScheduledResult, take_back
from .setup import set_up
from .task import install

if TYPE_CHECKING:
    from typing_extensions import TypeVar, Unpack

    from ..handover.scanner import Scanner

    R = TypeVar("R", default=Any)
    _Methods = TaskMethods
else:
    from typing import TypeVar

    R = TypeVar("R")
    # Type checkers see those of the parts beside the core in the package's own __init__.py, which
    # python -m tests.types.face writes.
    _Methods = type("_Methods", (*methods(), TaskMethods), {})

_ARGUMENT = "it in the signature, schedule(task.s({0!r}), ...), or by its name, as after={0!r}"


class DelayQ(_Methods):
    """Delayed tasks for a Celery app, which wait in Redis until they are due.

    ``DelayQ(app)`` adds the scanner to the app's workers, adds ``delay_until`` and ``delay_for`` to
    tasks and signatures, and makes ``revoke`` reach waiting tasks. It opens no connection. With
    ``delayq_enabled = False`` the app stays as Celery made it, and methods raise ``SwitchedOff``.

    Wherever a method takes a task, pass the result of scheduling, a task that you read, an id (text
    or UUID), or the unique key, as ``key``.

    Args:
        app: The Celery app. Its settings are read on first use. The app gets the attribute
            ``delayq``, which type checkers do not know: keep this object instead.

    Attributes:
        app: The Celery app.
        services: Its settings, broker and store, for extensions of this package.
    """

    def __init__(self, app: Celery[Any]) -> None:
        check_messages()
        if not isinstance(app, Celery):
            raise TypeError(f"DelayQ takes a Celery app, DelayQ(app); got {app!r}")
        if isinstance(app, Proxy):  # `current_app` is another app in another thread
            app = app._get_current_object()
        self.app: Celery[Any] = app
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
        **options: Unpack[TaskOptions],
    ) -> ScheduledResult[R]:
        """Schedule a signature with all of its options.

        Anything that you do not pass comes from the signature's options (``delayq_key`` and the
        like), or else from the task's attributes of the same names, except for the key.

        Args:
            signature: A signature, a canvas (scheduled as one entry), or a task without arguments.
            *arguments: Not accepted: put the task's arguments in the signature, ``task.s(42)``.
            at: Aware datetime; naive datetime, read in the app's time zone; Unix time in
                seconds; or ISO 8601 text. A past time means at once.
            after: From now: a timedelta, or seconds.
            **options: ``key``, ``conflict``, ``max_wait``, ``tags``, ``late``, ``grace``,
                ``unique_until`` and ``unique_for``;
                see :class:`~celery_delayq.core.scheduling.options.TaskOptions`.

        Returns:
            A result with ``due``, ``cancel`` and ``reschedule``. If an earlier task was kept, its
            result, with ``existed`` set. With ``task_always_eager`` the task has already run: the
            result is also an ``EagerResult``, and too late to cancel.

        Raises:
            InvalidDueTime: not a time, or after 2255-06-05; or a number that looks like the wrong
                kind: a time before 1980, or a delay of more than 31 years.
            InvalidOption: an invalid key, tag or policy; or the signature has a ``countdown`` or an
                ``eta``, or is of a task that only another app has.
            AlreadyScheduled: a task with the same key, or the signature's id, is already scheduled.
                Subclasses: ``InFlight``, that task is being published right now; ``KeyHeld``, it
                has left, and still holds the key; with a policy other than ``reject`` and ``keep``,
                the new task waits behind it; ``AlreadyDead``, it could not be delivered.
            kombu.exceptions.OperationalError: Redis cannot be reached.
        """
        services = services_of(self.app)
        signature = signature_of(signature, self.app)
        if arguments:
            raise NotATask("argument", arguments[0], _ARGUMENT.format(arguments[0]))
        when = one_of(services.timezone, at=at, after=after)
        return call_signature(services, signature, when, as_options(options))

    async def aschedule(
        self,
        signature: Signature[R] | Task[..., R],
        *arguments: NoReturn,
        at: TimeInput | None = None,
        after: DelayInput | None = None,
        **options: Unpack[TaskOptions],
    ) -> ScheduledResult[R]:
        """``schedule`` for an event loop, with its arguments, and in a thread.

        If this coroutine is cancelled, so is the task that the thread may have scheduled: as soon
        as the call is answered. An earlier task that it kept stays; one that it replaced is gone.
        For a call that goes on, use ``asyncio.shield``.

        Args:
            signature: See :meth:`schedule`, as for the rest.
            *arguments: Not accepted.
            at: The due time.
            after: The same, from now.
            **options: Those of :meth:`schedule`.
        """
        call = partial(self.schedule, signature, *arguments, at=at, after=after, **options)
        return await in_thread(call, take_back)

    # Handing over.

    def hand_over(self) -> int:
        """Deliver all due tasks once, as a scanner does; for tests, or if no scanner runs.

        Returns:
            The number of tasks delivered to their queues.

        Raises:
            BrokerDown: the broker cannot be reached; its tasks keep waiting.
            StoreError: Redis cannot be reached, or refuses a step.
        """
        from ..handover.scanner import hand_over

        return hand_over(self.services, owes=self.services.has_backend)

    def scanner(self) -> Scanner:
        """A scanner for you to start and stop; it also stores ``REVOKED`` for cancelled tasks.

        Make it in the process that runs it: its name and its connections are of that process.
        """
        from ..handover.scanner import new_scanner

        owes = self.services.has_backend
        mark = partial(mark_revoked, self.app, late=True) if owes else None
        return new_scanner(self.services, mark)

    def acting(self, name: str) -> AbstractContextManager[None]:
        """Name the author of the changes in a block: ``with delayq.acting("ann"):``.

        The name goes to signals, log lines and the history, not into the tasks. It holds in this
        thread, or this task of asyncio. This makes no audit trail: the name can be left out.

        Args:
            name: 1 to 64 bytes of printable text.

        Raises:
            InvalidOption: *name* is none.
        """
        return acting(name)

    def close(self) -> None:
        """Close this process's idle connections to Redis; the next call opens new ones."""
        self.services.close()

"""``DelayQ(app)``: sets up an app and its workers, and gives access to its scheduled tasks.

    DelayQ(app) --> changes --> Celery reads the configuration --> delayq_enabled? --> configured
                                                                        '-- False --> undo all

``DelayQ(app)`` must not read the configuration, which may not be complete yet. Some changes, such
as command-line options, must be made before it is read; with ``delayq_enabled = False`` they are
undone afterwards. In each worker a bootstep starts the scanner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from celery import Celery, bootsteps
from celery.app.task import Task
from celery.canvas import Signature
from celery.local import Proxy
from click import Option

from ..clock import DelayInput, TimeInput, one_of
from ..errors import NotATask
from ..hooks import acting
from ..leaves import CONFIGURED, DJANGO, HOOKS, SET_UP, WORKER, call, methods, steps
from ..libraries import Feature, check_messages, works
from ..message.body import signature_of
from ..scheduling.intercept import scheduling_amqp
from ..scheduling.options import TaskOptions, as_options
from ..services import Services, attach, find, mark_revoked, services_of
from ..tasks import changing, reading, selection
from ..text import logger_of
from ..threads import awaited, in_thread
from . import results, startup
from .apply_async import call_signature, install
from .results import ScheduledResult, let_results_know, take_back
from .startup import give_eta

if TYPE_CHECKING:
    from typing_extensions import TypeVar, Unpack

    from ..handover.scanner import Scanner

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")

logger = logger_of(__name__)

STOP_TIMEOUT = 10.0  # seconds, as long as a publish in progress may take
_FIXUP = "celery_delayq:DelayQ"
_SCANNER_STEP = "celery_delayq.core.integration.delayq:ScannerStep"
# App attributes that this package, or one of its leaves, replaces.
_REPLACED = ("amqp_cls", "control_cls", "task_cls", "AsyncResult")
_WORKER_OPTION = Option(
    ["--no-delayq"],
    is_flag=True,
    default=False,
    help="Do not scan for scheduled tasks in this worker.",
)
_ARGUMENT = "it in the signature, schedule(task.s({0!r}), ...), or by its name, as after={0!r}"


class _TaskMethods:
    """The methods of the core for tasks that wait; ``core/leaves.py`` names the others."""

    # One task.
    get = reading.get
    state = reading.state
    handed_over = reading.handed_over
    cancel = changing.cancel
    reschedule = changing.reschedule
    run_now = changing.run_now
    retry = changing.retry
    remove = changing.remove
    result = results.result
    due_of = reading.due_of

    # Many, or all of them.
    select = selection.select
    tasks = reading.tasks
    counts = reading.counts

    # For an event loop.
    aget = awaited(reading.get, reads=True)
    acancel = awaited(changing.cancel)
    areschedule = awaited(changing.reschedule)
    arun_now = awaited(changing.run_now)


if TYPE_CHECKING:  # the others stand in the face that python -m tests.types.face writes
    _Methods = _TaskMethods
else:
    _Methods = type("_Methods", (_TaskMethods,), methods())


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

        return hand_over(self.services)

    def scanner(self) -> Scanner:
        """A scanner for you to start and stop; it also stores ``REVOKED`` for cancelled tasks.

        Make it in the process that runs it: its name and its connections are of that process.
        """
        from ..handover.scanner import new_scanner

        marks = self.services.has_backend
        mark = partial(mark_revoked, self.app, late=True) if marks else None
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


def set_up(app: Celery, services: Services) -> None:
    """Make *app* schedule and manage tasks, and its workers scan; unless it is switched off."""
    before = {name: vars(app)[name] for name in _REPLACED if name in vars(app)}
    _change(app, services)

    def configured(**_: Any) -> None:
        if app.conf.get("delayq_enabled") is False:
            services.is_off = True
            _take_back(app, before)
        else:
            call(CONFIGURED, app)

    _when_configured(app, configured)


def _when_configured(app: Celery, then: Callable[..., None]) -> None:
    if app.configured:
        then()
    elif app.on_after_configure is not None:
        app.on_after_configure.connect(then, weak=False)
    else:
        # When Celery copies an app, fixups run before the copy has its signals.
        on_init = app.on_init

        def initialized() -> None:
            on_init()
            _when_configured(app, then)

        app.on_init = initialized


def _change(app: Celery, services: Services) -> None:
    app.amqp_cls = scheduling_amqp(app.amqp_cls)
    let_results_know(app)
    # Copies of the app, and apps pickled for another process, are built with the same fixups.
    app.fixups = {*app.fixups, _FIXUP}
    for blueprint, step in _steps():
        app.steps[blueprint].add(step)
    app.user_options["worker"].add(_WORKER_OPTION)
    startup.listen()
    for hooks in call(HOOKS, app):
        services.hooks.add(hooks)
    call(SET_UP, app)
    if _is_of_django(app):
        call(DJANGO, app)
    _forget_made(app)


def _take_back(app: Celery, before: dict[str, Any]) -> None:
    for name in _REPLACED:
        vars(app).pop(name, None)
    vars(app).update(before)
    app.fixups.discard(_FIXUP)
    for blueprint, step in _steps():
        app.steps[blueprint].discard(step)
    app.user_options["worker"].discard(_WORKER_OPTION)
    _forget_made(app)


def _steps() -> list[tuple[str, str]]:
    return [("worker", _SCANNER_STEP), *steps()]


def _forget_made(app: Celery) -> None:
    # The app builds these again on next use, from its current classes.
    for made in ("amqp", "control"):
        vars(app).pop(made, None)


def _is_of_django(app: Celery) -> bool:
    """Return whether Celery's Django support is active."""
    if not works(Feature.DJANGO):
        return False
    from celery.fixups.django import DjangoFixup

    # The app keeps the objects that its fixups return; an inactive fixup returns none.
    return any(isinstance(fixup, DjangoFixup) for fixup in app._fixups or ())


class ScannerStep(bootsteps.StartStopStep):
    """Runs a scanner in a worker.

    ``DelayQ(app)`` adds it to the app's workers; adding it again, with
    ``app.steps["worker"].add(ScannerStep)``, has no effect. It is a step of the worker rather than
    of its consumer, because the consumer restarts whenever the broker connection is lost.
    """

    requires = ("celery.worker.components:Pool",)
    label = "DelayQ"

    def __init__(self, worker: Any, no_delayq: bool = False, **_: Any) -> None:
        self._scanner: Any = None
        self.enabled = not no_delayq
        with startup.ends_with_a_sentence():
            self._prepare(worker.app)
        if no_delayq:
            logger.info("no scanner in this worker because of --no-delayq: other scanners deliver")

    def _prepare(self, app: Any) -> None:
        # Read the settings here, so that an invalid one keeps the worker from starting.
        self._delayq = DelayQ(app) if find(app) is None else app.delayq
        services = self._delayq.services
        if services.is_off:
            self.enabled = False
            return
        # A worker that does not scan needs no store; a worker inside a test may have none.
        if self.enabled or services.settings.url is not None:
            self.enabled = services.has_store and self.enabled
            if services.has_store:
                services.check()
        if services.settings.capture_eta:
            give_eta()
        call(WORKER, app)  # before the pool forks

    def start(self, _worker: Any) -> None:
        self._scanner = self._delayq.scanner()
        # A worker that the store refuses takes no task.
        startup.start(self._scanner)

    def stop(self, _worker: Any) -> None:
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            scanner.stop(STOP_TIMEOUT)

    # Celery calls this instead of `stop` on SIGQUIT and on a soft shutdown.
    terminate = stop

"""Threads of this package: those that run until they are stopped, and those of awaited calls.

    start --> run --returns--> over
       ^       |
       |       +--raises--> a critical line with the reason
       +---------pause--------+

Programs end threads by what ``except Exception`` lets through: ``sys.exit``, a cancelled coroutine,
a killed greenlet. If a signal's receiver does that, the thread goes on. If anything else does,
another thread takes its place.

A call as a coroutine runs in a thread too, and the event loop goes on meanwhile. If the coroutine
is cancelled before the thread begins, the call is not made. Later, it is made, and then taken back
if that is possible; without an answer the log has a line, as the call may have taken effect. These
threads are not those of the loop's default executor, which are the program's: while Redis hangs,
calls to it would take them all, and stop the rest of the program.

Reads that do not need each other's answers can be made at once, each in a thread, for the page: see
``gather``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial, wraps
from itertools import chain, islice
from random import SystemRandom
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from . import clock
from .errors import StoreError
from .text import logger_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
else:
    from typing import ParamSpec

logger = logger_of(__name__)

FIRST, LONGEST = 1.0, 30.0  # seconds before another thread takes over: the first time, at most
CALM = 60.0  # seconds that a thread has to run before the pauses begin anew

random = SystemRandom()  # processes that C forked would have the same numbers from Python's own

Call = TypeVar("Call", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class _Thread(threading.Thread):
    """A thread of this package."""


class OwnThread:
    """A thread that is started again if anything but its own shutdown ends it.

    Args:
        name: Its name, in the log too.
        run: Its work; it returns when that is done, or *stopping* is set.
        stopping: Set when the work has to end.
        clean_up: Called in the next thread, before its pause, with how often one has ended.

    Attributes:
        restarts: How often one has ended.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        stopping: threading.Event,
        clean_up: Callable[[int], None] | None = None,
    ) -> None:
        self.restarts = 0
        self._name = name
        self._run = run
        self._stopping = stopping
        self._clean_up = clean_up
        self._pause = 0.0
        self._process = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start; return at once."""
        self._process = os.getpid()
        self._begin(0.0)

    def is_alive(self) -> bool:
        """Whether it was started in this process, and is not over."""
        return self._process == os.getpid() and not self._over.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it is over, at most *timeout* seconds."""
        # A forked child has none of its parent's threads.
        if self._process == os.getpid() and self._over.wait(timeout) and self._thread is not None:
            self._thread.join(timeout)

    def _begin(self, pause: float) -> None:
        _Thread(target=self._body, args=(pause,), name=self._name, daemon=True).start()

    def _body(self, pause: float) -> None:
        self._thread = threading.current_thread()
        began = clock.monotonic()
        try:
            if self.restarts and self._clean_up is not None:
                self._clean_up(self.restarts)
            self._stopping.wait(pause)
            began = clock.monotonic()
            self._run()
        except BaseException as error:
            if not self._stopping.is_set():
                self._go_on_after(error, clock.monotonic() - began)
                return
        self._over.set()

    def _go_on_after(self, error: BaseException, lasted: float) -> None:
        self.restarts += 1
        self._pause = FIRST if lasted > CALM else min(LONGEST, max(FIRST, self._pause * 2))
        pause = self._pause * random.uniform(0.5, 1.0)
        with suppress(BaseException):  # a handler of the log may be what ends threads
            logger.critical(
                "the thread %s has ended: %s; another one starts in %.1f s",
                *(self._name, repr(error), pause),
                exc_info=error,
            )
        try:
            self._begin(pause)
        except RuntimeError:  # this process can have no more threads
            self._body(pause)


def survive(call: Callable[..., Any], error: BaseException) -> None:
    """Log what a user's function raised to end its thread, if that is one of this package.

    Raises:
        BaseException: it is another thread; or gevent ends this one.
    """
    thread = threading.current_thread()
    if not isinstance(thread, _Thread) or _is_killed(error):
        raise error
    facts = repr(call), repr(error), thread.name
    logger.critical("%s raised %s in the thread %s, which goes on", *facts, exc_info=error)


def spared(call: Call) -> Call:
    """Return a user's function, made to end no thread of this package; its errors pass."""

    @wraps(call)
    def spared_call(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except Exception:
            raise
        except BaseException as error:
            survive(call, error)

    return spared_call  # type: ignore[return-value]


def _is_killed(error: BaseException) -> bool:
    """Whether gevent or eventlet ends the thread, and waits for its end."""
    greenlet: Any = sys.modules.get("greenlet")
    return greenlet is not None and isinstance(error, greenlet.GreenletExit)


# As many calls as go on at once in a process; others wait for a thread.
THREADS = 8
#: Whether :func:`gather` makes its calls at once, in this context.
AT_ONCE: ContextVar[bool] = ContextVar("delayq_at_once", default=False)


def gather(*calls: Callable[[], Any]) -> list[Any]:
    """Make calls that read, and return their answers in the order of the calls.

    Where :data:`AT_ONCE` is set, all are made at once, so that they take as long as the slowest:
    each in a thread of its own but for the last, which this thread makes.

    Raises:
        Exception: what the first of the calls that failed raised, after all have ended.
    """
    if len(calls) <= 1 or not AT_ONCE.get():
        return [call() for call in calls]
    made = [Future[Any]() for _ in calls]
    for call, answer in zip(calls[:-1], made, strict=False):
        run = partial(copy_context().run, _answer, call, answer)
        threading.Thread(target=run, name="delayq-gather", daemon=True).start()
    _answer(calls[-1], made[-1])
    wait(made)
    return [answer.result() for answer in made]


def begun(parts: Iterable[Iterator[R]]) -> list[Iterator[R]]:
    """Return the same iterators; where :data:`AT_ONCE` is set, the first of each is read at once.

    Raises:
        Exception: what the first of them that failed raised.
    """
    if not AT_ONCE.get():
        return [*parts]
    return gather(*(partial(_begun, part) for part in parts))


def _begun(part: Iterator[R]) -> Iterator[R]:
    first = list(islice(part, 1))
    return chain(first, part)


def within(seconds: float, call: Callable[[], R]) -> R:
    """Make a call that may take for ever, and return its answer if it comes in time.

    At most :data:`THREADS` such calls go on at once in a process; another one is not made.

    Raises:
        concurrent.futures.TimeoutError: there is no answer in time. The call goes on.
    """
    made: Future[R] = Future()
    free = _free(os.getpid())
    if not free.acquire(blocking=False):
        raise NoAnswer

    def run() -> None:
        try:
            _answer(call, made)
        finally:
            free.release()

    thread = threading.Thread(
        target=partial(copy_context().run, run), name="delayq-within", daemon=True
    )
    try:
        thread.start()
    except BaseException:  # this process can have no more threads
        free.release()
        raise
    return made.result(seconds)


@cache
def _free(_process: int) -> threading.BoundedSemaphore:
    # A forked child has none of the calls that go on in its parent.
    return threading.BoundedSemaphore(THREADS)


class Once:
    """What is read once, by the thread that needs it first; the others wait for its answer."""

    def __init__(self) -> None:
        self._made: dict[str, Future[Any]] = {}

    def read(self, name: str, call: Callable[[], R]) -> R:
        """Return the answer of the first *call* of this name, or raise what it raised."""
        own: Future[R] = Future()
        made: Future[R] = self._made.setdefault(name, own)
        if made is own:
            _answer(call, own)
        return made.result()


def _answer(call: Callable[[], Any], answer: Future[Any]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


_NOT_TAKEN_BACK = "the call of a cancelled coroutine could not be taken back: %s"
_UNKNOWN = "%s coroutine was cancelled, and whether its call took effect is unknown: %s"


@cache
def _executor(_process: int) -> ThreadPoolExecutor:
    # A forked child has none of its parent's threads, and a fork in C, as uWSGI's, calls no hook.
    return ThreadPoolExecutor(THREADS, thread_name_prefix="celery_delayq await")


async def in_thread(
    call: Callable[[], R],
    take_back: Callable[[R], object] | None = None,
    about: object = "",
) -> R:
    """Make a call that blocks, and return its answer.

    Args:
        call: The call.
        take_back: Of a call that changes something: called with the answer, in one of the threads,
            if the coroutine was cancelled after the call began.
        about: The id or key of the task that the call changes, for the log.
    """
    context, here = copy_context(), get_ident()
    made = _executor(os.getpid()).submit(context.run, call)

    def after(take_back: Callable[[R], object], made: Future[R]) -> None:
        undo = partial(context.run, partial(_take_back, take_back, about, made))
        if get_ident() == here:  # it was answered just now; the loop must not wait for the undo
            _executor(os.getpid()).submit(undo)
        else:
            undo()

    try:
        return await asyncio.wrap_future(made)
    except asyncio.CancelledError:
        if take_back is not None and not made.cancelled():
            made.add_done_callback(partial(after, take_back))
        raise


def awaited(call: Callable[P, R], *, reads: bool = False) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a method that blocks as a coroutine function.

    Args:
        call: The method. Its first argument, or its ``key``, says which task it is about.
        reads: Whether it changes nothing.
    """
    name = f"a{call.__name__}"

    @wraps(call)
    async def coroutine(*args: P.args, **options: P.kwargs) -> R:
        named = next(iter(args[1:]), options.get("key", ""))
        take_back = None if reads else _let_stand
        made = partial(call, *args, **options)
        return await in_thread(made, take_back, getattr(named, "id", named))

    coroutine.__name__ = coroutine.__qualname__ = name
    coroutine.__doc__ = f"``{call.__name__}`` for an event loop.\n\n    {call.__doc__}"
    return coroutine


def _let_stand(_: object) -> None:
    """Take nothing back."""


def _take_back(take_back: Callable[[R], object], about: object, made: Future[R]) -> None:
    error = made.exception()
    if error is None:
        try:
            take_back(made.result())
        except Exception as failed:
            logger.warning(_NOT_TAKEN_BACK, failed)
    elif isinstance(error, StoreError) and error.may_have_run:
        task_id = error.task_id or about
        logger.warning(_UNKNOWN, f"task {task_id}: its" if task_id else "a", error)

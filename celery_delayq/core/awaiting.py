"""Calls as coroutines: each runs in a thread, and the event loop goes on meanwhile.

    coroutine --its context--> thread --call--> Redis
        |
        '--cancelled--> before the thread began: the call is not made
                        later: it is made, and then taken back, if that is possible;
                        no answer: the log has a line, as the call may have taken effect

The threads are this package's own. Those of the loop's default executor are the program's: while
Redis hangs, calls to it would take them all, and stop the rest of the program.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial, wraps
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import StoreError
from .logs import logger_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
else:
    from typing import ParamSpec

# As many calls as go on at once in a process; others wait for a thread.
THREADS = 8

P = ParamSpec("P")
R = TypeVar("R")

_NOT_TAKEN_BACK = "the call of a cancelled coroutine could not be taken back: %s"
_UNKNOWN = "%s coroutine was cancelled, and whether its call took effect is unknown: %s"

logger = logger_of(__name__)


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

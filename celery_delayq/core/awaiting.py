"""Calls as coroutines: each runs in a thread, and the event loop goes on meanwhile.

    coroutine --its context--> thread --call--> Redis
        |
        '--cancelled--> before the thread began: the call is not made
                        later: it is made, and then taken back, if that is possible

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

from .logs import logger_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec
else:
    from typing import ParamSpec

# As many calls as go on at once in a process; others wait for a thread.
THREADS = 8

P = ParamSpec("P")
R = TypeVar("R")

logger = logger_of(__name__)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="celery_delayq await")


# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=_executor.cache_clear)


async def in_thread(call: Callable[[], R], take_back: Callable[[R], object] | None = None) -> R:
    """Make a call that blocks, and return its answer.

    Args:
        call: The call.
        take_back: Called with the answer, in one of the threads, if the coroutine was cancelled
            after the call began.
    """
    context, here = copy_context(), get_ident()
    made = _executor().submit(context.run, call)

    def after(take_back: Callable[[R], object], made: Future[R]) -> None:
        undo = partial(context.run, _take_back, take_back, made)
        if get_ident() == here:  # it was answered just now; the loop must not wait for the undo
            _executor().submit(undo)
        else:
            undo()

    try:
        return await asyncio.wrap_future(made)
    except asyncio.CancelledError:
        if take_back is not None and not made.cancelled():
            made.add_done_callback(partial(after, take_back))
        raise


def awaited(call: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a method that blocks as a coroutine function."""
    name = f"a{call.__name__}"

    @wraps(call)
    async def coroutine(*args: P.args, **options: P.kwargs) -> R:
        return await in_thread(partial(call, *args, **options))

    coroutine.__name__ = coroutine.__qualname__ = name
    coroutine.__doc__ = f"``{call.__name__}`` for an event loop.\n\n    {call.__doc__}"
    return coroutine


def _take_back(take_back: Callable[[R], object], made: Future[R]) -> None:
    if made.exception() is not None:
        return
    try:
        take_back(made.result())
    except Exception as error:
        logger.warning("the call of a cancelled coroutine could not be taken back: %s", error)

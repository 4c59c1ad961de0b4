"""Ctrl-C while a command changes many: it ends between two steps, and says how far it has come.

amid a step ---Ctrl-C---> the step is taken, then it ends ---Ctrl-C once more---> it ends at once
while it waits for input ---Ctrl-C---> it ends at once
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import click

INTERRUPTED = 130  # the exit status, as shells have it
UNTOUCHED = "the rest is as it was"


class Steps:
    """The steps of a command, which Ctrl-C ends; then the exit status is 130.

    Args:
        ctx: The command's.
        told: How many are done, in words.
        rest: What is said of the others.

    Attributes:
        shown: Told how many are done after each step; ``None``: nobody is.
    """

    def __init__(
        self, ctx: click.Context, told: Callable[[Any], str], rest: str = UNTOUCHED
    ) -> None:
        self.shown: Callable[[Any], object] | None = None
        self._ctx = ctx
        self._told, self._rest = told, rest
        self._count: Any = 0
        self._is_asked = self._is_between = False
        self._before: Any = None

    def __enter__(self) -> Steps:  # noqa: PYI034 - Self is newer than Python 3.10
        # Whoever has another handler, or is not the main thread, keeps what is there.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                self._before = signal.signal(signal.SIGINT, self._ask)
            except ValueError:
                self._before = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if isinstance(error, KeyboardInterrupt):
            rest = self._rest if self._is_between else "perhaps some more"
            self._ctx.obj.error(f"interrupted: {self._told(self._count)}; {rest}")
            self._ctx.exit(INTERRUPTED)

    def taken(self, count: Any) -> None:
        """A step was taken: so many are done by now.

        Raises:
            KeyboardInterrupt: it was asked for meanwhile.
        """
        self._count = count
        if self.shown is not None:
            self.shown(count)
        with self.between():
            pass

    @contextmanager
    def between(self) -> Iterator[None]:
        """While this is entered no step is taken, so that there is nothing to wait for.

        Raises:
            KeyboardInterrupt: it was asked for before, or is now.
        """
        self._is_between = True
        if self._is_asked:
            raise KeyboardInterrupt
        yield
        self._is_between = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked or self._is_between:
            signal.default_int_handler(number, frame)
        self._is_asked = True

"""Progress of a command: on a terminal if rich is installed, and after Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ...core import clock
from .screen import console_of

INTERRUPTED = 130  # the exit status, as in shells
PATIENCE = 0.5  # seconds before the progress is shown


@contextmanager
def counting(
    ctx: click.Context,
    label: str,
    sentence: Callable[[int], str],
    total: int | None = None,
    tell: Callable[[int], object] | None = None,
) -> Iterator[Callable[[int], None]]:
    """Count finished tasks; on Ctrl-C, print how many there are and exit with status 130.

    The step that Ctrl-C interrupts takes effect completely or not at all; it is not counted.

    Args:
        ctx: The command's context.
        label: The text before the number.
        sentence: Puts the number of finished tasks in words.
        total: The approximate total, if known.
        tell: Called with the number of finished tasks, without a terminal.
    """
    count = 0

    def taken(done: int) -> None:
        nonlocal count
        count = done
        if shown is not None:
            shown(done)

    try:
        with _progress_of(ctx, label, total) as progress:
            shown = progress or tell
            yield taken
    except KeyboardInterrupt:
        ctx.obj.error(f"interrupted: at least {sentence(count)}")
        ctx.exit(INTERRUPTED)


@contextmanager
def _progress_of(
    ctx: click.Context, label: str, total: int | None
) -> Iterator[Callable[[int], None] | None]:
    console = console_of(ctx, sys.stderr)
    if console is None:
        yield None
        return
    bar = _Bar(console, label, total)
    try:
        yield bar.tell
    finally:
        bar.close()


class _Bar:
    def __init__(self, console: Any, label: str, total: int | None) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        count = "{task.completed:,}" if total is None else "{task.completed:,} of {task.total:,}"
        bars = [SpinnerColumn()] if total is None else [BarColumn()]
        text = "{task.description}"
        self._progress = Progress(
            TextColumn(text), *bars, TextColumn(count), console=console, transient=True
        )
        self._task = self._progress.add_task(label, total=total)
        self._begun = clock.monotonic()
        self._is_shown = False

    def tell(self, done: int) -> None:
        self._progress.update(self._task, completed=done)
        if not self._is_shown and clock.monotonic() >= self._begun + PATIENCE:
            self._is_shown = True
            self._progress.start()

    def close(self) -> None:
        if self._is_shown:
            self._progress.stop()

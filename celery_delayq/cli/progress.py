"""How far a command has come, on a terminal, where rich is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from .. import clock
from .screen import console_of

PATIENCE = 0.5  # seconds that something may take before anything is shown of it


@contextmanager
def progress_of(
    ctx: click.Context, label: str, total: int | None = None
) -> Iterator[Callable[[int], None] | None]:
    """What is to be told how many are done; ``None`` where nobody looks on.

    Args:
        ctx: The command's.
        label: What is shown before the number.
        total: How many it will be, about, if that is known.
    """
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

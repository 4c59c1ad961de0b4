"""Output of a command: to a terminal, with a width and perhaps colours, or to anything else.

A terminal gets each line at once, in colour if rich is installed and colours are not disabled.
A pipe or a file gets the same lines, plain and uncut, in batches.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import islice
from typing import Any, TextIO

import click

SLICE = 100  # lines in a batch

#: A line: its parts, each with a rich style, or an empty one.
Line = list[tuple[str, str]]


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join([text for text, _ in line])


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    """Wrap a text for a terminal; words stay whole, so that you can copy them."""
    if width is None:
        return [text]
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def console_of(ctx: click.Context, stream: TextIO) -> Any:
    """Return a rich console on a terminal; ``None`` for anything else, or without rich."""
    if not stream.isatty() or find_spec("rich") is None:
        return None
    from rich.console import Console

    # The text comes from other people: no markup, no emoji codes, no highlighting.
    return Console(
        file=stream, no_color=ctx.obj.no_color or None, markup=False, emoji=False, highlight=False
    )


class Screen:
    """Standard output at the start of the command.

    Attributes:
        width: Columns of the terminal; ``None`` if unknown, or if it is not a terminal.
    """

    def __init__(self, ctx: click.Context) -> None:
        self._obj = ctx.obj
        is_plain = ctx.obj.no_color or os.environ.get("NO_COLOR")
        self._console: Any = None if is_plain else console_of(ctx, sys.stdout)
        self._is_terminal = sys.stdout.isatty()
        self.width = _columns(sys.stdout) if self._is_terminal else None

    def show(self, lines: Iterable[Line]) -> None:
        """Print lines as they arrive."""
        if not self._is_terminal:
            left = iter(lines)
            while some := [text_of(line) for line in islice(left, SLICE)]:
                self._obj.echo("\n".join(some))
        elif self._console is None:
            for line in lines:
                self._obj.echo(text_of(line))
        else:
            self._colour(lines)

    def _colour(self, lines: Iterable[Line]) -> None:
        from rich.text import Text

        for line in lines:
            # A line longer than the terminal stays one line, so that you can copy it.
            self._console.print(Text.assemble(*line), soft_wrap=True)


def _columns(stream: TextIO) -> int | None:
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None

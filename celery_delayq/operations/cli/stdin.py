"""Ids from standard input, one on each line, as ``list --ids`` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import TextIOWrapper

import click

STDIN = "-"
_LONGEST = 4096  # characters of a line; an id has at most 512 bytes


def ids_read() -> Iterator[str]:
    """Yield the ids, read line by line as you iterate; skip empty lines.

    Raises:
        ClickException: a line is too long to be an id.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        # Invalid UTF-8 is never a task's id.
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    number = 0
    while line := sys.stdin.readline(_LONGEST):
        number += 1
        if len(line) == _LONGEST and not line.endswith("\n"):
            raise click.ClickException(f"line {number:,} of standard input is too long for an id")
        if task_id := line.rstrip("\r\n"):
            yield task_id

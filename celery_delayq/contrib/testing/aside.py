"""Sets aside parts of a test's process, and puts them back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def put(names: MutableMapping[str, Any], name: str, value: Any) -> Iterator[None]:
    """Give a name another value for a while, in a namespace that has it or not."""
    had = {name: names[name]} if name in names else {}
    names[name] = value
    try:
        yield
    finally:
        names.pop(name, None)
        names.update(had)


@contextmanager
def emptied(*holders: Any) -> Iterator[None]:
    """Empty mappings for a while; they stay the same objects."""
    kept = [dict(holder) for holder in holders]
    for holder in holders:
        holder.clear()
    try:
        yield
    finally:
        for holder, had in zip(holders, kept, strict=True):
            holder.clear()
            holder.update(had)


@contextmanager
def without_variables(names: Iterable[str]) -> Iterator[None]:
    """Remove these variables from the environment for a while."""
    had = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(had)


@contextmanager
def kept(names: MutableMapping[str, Any]) -> Iterator[None]:
    """Restore a mapping afterwards, whatever was written to it."""
    had = dict(names)
    try:
        yield
    finally:
        names.clear()
        names.update(had)

"""Distinguishes plain tasks from canvases, and finds the tasks that follow one in a canvas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from celery.canvas import Signature, chunks


def is_canvas(sig: Signature) -> bool:
    """Whether *sig* is more than one plain task."""
    return bool(sig.get("subtask_type")) or isinstance(sig, chunks)


def options_after(embed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of each task after a message's: the rest of its chain, its chord's body.

    Args:
        embed: The last part of a message's body, behind the arguments.
    """
    for part in filter(None, [*(embed.get("chain") or ()), embed.get("chord")]):
        # Of a chord, the body runs last.
        last = part["kwargs"]["body"] if part["task"] == "celery.chord" else part
        yield last["options"]

"""Distinguishes the signature of a plain task from a canvas."""

from __future__ import annotations

from celery.canvas import Signature, chunks


def is_canvas(sig: Signature) -> bool:
    """Whether *sig* is more than one plain task."""
    return bool(sig.get("subtask_type")) or isinstance(sig, chunks)

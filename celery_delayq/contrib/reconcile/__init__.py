"""Reconcile: the waiting tasks of a tag are made to agree with the rows of a query.

    rows --a page--> keys --keyed.lua--> what has each --> scheduled, changed, left alone
    the end of the rows --> tasks under the tag without a row --> cancelled, if so asked
    what it found --> a line in the store --> health, metrics

A database says which tasks should wait; the store, which do. They differ after a lost or restored
store, an error between a commit and a call, or a call that nobody made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...operations.health import Check, Sight


def checks() -> tuple[Check[Sight]]:
    """Return the check of what the last reconciles found."""
    from .report import DRIFT

    return (DRIFT,)

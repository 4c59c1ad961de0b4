"""The truthful answers to what would change a task that waits."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """What became of a cancel, a reschedule, an edit; only ``DONE`` is true in an ``if``."""

    #: It was done: the entry had not left, and has not been delivered.
    DONE = "done"
    #: Too late: the task is in its queue, or was; nothing was changed.
    HANDED_OVER = "handed_over"
    #: A scanner is publishing it this moment; nothing was changed. Ask again shortly.
    IN_FLIGHT = "in_flight"
    #: It was done, but an earlier attempt to publish ended without an answer from the broker:
    #: a copy of the task may be in its queue.
    UNCERTAIN = "uncertain"
    #: No such entry: never scheduled, cancelled before, or handed over too long ago to be known.
    NOT_FOUND = "not_found"
    #: A condition of the caller's does not hold (``only=``, ``if_due=``, ``if_revision=``; or it is
    #: not dead, which ``retry`` and ``remove`` ask for); nothing was changed.
    UNCHANGED = "unchanged"

    def __bool__(self) -> bool:
        return self is Outcome.DONE

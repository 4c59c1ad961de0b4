"""The truthful answers to attempts to change a waiting task."""

from __future__ import annotations

from enum import Enum


class Outcome(str, Enum):
    """The outcome of a cancel, reschedule or edit; only ``DONE`` is true in an ``if``.

    It is also text, as in JSON: ``Outcome.DONE == "done"``.
    """

    __module__ = "celery_delayq"  # as pickles name it

    #: It was done: the entry was still in the store, and the task was not delivered.
    DONE = "done"
    #: Too late: the task was delivered to its queue; nothing was changed.
    HANDED_OVER = "handed_over"
    #: A scanner is publishing it right now; nothing was changed. Ask again shortly.
    IN_FLIGHT = "in_flight"
    #: It was done, but an earlier attempt to publish got no answer from the broker: a copy of
    #: the task may be in its queue.
    UNCERTAIN = "uncertain"
    #: It is due now, but waits behind the task that holds its key until that key is free; of
    #: ``run_now`` only.
    BEHIND = "behind"
    #: No such entry: never scheduled, already cancelled, or delivered too long ago to be known.
    NOT_FOUND = "not_found"
    #: Your condition does not hold (``only=``, ``if_due=``, ``if_revision=``; or the task is not
    #: dead, as ``retry`` and ``remove`` require; or the task that holds a key to ``free`` still
    #: waits); nothing was changed.
    UNCHANGED = "unchanged"

    def __format__(self, spec: str) -> str:
        # Otherwise an f-string has the value before Python 3.12, and the name since then.
        return format(str(self), spec)

    def __bool__(self) -> bool:
        return self is Outcome.DONE

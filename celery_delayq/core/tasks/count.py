"""Counts of the tasks that an operation changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import DelayQError
from ..store.values import Outcome


class Count(int):
    """The number of changed tasks, with details.

    Attributes:
        uncertain: How many of these may also have been delivered.
        behind: How many of these wait behind a task that holds their key; of ``run_now`` only.
        in_flight: How many other tasks were left unchanged because they were being published.
        unreadable: How many others were left unchanged because their records cannot be read.
        outstanding: For how many ``REVOKED`` must still be stored; scanners do that.
        bulk: The name under which :meth:`DelayQ.undo_all` brings back those whose cancel is still
            kept; empty if nothing is kept for that.
    """

    uncertain: int
    behind: int
    in_flight: int
    unreadable: int
    outstanding: int
    bulk: str

    def __new__(  # noqa: PYI034 - Self is newer than Python 3.10
        cls,
        done: int,
        *,
        uncertain: int = 0,
        behind: int = 0,
        in_flight: int = 0,
        unreadable: int = 0,
        outstanding: int = 0,
        bulk: str = "",
    ) -> Count:
        made = super().__new__(cls, done)
        made.uncertain, made.behind = uncertain, behind
        made.in_flight, made.unreadable = in_flight, unreadable
        made.outstanding, made.bulk = outstanding, bulk
        return made

    @property
    def is_complete(self) -> bool:
        """Whether no matching task was left unchanged, was delivered before, or waits behind."""
        return not (self.uncertain or self.behind or self.in_flight or self.unreadable)


class Tally:
    """Counts step by step.

    Args:
        owes: Whether ``REVOKED`` must be stored for changed tasks.
        bulk: The name under which an undo finds them.

    Attributes:
        unreadable: How many were left unchanged because their records cannot be read.
    """

    def __init__(self, *, owes: bool = False, bulk: str = "") -> None:
        self._owes, self._bulk = owes, bulk
        self._done = self._uncertain = self._behind = self._in_flight = self.unreadable = 0

    @property
    def count(self) -> Count:
        return Count(
            self._done,
            uncertain=self._uncertain,
            behind=self._behind,
            in_flight=self._in_flight,
            unreadable=self.unreadable,
            outstanding=self._done if self._owes else 0,
            bulk=self._bulk,
        )

    def add(self, done: int) -> None:
        """Add to the number of changed tasks."""
        self._done += done

    def met(self, state: str, *, would: bool) -> None:
        """Count an entry of a dry run, in a *state* of ``peek.lua``."""
        self._done += would
        self._uncertain += would and state == "LAPSED"
        self._in_flight += state == "IN_FLIGHT"

    def changed(self, outcome: Outcome | None) -> None:
        """Count the outcome for one task."""
        self._done += outcome in (Outcome.DONE, Outcome.UNCERTAIN, Outcome.BEHIND)
        self._uncertain += outcome is Outcome.UNCERTAIN
        self._behind += outcome is Outcome.BEHIND
        self._in_flight += outcome is Outcome.IN_FLIGHT


Progress = Callable[[Count], object]


def report(progress: Progress | None, tally: Tally) -> None:
    """Call *progress*, if there is one, with the count so far."""
    if progress is not None:
        progress(tally.count)


@contextmanager
def telling_so_far(tally: Tally) -> Iterator[None]:
    """Give an error of this package the count so far."""
    try:
        yield
    except DelayQError as error:
        error.so_far = tally.count
        raise

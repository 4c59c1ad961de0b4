"""How many tasks something was done to."""

from __future__ import annotations

from ..store.outcome import Outcome


class Count(int):
    """How many tasks it was done to; a number, and what else there is to know.

    Attributes:
        uncertain: Of how many of these a copy may have been delivered.
        in_flight: How many more were being published, and so were left as they are.
        outstanding: For how many ``REVOKED`` is still to be stored; scanners do that.
    """

    uncertain: int
    in_flight: int
    outstanding: int

    def __new__(  # noqa: PYI034 - Self is newer than Python 3.10
        cls, done: int, *, uncertain: int = 0, in_flight: int = 0, outstanding: int = 0
    ) -> Count:
        made = super().__new__(cls, done)
        made.uncertain, made.in_flight, made.outstanding = uncertain, in_flight, outstanding
        return made


class Tally:
    """Counts step by step; *owes*: whether ``REVOKED`` is to be stored for what is done."""

    def __init__(self, *, owes: bool = False) -> None:
        self._owes = owes
        self._done = self._uncertain = self._in_flight = 0

    @property
    def count(self) -> Count:
        return Count(
            self._done,
            uncertain=self._uncertain,
            in_flight=self._in_flight,
            outstanding=self._done if self._owes else 0,
        )

    def add(self, done: int) -> None:
        """So many more."""
        self._done += done

    def met(self, state: str, *, would: bool) -> None:
        """What would be done to an entry that stands there, as ``peek.lua`` says it."""
        self._done += would
        self._uncertain += would and state == "LAPSED"
        self._in_flight += state == "IN_FLIGHT"

    def changed(self, outcome: Outcome | None) -> None:
        """What was done to one."""
        self._done += outcome in (Outcome.DONE, Outcome.UNCERTAIN)
        self._uncertain += outcome is Outcome.UNCERTAIN
        self._in_flight += outcome is Outcome.IN_FLIGHT

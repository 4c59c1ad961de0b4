"""A model of the hand-over protocol: one entry, two scanners, and every event that can hit them.

The store is one function per script, over an immutable value; the world is in ``search.py``.
`Fenced` is the protocol that the scripts carry out, and `test_model.py` compares the two. The
others are protocols that look right and are not.
"""

from typing import NamedTuple

LOST = 2  # the holder of a forgotten token
WAITING, REFUSED, LEASED, GONE = "waiting", "refused", "leased", "gone"


class Entry(NamedTuple):
    """The store's knowledge of the entry.

    ``version`` counts reschedules, ``holder`` stands for the token in the claim.
    """

    place: str = WAITING
    version: int = 0
    holder: int | None = None
    expired: bool = False
    uncertain: bool = False
    handed: bool = False


class Batch(NamedTuple):
    """A scanner's batch: the entry as it was when claimed, and the outcome."""

    version: int
    uncertain: bool
    outcome: str = "not tried"


class Fenced:
    """Lease and token; cancel and reschedule do not touch a leased entry."""

    def claim(self, entry: Entry, who: int) -> tuple[Entry, Batch | None]:
        if entry.place != WAITING:
            return entry, None
        leased = entry._replace(place=LEASED, holder=who, expired=False)
        return leased, Batch(entry.version, entry.uncertain)

    def holds(self, entry: Entry, who: int) -> bool:
        return entry.holder == who

    def ack(self, entry: Entry, who: int) -> tuple[Entry, bool]:
        if entry.place == GONE or not self.holds(entry, who):
            return entry, False
        return self.remove(entry, handed=True), True

    def nack(self, entry: Entry, who: int, verdict: str) -> tuple[Entry, bool]:
        if entry.place == GONE or not self.holds(entry, who):
            return entry, False
        after = self.wait(entry, uncertain=entry.uncertain or verdict == "unknown")
        return after._replace(place=REFUSED if verdict == "refused" else WAITING), True

    def retry(self, entry: Entry) -> tuple[Entry, bool]:
        """A hand-over, once it is time for the next try."""
        if entry.place != REFUSED:
            return entry, False
        return entry._replace(place=WAITING), True

    def run_out(self, entry: Entry) -> Entry:
        return entry._replace(expired=True)

    def reclaim(self, entry: Entry) -> tuple[Entry, bool]:
        if entry.place != LEASED or not entry.expired:
            return entry, False
        return self.wait(entry, uncertain=True), True

    def cancel(self, entry: Entry) -> tuple[Entry, str]:
        if answer := self.too_late(entry):
            return entry, answer
        return self.remove(entry), self.certainty(entry)

    def reschedule(self, entry: Entry) -> tuple[Entry, str]:
        if answer := self.too_late(entry):
            return entry, answer
        uncertain = self.certainty(entry) == "uncertain"
        return self.wait(entry, uncertain=uncertain)._replace(version=1), self.certainty(entry)

    def too_late(self, entry: Entry) -> str | None:
        if entry.place == GONE:
            return "handed_over" if entry.handed else "not_found"
        return "in_flight" if entry.place == LEASED and not entry.expired else None

    def certainty(self, entry: Entry) -> str:
        return "uncertain" if entry.place == LEASED or entry.uncertain else "done"

    @staticmethod
    def wait(entry: Entry, *, uncertain: bool) -> Entry:
        return entry._replace(place=WAITING, holder=None, expired=False, uncertain=uncertain)

    @staticmethod
    def remove(entry: Entry, *, handed: bool = False) -> Entry:
        return Entry(place=GONE, version=entry.version, handed=handed)


class PopThenPublish(Fenced):
    """The entry leaves the store before the broker has it."""

    def claim(self, entry, _who):
        if entry.place != WAITING:
            return entry, None
        return self.remove(entry, handed=True), Batch(entry.version, uncertain=False)


class LookPublishRemove(Fenced):
    """No lease: the entry leaves the store when the broker has it, whatever it is by then."""

    def claim(self, entry, _who):
        return entry, Batch(entry.version, uncertain=False) if entry.place == WAITING else None

    def holds(self, _entry, _who):
        return True


class WithoutToken(Fenced):
    """A lease, and an ack that asks for the id only."""

    def holds(self, _entry, _who):
        return True


class CancelsWhatIsClaimed(Fenced):
    """A cancel that says yes although a scanner holds the entry."""

    def cancel(self, entry):
        if entry.place == LEASED:
            return self.remove(entry), "done"
        return super().cancel(entry)


class ReschedulesWhatIsClaimed(Fenced):
    """A reschedule that says yes although a scanner holds the entry."""

    def reschedule(self, entry):
        if entry.place == LEASED:
            return self.wait(entry, uncertain=False)._replace(version=1), "done"
        return super().reschedule(entry)


class ForgetsLeasesThatRanOut(Fenced):
    """A lease that ran out counts as if nothing had been tried under it."""

    def reclaim(self, entry):
        entry, taken = super().reclaim(entry)
        return entry._replace(uncertain=False), taken


class TrustsLeasesThatRanOut(Fenced):
    """A cancel that looks at the time of a lease, and not at what may have happened before."""

    def certainty(self, entry):
        return "uncertain" if entry.uncertain else "done"


class ForgetsUnknownPublishes(Fenced):
    """A publish without an answer counts as one that did not happen."""

    def nack(self, entry, who, _verdict):
        return super().nack(entry, who, "unsent")


class KeepsLeasesForEver(Fenced):
    """The leases of a dead scanner never end."""

    def reclaim(self, entry):
        return entry, False


class TriesOnce(Fenced):
    """A message that the broker refused is not tried again."""

    def retry(self, entry):
        return entry, False

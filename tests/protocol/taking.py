"""How a message that a broker delivered becomes an entry, once: what a worker and the store do.

A worker that adopts a message, or puts its task off, sends a request that writes the entry and the
mark of the message in one step; told of that, it acknowledges. `Taking` is the protocol that the
scripts carry out. The others look right and are not; `test_taking.py` finds them out.

All messages here have one identity, as those of a task that is sent again under its id, for the
same time. Clocks are ideal, and instead of times there is what comparing them would say: `fresh`,
the mark was set after this delivery; `stale`, the entry was changed after this request was issued.
"""

from typing import NamedTuple

STORED, TAKEN, CONFLICT, STALE = "stored", "taken", "conflict", "stale"


class Request(NamedTuple):
    """What a worker asks, on its way. It may arrive until its call has ended, any number of times.

    ``again``: its message may have been delivered before.
    """

    call: int
    message: int
    again: bool
    fresh: bool = False
    stale: bool = False


class Store(NamedTuple):
    """What the store knows of the one id, and of the one identity."""

    entry: int | None = None  # the message that it was
    marked: bool = False
    answers: frozenset[tuple[int, str]] = frozenset()


class Hand(NamedTuple):
    """What a worker has in its hands, and how far it is with it.

    ``again``: it was delivered as one that may have been delivered before.
    ``over``: it had become an entry when it was delivered.
    ``call``: what it asks, or asked last.
    """

    message: int
    again: bool
    over: bool
    step: str
    fresh: bool = False
    call: int | None = None


class Taking:
    """One step for entry and mark; a mark counts where it may be of the same message.

    That is any mark, if the message may have been delivered before. Of one that was not, it is a
    mark that was set since it was delivered: the broker has taken the message back, given it to
    somebody else, and this worker has not heard of that. An older one is of a message that was sent
    before, and says nothing of this one.
    """

    acks_first = False  # the broker forgets the message before the store has it
    looks = False  # at the mark, in a step of its own, when it is delivered again
    marks_first = False  # in a step of its own, before that of the entry
    marks_after = False  # in a step of its own, after that of the entry
    forgets = False  # the mark may go while the broker may deliver the message again
    in_place = False  # what stands in a list is stored while it stands there, and then removed

    def run(self, store: Store, request: Request) -> tuple[Store, str]:
        """The script: the store after it, and the answer or refusal."""
        for call, answer in store.answers:
            if call == request.call:
                return store, answer
        if request.stale:
            return store, STALE
        store, answer = self.take(store, request)
        return store._replace(answers=store.answers | {(request.call, answer)}), answer

    def take(self, store: Store, request: Request) -> tuple[Store, str]:
        if store.marked and self.counts(request):
            return store, TAKEN
        if store.entry is not None:
            return store, CONFLICT
        return self.mark(store._replace(entry=request.message)), STORED

    def counts(self, request: Request) -> bool:
        return request.again or request.fresh

    def mark(self, store: Store) -> Store:
        return store._replace(marked=True)

    def is_dropped(self, store: Store, hand: Hand) -> bool:
        """Whether a task does not run again, as it was put off when it ran before."""
        return hand.again and store.marked

    def unsure(self, hand: Hand) -> Hand:
        """No answer came: it may be stored. That is asked as before, until it is known."""
        return hand._replace(step="ran")

    def told(self, answer: str) -> str:
        """What a worker is to do then: acknowledge, or leave it to Celery."""
        return {STORED: "stored", TAKEN: "done", CONFLICT: "own"}[answer]


class AcksFirst(Taking):
    """The message is acknowledged when it is received."""

    acks_first = True


class NoMark(Taking):
    """Only the entry tells that there is one."""

    def mark(self, store):
        return store


class MarksFirst(Taking):
    """The mark is set, and then the entry is written."""

    looks = marks_first = True

    def mark(self, store):
        return store

    def counts(self, _request):
        return False


class MarksAfterwards(Taking):
    """The entry is written, and then the mark is set."""

    marks_after = True

    def mark(self, store):
        return store


class LooksBefore(Taking):
    """The mark is looked at on receipt, and not by the step that writes."""

    looks = True

    def counts(self, _request):
        return False


class CountsNoneAtFirst(Taking):
    """A message that is delivered for the first time is new, whenever it is asked for."""

    def counts(self, request):
        return request.again

    def unsure(self, hand):
        return hand._replace(step="ran", again=True)


class CountsAllAtFirst(Taking):
    """Whatever is marked has been taken. That is right where each message has a name of its own."""

    def counts(self, _request):
        return True


class ForgetsEarly(Taking):
    """Marks are kept for less time than a broker may take to deliver again."""

    forgets = True


class GoesItsOwnWay(Taking):
    """Where no answer came, the message is left to Celery."""

    def unsure(self, hand):
        return hand._replace(step="own")


class AsksAnew(Taking):
    """Where no answer came, it is asked for as if it had just been delivered."""

    def unsure(self, hand):
        return hand._replace(step="ran", fresh=False)


class AsksAsIfAgain(Taking):
    """Where no answer came, it is asked for as if it had been delivered before."""

    def unsure(self, hand):
        return hand._replace(step="ran", again=True)


class AcksConflicts(Taking):
    """An entry of its id is taken for its own."""

    def told(self, answer):
        return "done" if answer == CONFLICT else super().told(answer)


class RunsWhatWasPutOff(Taking):
    """Whether it was put off already is asked when it is put off again."""

    def is_dropped(self, _store, _hand):
        return False


class AdoptsInPlace(Taking):
    """A list is emptied by storing what stands in it, and removing it there; else, cancelled."""

    in_place = True

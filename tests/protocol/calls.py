"""A model of the store under calls that arrive late, twice, or after their caller left.

A call is one operation: all its attempts carry the same number. `Ordered` is the protocol that
the scripts carry out. It builds on `model.Fenced`, which decides what a change may do to an
entry. The others are protocols that look right and are not; `test_network.py` finds them out.

Times are ticks of Redis's clock, counted from now. A tick is long: much can happen in one.
"""

from typing import NamedTuple

from tests.protocol.model import GONE, Entry, Fenced

TIMEOUT = 2  # ticks that a call may take; the greatest there is, too
NOW, NEVER = 0, -100
NOTHING_THERE = ("handed_over", "not_found")
EFFECTS = ("held", "done", "uncertain")  # answers of a call that took effect
REFUSALS = ("late", "join", "stale")  # nothing was written, and the reply has Redis's time

HELD, EMPTY, HANDED_OVER = Entry(), Entry(place=GONE), Entry(place=GONE, handed=True)


class Request(NamedTuple):
    """One attempt of a call, on its way."""

    call: int  # the operation
    kind: str  # schedule, reschedule or cancel
    issued: int
    deadline: int
    again: bool = False  # it was issued anew, or is marked as a repetition


class Answer(NamedTuple):
    call: int
    again: bool
    text: str
    stored: int


class Store(NamedTuple):
    """The store's knowledge of one id."""

    entry: Entry = EMPTY
    owner: int | None = None  # the call that scheduled the held entry
    changed: int = NEVER  # when a call last changed the entry
    fence: int = NEVER  # last time a call removed an entry, found none, or changed one soon gone
    answers: tuple[Answer, ...] = ()
    left: int | None = None  # the call that had scheduled the entry that left, if known


class Ordered:
    """Deadline, answer by operation, and order by the time of issue.

    A caller may repeat an attempt at any time before its deadline, under the same operation and
    deadline: whichever attempt arrives first leaves the answer for the others. (So the network may
    double them as well, and `network.py` does not tell the two apart.)

    A call that is refused as stale may be issued anew under its operation, also while a request
    with the old time is still under way. That one is stale as long as the newer change is known;
    if it is the first to run afterwards, the new one gets the same answer. Under another operation
    both might run: `NewOperationWhenStale`.

    A caller that gives up before its deadline counts as interrupted. It does no harm to the held
    entry; it only does not know yet whether its call will take effect.

    An entry that is handed over within a time-out of its last change leaves the time of that
    change as a fence. Otherwise a schedule whose caller was interrupted might run after a later
    one: `FencesWhatCallsRemove`. (Nearly all entries leave later than that, and need no fence, as
    no request is that old.)

    A caller's clock that runs ahead of Redis's, or Redis's clock that is set back, by less than a
    time-out: calls take effect once, but one whose caller has given up or was interrupted may do so
    that much too late, also after a newer one. No note of the time can prevent that: the deadline
    was never past by Redis's clock, and Redis has no other clock. By a whole time-out or more, set
    forward or back: answers may be forgotten too early for a call that is being repeated at that
    moment. (Its caller notices a clock that was set forward: `core/store/caller.py`.)
    """

    leases = Fenced()
    repeats = False  # whether a repetition has to be marked as one
    reuses_tokens = False  # whether a token may be used again

    def run(self, store: Store, request: Request) -> tuple[Store, str]:
        """The script of a call: the store after it, and the answer or refusal."""
        if refusal := self.out_of_time(request):
            return store, refusal
        if answer := self.remembered(store, request):
            return store, answer
        if self.is_stale(store, request):
            return store, "stale"
        store, answer = self.change(store, request)
        return self.remember(store, request, answer), answer

    def out_of_time(self, request: Request) -> str:
        if request.deadline <= NOW:
            return "late"
        # The caller's time is wrong: Redis's clock was set back, or its own runs fast.
        return "join" if request.deadline > NOW + TIMEOUT else ""

    def remembered(self, store: Store, request: Request) -> str:
        return next((each.text for each in store.answers if self.is_for(each, request)), "")

    def is_for(self, answer: Answer, request: Request) -> bool:
        return answer.call == request.call

    def remember(self, store: Store, request: Request, answer: str) -> Store:
        answers = sorted((*store.answers, Answer(request.call, request.again, answer, NOW)))
        return store._replace(answers=tuple(answers))

    def is_stale(self, store: Store, request: Request) -> bool:
        # Equal is too old: the call may have been issued first, and arrive later in the same tick.
        # (The scripts count in us, and let equal times pass: see `LetsEqualTimesPass`.)
        return request.issued <= self.last_change(store) <= NOW

    def last_change(self, store: Store) -> int:
        return store.fence if store.entry.place == GONE else store.changed

    def change(self, store: Store, request: Request) -> tuple[Store, str]:
        if request.kind == "schedule":
            return self.schedule(store, request)
        step = self.leases.cancel if request.kind == "cancel" else self.leases.reschedule
        entry, answer = step(store.entry)
        if answer in NOTHING_THERE:
            return self.fenced(store), answer
        if answer not in EFFECTS:
            return store, answer
        if request.kind == "cancel":
            return self.fenced(self.leave(store)), answer
        moved = min(2, store.entry.version + 1)
        return store._replace(entry=entry._replace(version=moved), changed=NOW), answer

    def schedule(self, store: Store, request: Request) -> tuple[Store, str]:
        if store.entry.place != GONE:
            return store, "held" if store.owner == request.call else "conflict"
        return store._replace(entry=HELD, owner=request.call, changed=NOW), "held"

    def fenced(self, store: Store) -> Store:
        return store._replace(fence=NOW)

    def leave(self, store: Store, *, handed: bool = False) -> Store:
        entry = HANDED_OVER if handed else EMPTY
        fence = store.changed if store.changed >= NOW - TIMEOUT else store.fence
        return store._replace(entry=entry, owner=None, changed=NEVER, fence=fence)

    def hand_over(self, store: Store) -> Store:
        """One script: out of the store, into the list."""
        return self.leave(store, handed=True)

    def token(self, _word: int, run: int) -> int:
        """The token of a claim: each run of the script makes one of its own."""
        return run

    def forget(self, store: Store) -> Store:
        """Forget how an entry left: allowed at any time, as it only makes an answer kinder."""
        return store._replace(entry=EMPTY) if store.entry.handed else store

    def later(self, store: Store, oldest: int, running: set[int]) -> Store:
        """A tick later: the store forgets old knowledge.

        It does so as soon as possible, so that nothing relies on longer keeping. Two things are
        left out, as they make no difference: knowledge that no call in ``running`` will ask for,
        and how long before ``oldest`` something was.
        """
        entry, owner, changed, fence, answers, left = moved(store, 1)
        return Store(
            entry,
            owner,
            changed if changed >= oldest else NEVER,
            fence if fence >= max(oldest, NOW - TIMEOUT) else NEVER,
            tuple(
                each for each in answers if each.stored >= NOW - TIMEOUT and each.call in running
            ),
            left,
        )


def moved(store: Store, ticks: int) -> Store:
    """The store's memory, *ticks* further in the past."""
    entry, owner, changed, fence, answers, left = store
    answers = tuple(each._replace(stored=each.stored - ticks) for each in answers)
    return Store(
        entry, owner, max(NEVER, changed - ticks), max(NEVER, fence - ticks), answers, left
    )


class FencesWhatCallsRemove(Ordered):
    """An entry that is handed over leaves no fence."""

    def leave(self, store, *, handed=False):
        return super().leave(store, handed=handed)._replace(fence=store.fence)


class WithoutDeadline(Ordered):
    """Answers are forgotten when they are old, and requests are never too old."""

    def out_of_time(self, _request):
        return ""


class WithoutOrder(Ordered):
    """Deadlines and answers, and nothing about which of two calls is the older one."""

    def is_stale(self, _store, _request):
        return False


class WithoutTimeOfChange(Ordered):
    """A fence only if there is no entry; the time of an entry's last change is ignored."""

    def is_stale(self, store, request):
        return store.entry.place == GONE and request.issued <= store.fence


class LetsEqualTimesPass(Ordered):
    """A call that was issued in the very tick of the last change counts as the newer one.

    That is right only if no two scripts run in one tick, and none runs in the tick in which a call
    was issued before it: if a tick is a microsecond. See `Scenario.fine`.
    """

    def is_stale(self, store, request):
        return request.issued < self.last_change(store) <= NOW


class NewOperationWhenStale(Ordered):
    """A call that was refused as stale is issued anew as if it were another one."""

    def is_for(self, answer, request):
        return (answer.call, answer.again) == (request.call, request.again)


class CancelsWithoutFence(Ordered):
    """Only a change that finds nothing leaves a fence; one that removes the entry leaves none."""

    def change(self, store, request):
        after, answer = super().change(store, request)
        return (after._replace(fence=store.fence) if answer in EFFECTS else after), answer


class TokenOfTheScanner(Ordered):
    """A claim carries its token, so a claim that arrives twice uses the same token twice."""

    reuses_tokens = True

    def token(self, word, _run):
        return word


class AnswersByCount(Ordered):
    """Answers are forgotten when there are many, which can be at any time."""

    def forget(self, store):
        return super().forget(store)._replace(answers=())


class Tombstones(Ordered):
    """The store remembers only the ids of entries that left, each with the call that scheduled it.

    A caller marks a call that it repeats, and the store searches its memory only for those.
    """

    repeats = True

    def out_of_time(self, _request):
        return ""

    def remembered(self, store, request):
        asks = request.kind == "schedule" and request.again
        return "held" if asks and store.left == request.call else ""

    def remember(self, store, _request, _answer):
        return store

    def is_stale(self, _store, _request):
        return False

    def leave(self, store, *, handed=False):
        return super().leave(store, handed=handed)._replace(left=store.owner)

    def forget(self, store):
        return super().forget(store)._replace(left=None)


class TombstonesAlways(Tombstones):
    """Every call searches the memory, which is kept for as long as a call may last."""

    repeats = False

    def remembered(self, store, request):
        return super().remembered(store, request._replace(again=True))

    def forget(self, store):
        return Ordered.forget(self, store)


class TombstonesAndDeadline(TombstonesAlways):
    """And a request whose caller gave up is refused."""

    def out_of_time(self, request):
        return Ordered.out_of_time(self, request)

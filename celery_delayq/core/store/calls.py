"""Calls that change the store, over a network that delays, duplicates and loses messages.

    caller --> Calls.call: one operation --request--> the script, which remembers its answer
                  ^   |                     request--> the same answer
                  +---+ no answer: send it again, until the call ends
    the call is answered --> replicate + WAIT, on one connection --> how many replicas have it

A call takes effect once and in order, or is refused; ``lua/prelude/call.lua`` says how. This side
names the operation and sends with each request its time and the end of the call. It continues only
when the call is answered, or has ended by Redis's clock as well. ``tests/lab/simulator`` runs
both sides over such a network.

Then comes a ``Shard``, which is what a process reaches of one, and each step takes; and the wait
for replicas. ``WAIT`` covers the writes of its own connection. If there were none, it proves
nothing: Redis 7.2 and later answer at once that all replicas are up to date. The call may have used
another connection, or even another Redis, the master at that time. So a script goes before it: if
this Redis knows the call, it writes, but changes nothing. The call itself is done, so failures here
are logged, not raised.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from .. import clock
from ..errors import StoreError, StoreUnavailable
from ..hooks import author
from ..servers.connection import packed
from ..text import logger_of
from .membership import Membership, Registration
from .scripts import Scripts
from .values import Receipt

logger = logger_of(__name__)

DRIFT = 0.0005  # the largest difference in speed between two machines' clocks
AGAIN = 0.1  # seconds before repeating a request that may have run, or got the same refusal
OPERATION_BYTES = 12
# By default (`hz`), Redis checks ten times a second whether a WAIT has timed out.
GRACE = 1.5  # seconds to wait for the reply, in addition to the time of the WAIT
TOLD_EVERY = 60.0  # seconds between two warnings of the same kind

# Why a call ended, if this verdict was its only answer.
_WHY = {
    b"late": "its requests arrived after its deadline by Redis's clock",
    b"join": "its clock is being set, or its keys are being deleted",
    b"stale": "other processes keep changing the same task",
    b"templates": "templates that it needs are being deleted",
}


def new_operation() -> bytes:
    """Return a name that no other call has, with its author and its change of many, if any."""
    return os.urandom(OPERATION_BYTES) + author()


class RedisTime:
    """Redis's clock as this process knows it: perhaps behind, never ahead."""

    def __init__(self) -> None:
        self._learned: tuple[int, float] | None = None

    def learn(self, now_us: int) -> None:
        """Note the time in the reply that was just read."""
        self._learned = now_us, clock.monotonic()

    def at(self, moment: float) -> int | None:
        """Return Redis's time in us at a moment of the monotonic clock; ``None`` if unknown."""
        if self._learned is None:
            return None
        now_us, read_at = self._learned
        drift = -DRIFT if moment >= read_at else DRIFT
        return now_us + math.floor((moment - read_at) * (1 + drift) * 1_000_000)


class Calls:
    """Makes calls that change the store; shared by the threads of a process.

    Args:
        scripts: The shard's scripts.
        join: Registers this process with the store and returns Redis's time, and the store's name;
            :meth:`Registration.join`.

    Attributes:
        store: The store's random name, as of this process's join.
    """

    def __init__(
        self, scripts: Scripts, join: Callable[[float | None, str], tuple[int, str]]
    ) -> None:
        self.store = ""
        self._scripts = scripts
        self._join = join
        self._time = RedisTime()

    def join(self, until: float | None = None, step: str = "join") -> None:
        """Register with the store, and learn its time; see :meth:`Registration.join`."""
        now_us, self.store = self._join(until, step)
        self._time.learn(now_us)

    def call(
        self,
        name: str,
        *,
        operation: bytes | None = None,
        until: float | None = None,
        pauses: Iterable[float] = (),
        whole: Callable[[], dict[str, Any]] | None = None,
        **arguments: Any,
    ) -> list[Any]:
        """Call a script that changes the store.

        Args:
            name: The script's name.
            operation: The call's name, from :func:`new_operation`, if you ask for its answer later.
            until: When the call ends, by the monotonic clock; after ``delayq_timeout`` by default.
            pauses: Seconds before each repetition of a request that did not reach Redis. A request
                that may have reached it is repeated until the answer, or the end of the call.
            whole: Makes anew the arguments that have templates or times: with all templates, and
                times by Redis's clock as this process knows it now.
            arguments: The script's arguments, without those common to all calls.

        Returns:
            The script's reply after its verdict; its first word is the answer.

        Raises:
            StoreUnavailable: no answer came in time.
            StoreError: Redis refused the call.
        """
        until = clock.monotonic() + self._scripts.settings.timeout if until is None else until
        time, attempt = self._time, Attempts(until, iter(pauses))
        operation = operation or new_operation()
        began: int | None = None
        answer: list[Any]
        while True:
            try:
                if time.at(until) is None:
                    self.join(until, name)
                issued = time.at(clock.monotonic())
                began = issued if began is None else began
                now_us, verdict, *answer = self._scripts.call(
                    name,
                    until=until,
                    operation=operation,
                    store=self.store,
                    issued=issued,
                    deadline=time.at(until),
                    began=began,
                    **arguments,
                )
                time.learn(now_us)
                attempt.has_run = True
                if verdict == b"join":
                    if whole is not None:
                        # Redis's clock was set back, perhaps: the times were ahead of it.
                        arguments = {**arguments, **whole()}
                    self.join(until, name)
            except StoreError as error:
                attempt.wait_after(error)
                continue
            if verdict == b"answer":
                return answer
            if verdict == b"templates" and whole is not None:
                # The same operation: a copy of the first request may be under way.
                arguments = {**arguments, **whole()}
            attempt.repeat_after(name, verdict)

    def time_of(self, moment: float, until: float) -> int:
        """Return a lower bound of Redis's time in us at a moment of the monotonic clock; > 0.

        Raises:
            StoreError: Redis's time is not known.
        """
        if self._time.at(moment) is None:
            self.join(until, "schedule")
        return max(1, self._time.at(moment) or 0)


class Attempts:
    """The failed requests of one call.

    Attributes:
        has_run: Whether a request got a verdict. The network may have doubled it, and its copy may
            take effect until the call ends.
    """

    def __init__(self, until: float, pauses: Iterator[float]) -> None:
        self.has_run = False
        self._until = until
        self._pauses = pauses
        self._may_have_run = False
        self._verdict = b""

    def wait_after(self, error: StoreError) -> None:
        """Wait before the next request, or raise the error once no request can run any more."""
        away = isinstance(error, StoreUnavailable)
        self._may_have_run |= isinstance(error, StoreUnavailable) and error.may_have_run
        # A Redis that refuses this request has answered; else a copy of the last may be on its way.
        is_cut_off = away and not isinstance(error.__cause__, redis.exceptions.ResponseError)
        may_run = self._may_have_run or (is_cut_off and self.has_run)
        pause = next(self._pauses, None) if away else None
        if pause is None:
            if not may_run:
                raise error
            pause = AGAIN
        left = self._until - clock.monotonic()
        if pause < left:
            clock.sleep(pause)
            return
        if may_run:
            clock.sleep(max(0.0, left))
            raise StoreUnavailable(error.step, error.why) from error
        raise error

    def repeat_after(self, name: str, verdict: bytes) -> None:
        """Wait before the next request, or raise if the call is over.

        A repeated verdict makes the pauses longer.
        """
        pause = AGAIN if verdict == self._verdict else 0.0
        self._verdict = verdict
        left = self._until - clock.monotonic()
        # Redis's clock went ahead of time: the answer to an earlier request may be forgotten.
        is_lost = verdict == b"late" and self._may_have_run
        if left <= pause or is_lost:
            clock.sleep(max(0.0, left))
            raise StoreUnavailable(name, _WHY[verdict], self._may_have_run)
        clock.sleep(pause)


class Shard:
    """A process's access to one shard; its threads share it.

    Args:
        scripts: The shard's.
        membership: What this process says of its app and broker.
        number: Its number among the store's shards.
        scanner: Whether it delivers tasks.
        meeting_place: The keys common to all numbers of shards; ``None`` if they are this shard's.

    Attributes:
        number: Its number among the store's shards.
        scripts: For steps that only read, and for a scanner's.
        registration: How this process joins the store.
        calls: For a caller's steps that change the store.
        templates: Names of templates that this process has sent.
    """

    def __init__(
        self,
        scripts: Scripts,
        membership: Membership,
        number: int = 0,
        *,
        scanner: bool = False,
        meeting_place: Registration | None = None,
    ) -> None:
        self.number = number
        self.scripts = scripts
        self.registration = Registration(scripts, membership, scanner=scanner)
        self._meeting_place = meeting_place
        if meeting_place is not None:
            self.registration.warned = meeting_place.warned  # one warning for all shards
        self.calls = Calls(scripts, self._join)
        self.templates: set[bytes] = set()

    def check_membership(self) -> str:
        """Check that this process may read the shard; see :meth:`Registration.check_membership`."""
        if self._meeting_place is not None:
            self._meeting_place.check_membership()
        return self.registration.check_membership()

    def meet(self) -> None:
        """Register at the meeting place; without that, nothing may be written to any shard."""
        (self._meeting_place or self.registration).join()

    def _join(self, until: float | None, step: str) -> tuple[int, str]:
        # The meeting place first: a process that is refused there has written nothing here.
        if self._meeting_place is not None:
            self._meeting_place.join(until, step)
        return self.registration.join(until, step)


@dataclass(frozen=True)
class Wanted:
    """The replication to wait for; see the setting ``delayq_wait_replicas``.

    Attributes:
        replicas: How many replicas must have the changes.
        seconds: The longest wait.
        kind: ``"aof"``: also on disk, in the append-only files of these replicas and the master.
    """

    replicas: int
    seconds: float
    kind: str = ""

    @property
    def command(self) -> str:
        return "WAITAOF" if self.kind else "WAIT"

    def packed(self, seconds: float) -> list[bytes]:
        """Return the command for a wait of so many seconds."""
        local = [1] if self.kind else []
        # 0 would mean for ever.
        return packed([self.command, *local, self.replicas, max(1, round(seconds * 1000))])

    def reached(self, answer: Any) -> tuple[bool, int]:
        """Return whether the master did its part, and how many replicas did theirs."""
        local, replicas = answer if self.kind else (True, answer)
        return bool(local), int(replicas)


class Shortfalls:
    """Warns of tasks that too few replicas have: seldom, with their number."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._untold = 0

    def note(self, kind: str, why: str, tasks: int, *, again: bool = True) -> int:
        """Log it, unless that was done lately; a failure that does not pass is logged once.

        Returns:
            0: the number of replicas known to have the tasks.
        """
        self._untold += tasks
        now = clock.monotonic()
        last = self._told.get(kind)
        if last is None or (again and now >= last + TOLD_EVERY):
            untold, self._untold = self._untold, 0
            self._told[kind] = now
            logger.warning(
                "%d tasks are scheduled, but not known to be on as many replicas as "
                "delayq_wait_replicas requires: %s",
                untold,
                why,
            )
        return 0


def wait(
    shard: Shard, wanted: Wanted, receipts: Sequence[Receipt], until: float, shortfalls: Shortfalls
) -> int:
    """Wait until replicas of a shard's Redis have the changes of calls.

    Args:
        shard: The shard.
        wanted: How many replicas, and how.
        receipts: The calls' answers, just received.
        until: When to give up, by the monotonic clock.
        shortfalls: Logs failures.

    Returns:
        How many replicas have the changes; 0 if that is not known, or if the master's append-only
        file is wanted too and does not have them.
    """
    seconds, tasks = until - clock.monotonic(), len(receipts)
    try:
        is_known, offsets = shard.scripts.call_and(
            "replicate",
            wanted.packed(seconds),
            until=clock.monotonic() + max(0.0, seconds) + GRACE,
            operations={receipt.operation for receipt in receipts},
        )
    except StoreUnavailable as error:
        return shortfalls.note("away", error.why, tasks)
    except StoreError as error:
        why = f"Redis refused {wanted.command}: {error.why}"
        return shortfalls.note(why, why, tasks, again=False)
    if not is_known:
        return shortfalls.note("unknown", "the Redis that answered does not have them", tasks)
    local, reached = wanted.reached(offsets)
    if not local:
        own = f"not even Redis's own file had them within {wanted.seconds:g} s"
        return shortfalls.note("own", own, tasks)
    if reached < wanted.replicas:
        few = f"{reached} of {wanted.replicas} replicas had them within {wanted.seconds:g} s"
        shortfalls.note("few", few, tasks)
    return reached

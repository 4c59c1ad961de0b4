"""Calls that change something, over a network that delays, doubles and loses.

    caller --> Calls.call: one operation --request--> the script, which remembers its answer
                  ^   |                     request--> told the same
                  +---+ no answer: asked again, until the call's end

A call takes effect once and in order, or is refused; ``lua/prelude/call.lua`` says by what. This
side names the operation, says when a request was made and when the call ends, and goes on only when
the call is answered, or has ended by Redis's clock as well. ``tests/protocol`` searches all that
can happen to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import clock
from ..errors import StoreDiffers, StoreError, StoreUnavailable
from ..logs import logger_of
from .alone import check_alone
from .keys import SCHEMA
from .scripts import Scripts

AGAIN = 0.1  # seconds between two requests of a call that may have run, or meet the same refusal
OPERATION_BYTES = 12
STORE_BYTES = 8  # of what tells a store from every other one
DRIFT = 0.0005  # by how much two machines' clocks may differ in speed, at most

# Why a call ended that had no other answer than this verdict.
_WHY = {
    b"late": "its requests came when the call had ended by Redis's clock",
    b"join": "its clock is being set, or its keys are being deleted",
    b"stale": "others change the same task all the while",
    b"templates": "templates that it was sent are being deleted",
}

logger = logger_of(__name__)


@dataclass(frozen=True)
class Membership:
    """What the processes that share a store have to agree on.

    Attributes:
        timeout: Seconds that a call takes at most; it may differ, and the greatest counts.
        broker: The broker's transport, virtual host and prefix of keys.
        hosts: Where the broker is; a name may differ from an address, so this is only warned of.
        shards: Over how many shards the entries are spread.
        history: How many events the history has, at most; 0: there is none. Where processes
            differ, the last that joined decides.
        repeats: Whether it has events that equal the one before.
        app: The app's name; scanners of two apps in one store are warned. Empty: it has none.
    """

    timeout: float
    broker: str = ""
    hosts: str = ""
    shards: int = 1
    history: int = 0
    repeats: bool = True
    app: str = ""

    @property
    def kept(self) -> str:
        """What the store is to note of its history; see ``lua/prelude/history.lua``."""
        return f"{self.history} {int(self.repeats)}" if self.history else ""


class RedisTime:
    """Redis's clock as this process knows it: it may be behind, and is never ahead."""

    def __init__(self) -> None:
        self._learned: tuple[int, float] | None = None

    def learn(self, now_us: int) -> None:
        """Take note of a time that Redis told in the reply just read."""
        self._learned = now_us, clock.monotonic()

    def at(self, moment: float) -> int | None:
        """Redis's time in us at a moment of the monotonic clock; ``None`` if it is not known."""
        if self._learned is None:
            return None
        now_us, read_at = self._learned
        drift = -DRIFT if moment >= read_at else DRIFT
        return now_us + math.floor((moment - read_at) * (1 + drift) * 1_000_000)


class Member:
    """A process's membership in a store.

    Args:
        scripts: The store's.
        membership: What this process has.
        scanner: Whether it hands over; a scanner decides which broker is the store's.

    Attributes:
        time: Redis's clock.
        store: What tells the store from every other one, as it was when this process joined.
    """

    def __init__(self, scripts: Scripts, membership: Membership, *, scanner: bool = False) -> None:
        self.time = RedisTime()
        self.store = ""
        self._scripts = scripts
        self._ours = membership
        self._scanner = scanner
        self._warned: set[str] = set()

    def join(self, until: float | None = None, step: str = "join") -> None:
        """Become known to the store, and learn what time it is there.

        Args:
            until: When to give up, by the monotonic clock.
            step: What it is for, as an error shall say.

        Raises:
            StoreDiffers: it is used in another way than this process would.
            StoreError: it cannot be a store.
        """
        ours = self._ours
        try:
            check_alone(self._scripts.connection, "join", until)
            now_us, *known = self._scripts.call(
                "join",
                until=until,
                schema=SCHEMA,
                shards=ours.shards,
                timeout=round(ours.timeout * 1000),
                broker=ours.broker,
                hosts=ours.hosts,
                scanner=int(self._scanner),
                kept=ours.kept,
                store=os.urandom(STORE_BYTES).hex(),
                app=ours.app,
            )
        except StoreUnavailable as error:
            # Of the call that it is for, nothing was sent yet.
            raise StoreUnavailable(step, error.why, False) from error.__cause__
        except StoreError as error:
            raise type(error)(step, error.why) from error.__cause__
        schema, shards, broker, hosts, self.store, app = (
            word.decode(errors="replace") for word in known
        )
        _agree("layout", schema, SCHEMA)
        _agree("number of shards", shards, str(ours.shards))
        if self._scanner:
            _agree("broker", broker, ours.broker)
        self._warn_of_broker((broker, hosts))
        self._warn_of_app(app)
        self.time.learn(now_us)

    def look(self) -> str:
        """Find out whether this process reads the store as the others write it; it changes nothing.

        Returns:
            The broker of the scanners, as ``redis, database 0 on red:6379``, where it is not this
            process's; else empty. They may be gone.

        Raises:
            StoreDiffers: it would not.
        """
        schema, shards, *theirs = (
            word.decode(errors="replace") for word in self._scripts.call("agreed")
        )
        if schema:
            _agree("layout", schema, SCHEMA)
            _agree("number of shards", shards, str(self._ours.shards))
        is_other = theirs[0] and theirs != [self._ours.broker, self._ours.hosts]
        return " on ".join(theirs) if is_other else ""

    def _warn_of_broker(self, theirs: tuple[str, str]) -> None:
        ours = self._ours.broker, self._ours.hosts
        if theirs[0] and theirs != ours:
            self._warn(
                "this store's scanners have the broker %s on %s, this process %s on %s; two apps "
                "that share a store want a delayq_prefix each",
                *theirs,
                *ours,
            )

    def _warn_of_app(self, theirs: str) -> None:
        ours = self._ours.app
        # Another app may well schedule for the workers of this one; but not hand over for them.
        if self._scanner and ours and theirs not in ("", ours):
            self._warn(
                "this store's scanners are of the app %s, this one is of the app %s: each hands "
                "over, shows and selects the other's tasks as well; give each app a delayq_prefix "
                "of its own",
                theirs,
                ours,
            )

    def _warn(self, text: str, *facts: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning(text, *facts)


def new_operation() -> bytes:
    """A name that no other call has."""
    return os.urandom(OPERATION_BYTES)


class Calls:
    """Makes calls that change something; shared by the threads of a process."""

    def __init__(self, scripts: Scripts, member: Member, timeout: float) -> None:
        self._scripts = scripts
        self._member = member
        self._timeout = timeout

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
        """Make one call of a script that changes something.

        Args:
            name: The script's.
            operation: The call's name, from :func:`new_operation`, for who asks for it later.
            until: When the call ends, by the monotonic clock; after ``delayq_timeout`` by default.
            pauses: Seconds before each repetition of a request that did not reach Redis. One that
                may have reached it is repeated until it is answered or the call ends.
            whole: Makes the arguments that differ in a request that leaves out no template.
            arguments: The script's, without the three that each call begins with.

        Returns:
            The script's reply after its verdict; its first word is the answer.

        Raises:
            StoreUnavailable: no answer came in time.
            StoreError: Redis refused.
        """
        until = clock.monotonic() + self._timeout if until is None else until
        attempt = _Attempts(until, iter(pauses))
        operation = operation or new_operation()
        while True:
            try:
                now_us, verdict, *answer = self._request(name, operation, until, arguments)
                self._member.time.learn(now_us)
                if verdict == b"join":
                    self._member.join(until, name)
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
        """Redis's time in us at a moment of the monotonic clock, or somewhat less; > 0.

        Raises:
            StoreError: it is not known.
        """
        if self._member.time.at(moment) is None:
            self._member.join(until, "schedule")
        return max(1, self._member.time.at(moment) or 0)

    def _request(
        self, name: str, operation: bytes, until: float, arguments: dict[str, Any]
    ) -> list[Any]:
        time = self._member.time
        if time.at(until) is None:
            self._member.join(until, name)
        return list(
            self._scripts.call(
                name,
                until=until,
                operation=operation,
                issued=time.at(clock.monotonic()),
                deadline=time.at(until),
                **arguments,
            )
        )


class _Attempts:
    """The requests of one call, as far as they failed."""

    def __init__(self, until: float, pauses: Iterator[float]) -> None:
        self._until = until
        self._pauses = pauses
        self._may_have_run = False
        self._verdict = b""

    def wait_after(self, error: StoreError) -> None:
        """Wait for the next request, or raise the error; not before none of them can run."""
        away = isinstance(error, StoreUnavailable)
        self._may_have_run |= isinstance(error, StoreUnavailable) and error.may_have_run
        pause = next(self._pauses, None) if away else None
        if pause is None:
            if not self._may_have_run:
                raise error
            pause = AGAIN
        left = self._until - clock.monotonic()
        if pause < left:
            clock.sleep(pause)
            return
        if self._may_have_run:
            clock.sleep(max(0.0, left))
            raise StoreUnavailable(error.step, error.why) from error
        raise error

    def repeat_after(self, name: str, verdict: bytes) -> None:
        """Wait for the next request where the last one was told this, or raise: the call is over.

        What is told the same twice is asked less often from then on.
        """
        pause = AGAIN if verdict == self._verdict else 0.0
        self._verdict = verdict
        left = self._until - clock.monotonic()
        if left <= pause:
            clock.sleep(max(0.0, left))
            raise StoreUnavailable(name, _WHY[verdict], self._may_have_run)
        clock.sleep(pause)


def _agree(name: str, theirs: str, ours: str) -> None:
    if theirs != ours:
        raise StoreDiffers(name, theirs, ours)

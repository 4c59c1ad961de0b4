"""Writes messages back into the store, in a thread, and says which of them need nothing more.

    put --> waiting --an attempt--> stored, or already there ----> settled: to acknowledge
              ^ |                     | dead, or expired --------> settled, and its key is free
              | |                     v
              +-'------ the store is down or full: 1 s; its id is in use: 1, 2, 4 ... 60 s

A message that is not settled is not acknowledged, so its broker keeps it. That it was stored is
marked in the same step; so if a worker dies in between, it is not stored again, and a message that
was cancelled meanwhile does not come back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timezone
from typing import Any

from celery.app.task import Context

from ...core import clock
from ...core.clock import When, after, at
from ...core.errors import AlreadyScheduled, AlreadyTaken, DelayQError, InFlight, StoreError
from ...core.message.body import has_body
from ...core.message.headers import HOLD_HEADER, UNKNOWN_HEADER, Hold, identity_of
from ...core.scheduling.intercept import ONCE, Interceptor, Request
from ...core.scheduling.options import PLAIN
from ...core.scheduling.writing import Ready, write
from ...core.services import Services, mark_revoked
from ...core.store import NewEntry, Outcome, Receipt
from ...core.store.entries import DEAD, OldEntry, restore
from ...core.store.keys import shard_of
from ...core.store.record import UNKNOWN_TAG, Extras, State
from ...core.store.values import Cancelled
from ...core.text import counted, lasting, logger_of
from ...core.threads import OwnThread
from ..consumer import entry_of, never

logger = logger_of(__name__)

FIRST, LONGEST = 60.0, 3600.0  # seconds until the next try; each is twice as long as the one before
AT_A_TIME = 100  # messages that one attempt writes
AGAIN, SELDOM = 1.0, 60.0  # seconds between two attempts: the first, and the longest

_STORED = "task %s (%s): %s; it is back in the store, and comes again in %s"
_DEAD = "task %s (%s): %s; it is dead, as no worker has run it for %s"
_TAKEN = "task %s (%s): dropped, as it went back into the store at an earlier delivery"
_HERE = "task %s (%s): dropped, as the same call waits in the store"
_EXPIRED = "task %s (%s): dropped, as it has expired"
_OTHER = "task %s (%s): %s; left to its broker, as it cannot go back into the store: %s"


@dataclass(eq=False)
class Kept:
    """A message to put back.

    Attributes:
        message: The message.
        task_id: The id of its task.
        name: The name of its task; empty if it cannot be read.
        why: Why no task was run.
        since_ms: When a worker met it first.
        times: How often workers have met it.
        queue: The queue that it came from, if known.
        is_dead: Whether it has come back for too long.
        is_expired: Whether it has expired.
        again: When to try, by the monotonic clock.
        pause: How long the last pause between two attempts was.
    """

    message: Any
    task_id: str
    name: str
    why: str
    since_ms: int
    times: int
    queue: str | None
    is_dead: bool
    is_expired: bool
    again: float = 0.0
    pause: float = 0.0

    @property
    def delay(self) -> float:
        """Seconds until it comes again."""
        return min(LONGEST, FIRST * 2.0 ** min(self.times - 1, 10))

    @property
    def when(self) -> When:
        """When it comes again; a released task not before its time."""
        eta = self.message.headers.get("eta")
        if eta:
            moment = clock.celery_time(eta)
            if (moment - clock.utc_now()).total_seconds() > self.delay:
                return at(moment, timezone.utc)
        return after(self.delay)

    @property
    def request(self) -> Context:
        """What Celery's signals have of its task."""
        return Context(dict(self.message.headers))

    @property
    def hold(self) -> Hold | None:
        return Hold.of(self.message.headers.get(HOLD_HEADER), self.task_id)


class Keeper:
    """Puts the messages of one connection back.

    Args:
        services: The services of the worker's app.
        wake: The thread calls it when messages are settled.
    """

    def __init__(self, services: Services, wake: Callable[[], None]) -> None:
        self._services = services
        self._wake = wake
        self._interceptor = Interceptor(services, never)
        self._changed = threading.Condition()
        self._waiting: list[Kept] = []
        self._settled: list[Kept] = []
        self._is_away = False  # whether the last attempt met no store
        self._not_before = 0.0
        self._over = threading.Event()
        self._thread: OwnThread | None = None

    # In the consumer's thread.

    @property
    def failing(self) -> int:
        """How many messages wait longer than for one attempt; all, while the store is down."""
        with self._changed:
            return sum(1 for kept in self._waiting if kept.pause or self._is_away)

    def put(self, kept: Kept) -> None:
        """Take a message."""
        with self._changed:
            self._waiting.append(kept)
            if self._thread is None:
                self._thread = OwnThread("delayq-unknown", self._run, self._over)
                self._thread.start()
            self._changed.notify_all()

    def wait_settled(self, seconds: float) -> None:
        """Wait until all messages are settled, or their attempt has failed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_away or all(one.pause for one in self._waiting), seconds
            )

    def settled(self) -> list[Kept]:
        """Return each message once that is to be acknowledged."""
        with self._changed:
            found, self._settled = self._settled, []
            return found

    def close(self) -> None:
        """Take and settle nothing more; a write under way may still end."""
        with self._changed:
            self._over.set()
            self._waiting.clear()
            self._settled.clear()
            self._changed.notify_all()

    # In the thread.

    def _run(self) -> None:
        while not self._over.is_set():
            with self._changed:
                self._changed.wait_for(
                    lambda: self._over.is_set() or self._ready(), self._seconds()
                )
                batch = self._ready()
            if batch and not self._over.is_set():
                self._try(batch)
                self._wake()

    def _seconds(self) -> float | None:
        if not self._waiting:
            return None
        next_try = max(self._not_before, min(kept.again for kept in self._waiting))
        return max(0.0, next_try - clock.monotonic())

    def _ready(self) -> list[Kept]:
        """The messages to try now, each id once: the store would refuse the second."""
        now = clock.monotonic()
        if now < self._not_before:
            return []
        ready = {kept.task_id: kept for kept in self._waiting if kept.again <= now}
        return list(ready.values())[:AT_A_TIME]

    def _try(self, batch: Sequence[Kept]) -> None:
        """Try messages, those of a shard together: one that is away holds up no others."""
        shards = self._services.settings.shards
        parts: dict[tuple[int, bool], list[Kept]] = {}
        for kept in batch:
            ends = kept.is_dead or kept.is_expired
            name = kept.hold.key if kept.hold and not ends else kept.task_id
            parts.setdefault((shard_of(name, shards), ends), []).append(kept)
        errors = [self._try_part(part, ends=ends) for (_, ends), part in parts.items()]
        why = next(filter(None, errors), None)
        if why is None:
            self._is_away = False
            return
        self._not_before = clock.monotonic() + AGAIN
        if not self._is_away:
            self._is_away = True
            count = counted(len(batch), "message")
            logger.warning("%s left to the broker, until the store takes them: %s", count, why)

    def _try_part(self, part: list[Kept], *, ends: bool) -> StoreError | None:
        """Try messages; return why the store could not be asked, if so."""
        try:
            for kept, said in self._ended(part) if ends else self._stored(part):
                self._settle(kept, said)
        except StoreError as error:
            self._defer(part, AGAIN)
            return error
        except Exception:
            logger.exception("messages could not be put back into the store")
            self._defer(part)
        return None

    def _stored(self, part: Iterable[Kept]) -> Iterable[tuple[Kept, Receipt | DelayQError]]:
        made, new = list[Kept](), list[NewEntry]()
        for kept in part:
            try:
                new.append(self._entry(kept).new)
                made.append(kept)
            except StoreError:
                raise
            except Exception as error:
                yield kept, DelayQError(f"{error}")
        if made:
            # The entry that may have delivered it gives way: a scanner may not know of it yet.
            answers = write(self._services, new, ONCE, supersede=True, given_out=False)
            yield from zip(made, answers, strict=True)

    def _entry(self, kept: Kept, *, is_dead: bool = False) -> Ready:
        message = kept.message
        identity = identity_of(kept.task_id, message.headers, message.properties)
        copies = self._services.copies
        delivery = copies.delivery(identity, again=True) if identity else None
        options, headers = PLAIN, {}
        if not is_dead:
            options = replace(PLAIN, extras=Extras(tags=(UNKNOWN_TAG,))).holding(kept.hold)
            says = {"since": kept.since_ms, "times": kept.times, "why": kept.why}
            headers = {UNKNOWN_HEADER: says}
        request = Request(kept.when, delivery=delivery, entry_options=options)
        return entry_of(self._interceptor, message, request, queue=kept.queue, headers=headers)

    def _ended(self, part: Iterable[Kept]) -> Iterable[tuple[Kept, Any]]:
        """Let messages end: as a dead letter, or as an expired task; then free their keys."""
        for kept in part:
            answer = self._expire(kept) if kept.is_expired else self._bury(kept)
            if answer is None and kept.hold is not None:
                hold = kept.hold
                until = clock.monotonic() + self._services.settings.timeout
                words = [(hold.id, hold.key, hold.delivery, 0, 0)]
                self._services.entries.hold(words, until)
            yield kept, answer

    def _expire(self, kept: Kept) -> DelayQError | None:
        now_ms = round(clock.utc_now().timestamp() * 1000)
        message = self._entry(kept, is_dead=True).new.record.message(kept.task_id, now_ms)
        gone = Cancelled(kept.task_id, Outcome.DONE, b"", message, "expired")
        is_done = not self._services.has_backend or mark_revoked(self._services.app, gone)
        return None if is_done else DelayQError("its result backend is away")

    def _bury(self, kept: Kept) -> DelayQError | None:
        now_ms = round(clock.utc_now().timestamp() * 1000)
        record = self._entry(kept, is_dead=True).new.record
        old = OldEntry(kept.task_id, now_ms, None, record, DEAD, now_ms, error=kept.why)
        (answer,) = restore(self._services.entries, [old])
        if isinstance(answer, AlreadyScheduled):
            return self._met(kept, answer)
        return answer if isinstance(answer, DelayQError) else None

    def _settle(self, kept: Kept, said: Receipt | DelayQError | None) -> None:
        """Settle a message by what became of it, or try it again."""
        who = kept.task_id, kept.name
        if said is None and kept.is_expired:
            logger.info(_EXPIRED, *who)
        elif said is None:
            age = clock.utc_now().timestamp() - kept.since_ms / 1000
            logger.error(_DEAD, *who, kept.why, lasting(age))
        elif isinstance(said, Receipt):
            logger.warning(_STORED, *who, kept.why, lasting(kept.delay))
        elif isinstance(said, AlreadyTaken):
            logger.info(_TAKEN, *who)
        elif isinstance(said, AlreadyScheduled) and self._met(kept, said) is None:
            logger.info(_HERE, *who)
        else:
            if not kept.pause:
                level = logging.INFO if isinstance(said, InFlight) else logging.ERROR
                logger.log(level, _OTHER, *who, kept.why, said)
            self._defer([kept])
            return
        with self._changed:
            if kept in self._waiting:
                self._waiting.remove(kept)
                self._settled.append(kept)
            self._changed.notify_all()

    def _defer(self, part: Iterable[Kept], most: float = SELDOM) -> None:
        with self._changed:
            for kept in part:
                kept.pause = min(most, max(AGAIN, 2 * kept.pause))
                kept.again = clock.monotonic() + kept.pause
            self._changed.notify_all()

    def _met(self, kept: Kept, refusal: AlreadyScheduled) -> AlreadyScheduled | None:
        """Return ``None`` if the same call waits under its id: then this message is not needed."""
        entry = self._services.entries.find(kept.task_id)
        if entry is None or not has_body(entry.message, kept.message.body):
            return refusal
        # It may be the entry that delivered this message, and leaves once the broker confirms it.
        return InFlight(kept.task_id) if entry.state is State.IN_FLIGHT else None

"""A scanner while a server does not answer: pauses, log lines, shards out of turn.

    the store, the broker --no answer--> Contact: a line, a pause by Backoff --an answer--> a line
    a shard's node ---------no answer--> Away: out of turn, watched by a thread --> in turn again

Pauses are short and jittered, so that a server that is back is found soon; lines about the same
outage become rare.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from .. import clock
from ..errors import StoreUnavailable
from ..store.delivery import ScannerSteps
from ..text import logger_of
from ..threads import OwnThread, random

logger = logger_of(__name__)

LONGEST_BACKOFF = 3.0  # seconds between attempts to reach a Redis or a broker that is down
ELECTION = 1.0  # the same, if another server may take over at any moment
QUIET = 15.0  # seconds between two log lines about the same outage


class Backoff:
    """Doubling pauses with jitter, so that a hundred scanners do not come back at once.

    Args:
        first: The longest first pause, in seconds.
        longest: The longest pause, in seconds.
    """

    def __init__(self, first: float = 0.5, longest: float = LONGEST_BACKOFF) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0
        self._silent_until = 0.0
        self._about: object = None

    def next(self) -> float:
        pause = min(self._longest, self._first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        return pause * random.uniform(0.5, 1.0)

    def is_news(self, now: float, about: object = None) -> bool:
        """Return whether a failure is worth a log line.

        Pauses stay short, so a line for each failure would be too many. Lines about the same
        failure become as rare as if pauses went on doubling.

        Args:
            now: The time, by the monotonic clock.
            about: The kind of failure; a change of kind is always news.
        """
        if now < self._silent_until and about == self._about:
            return False
        self._about = about
        self._silent_until = now + min(QUIET, self._first * 2.0**self._failures / 2)
        return True

    def reset(self) -> None:
        self._failures = 0
        self._silent_until = 0.0


class Contact:
    """The outages of one server, one after the other; used by one thread.

    Args:
        what: The server, and its URL without secrets: ``store redis://red:6379/0``.
        setting: The setting with that URL.
        backoff: Pauses between attempts to reach it.
    """

    def __init__(self, what: str, setting: str, backoff: Backoff | None = None) -> None:
        self.backoff = backoff or Backoff()
        self._what = what
        self._setting = setting
        self._lost_at: float | None = None
        self._is_said = False
        self._was_there = False

    @property
    def is_lost(self) -> bool:
        return self._lost_at is not None

    def lost(self, why: str) -> float:
        """Note that an attempt failed; return how many seconds to wait before the next one."""
        now = clock.monotonic()
        is_news, pause = self.backoff.is_news(now, "lost"), self.backoff.next()
        if self._lost_at is None:
            self._lost_at, self._is_said = now, False
        news = f"the {self._what} of {self._setting}"
        if self._is_said:
            news += f" is still down after {now - self._lost_at:.0f} s"
        else:
            news = f"{'lost' if self._was_there else 'cannot reach'} {news}"
        level = logging.WARNING if is_news else logging.DEBUG
        logger.log(level, "%s (%s); retrying in %.1f s", news, _reason(why), pause)
        self._is_said = self._is_said or is_news
        return pause

    def back(self, overdue: int | None = None) -> None:
        """Note that the server works; if the log has its loss, log how long it was down.

        Args:
            overdue: How many tasks were overdue before it was back, if known.
        """
        self._was_there = True
        if self._lost_at is None:
            return
        seconds, self._lost_at = clock.monotonic() - self._lost_at, None
        waited = "" if overdue is None else f"; {overdue} overdue"
        level = logging.INFO if self._is_said else logging.DEBUG
        logger.log(level, "%s is back after %.0f s%s", self._what, seconds, waited)


def _reason(why: str) -> str:
    """Return an error's text as a part of a sentence."""
    text = why.rstrip(". ")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


class HasTurn(Protocol):
    """A shard as a scanner sees it."""

    steps: ScannerSteps
    up_at: float
    pauses: Backoff


class Away:
    """The shards whose node does not answer; the scanner goes on with the others.

    Looking for a node that is down, or waiting for one that is silent, takes seconds. So a thread
    does that, until the node is back or another one serves its slots. A node can answer, and refuse
    steps: it lacks replicas, or the store is being resharded. So a shard's pauses grow until it
    makes a step.

    Args:
        stopping: Set when the scanner stops.
        interrupt: Ends the scanner's wait.

    Attributes:
        shards: Those that made no step since their node did not answer.
    """

    def __init__(self, stopping: threading.Event, interrupt: Callable[[], None]) -> None:
        self.shards: set[HasTurn] = set()
        self._stopping = stopping
        self._interrupt = interrupt

    def add(self, shards: Sequence[HasTurn]) -> None:
        """Leave out the shards of a node, until it answers."""
        new = [each for each in shards if each.up_at < math.inf]  # one thread watches each
        self.shards.update(new)
        for shard in new:
            shard.up_at = math.inf
        OwnThread("delayq-away", partial(self._watch, new), self._stopping).start()

    def _watch(self, shards: list[HasTurn]) -> None:
        pause = max(shard.pauses.next() for shard in shards)
        while shards and not self._stopping.wait(pause):
            shard = shards[0]
            try:
                shard.steps.counts()
            except StoreUnavailable as error:
                logger.debug("a shard's node is still away: %s", error.why)
                shards.append(shards.pop(0))  # the next one may have another node by now
                pause = shard.pauses.next()
                continue
            except Exception as error:
                logger.debug("the next step will say it: %r", error)
            pause = 0.0
            shards.remove(shard)
            shard.up_at = 0.0
            self._interrupt()

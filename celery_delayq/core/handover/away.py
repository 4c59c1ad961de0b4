"""Shards of a Cluster whose node does not answer; the scanner goes on with the others.

    a step fails --add--> out of turn --a thread reads the shard: an answer--> in turn again

Looking for a node that is down, or waiting for one that is silent, takes seconds. So a thread does
that, until the node is back or another one serves its slots. A node can answer, and refuse steps:
it lacks replicas, or the store is being resharded. So a shard's pauses grow until it makes a step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ..errors import StoreUnavailable
from ..store.delivery import ScannerSteps
from ..text import logger_of
from ..threads import OwnThread
from .backoff import Backoff

logger = logger_of(__name__)


class HasTurn(Protocol):
    """A shard as a scanner sees it."""

    steps: ScannerSteps
    up_at: float
    pauses: Backoff


class Away:
    """Those shards.

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

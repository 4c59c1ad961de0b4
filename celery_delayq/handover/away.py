"""Shards of a Cluster whose node does not answer; the scanner goes on with the others.

    a step fails --add--> out of turn --a thread reads the shard: an answer--> in turn again

Looking for a node that is down, or waiting for one that is silent, takes seconds. So a thread does
that, until the node is back or another one serves its slots.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import StoreUnavailable
from ..logs import logger_of
from ..store.scanner_steps import ScannerSteps
from .backoff import ELECTION, Backoff

logger = logger_of(__name__)


class HasTurn(Protocol):
    """A shard as a scanner sees it."""

    engine: ScannerSteps
    up_at: float


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
        self.shards.update(shards)
        for shard in shards:
            shard.up_at = math.inf
        watch = threading.Thread(target=self._watch, args=([*shards],), daemon=True)
        watch.name = "delayq-away"
        watch.start()

    def _watch(self, shards: list[HasTurn]) -> None:
        pauses = Backoff(longest=ELECTION)
        pause = pauses.next()
        while shards and not self._stopping.wait(pause):
            shard = shards.pop(0)
            try:
                shard.engine.counts()
            except StoreUnavailable as error:
                logger.debug("a shard's node is still away: %s", error.why)
                shards.append(shard)  # the next one may have another node by now
                pause = pauses.next()
                continue
            except Exception as error:
                logger.debug("the next step will say it: %r", error)
            pause = 0.0
            shard.up_at = 0.0
            self._interrupt()

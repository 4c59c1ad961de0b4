"""Claim, publish, ack: the hand-over to anything but a list in the store's own Redis.

At least once. Publish first, ack second: a crash in between publishes twice, the other order
would lose the task. A claim carries a fencing token that the store checks at ack and release,
so what another scanner took over meanwhile is not touched.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Claimed, Engine
    from .link import Handoff

logger = logging.getLogger(__name__)

BATCH = 1000  # entries under one lease: what a crash between publish and ack may repeat
MAX_ATTEMPTS = 8  # refusals before an entry is set aside
LEASE_MARGIN = 0.5  # part of a lease after which nothing more is published under it
LONGEST_WAIT = 300.0  # seconds between two attempts at an entry that was refused


class Relay:
    """Publishes due entries under a lease; used by one scanner."""

    def __init__(self, engine: Engine, handoff: Handoff, *, lease: float) -> None:
        self._engine = engine
        self._handoff = handoff
        self._lease = lease

    def batch(self, stopping: Callable[[], bool]) -> int:
        """Relay one batch; returns how many entries it claimed.

        Raises:
            BrokerDown: nothing more can be published; what was claimed is given back.
        """
        # Probe first: a broker that is away must cost no entry a lease or an attempt.
        self._handoff.prepare()
        # Before the claim is asked for, so that this clock runs out before Redis's does.
        started = time.monotonic()
        claimed, set_aside = self._engine.claim(BATCH)
        for task_id, reason in set_aside:
            logger.error("task %s set aside: %s", task_id, reason)
        until = started + self._lease * LEASE_MARGIN
        self._publish_all(claimed, lambda: stopping() or time.monotonic() > until)
        return len(claimed)

    def _publish_all(self, claimed: list[Claimed], out_of_time: Callable[[], bool]) -> None:
        verdicts: dict[str, list[tuple[Claimed, str]]] = defaultdict(list)
        try:
            for entry, verdict in self._handoff.publish(claimed, out_of_time):
                verdicts[verdict.word].append((entry, verdict.reason))
        finally:
            # Whatever happened: what was sent and is not acked would be sent again.
            self._settle(verdicts)

    def _settle(self, verdicts: dict[str, list[tuple[Claimed, str]]]) -> None:
        sent = [entry for entry, _ in verdicts["sent"]]
        if self._engine.ack(sent) < len(sent):
            logger.warning("a lease ran out before its tasks were acknowledged; some may run twice")
        for verdict in ("unknown", "unsent"):
            for entry, reason in verdicts[verdict]:
                if reason:
                    logger.warning(
                        "task %s: whether it was sent is unknown: %s", entry.task_id, reason
                    )
            self._engine.release(verdict, [entry for entry, _ in verdicts[verdict]])
        for verdict in ("refused", "dead"):
            for entry, reason in verdicts[verdict]:
                self._refuse(entry, verdict, reason)

    def _refuse(self, entry: Claimed, verdict: str, reason: str) -> None:
        if verdict == "dead" or entry.refusals + 1 >= MAX_ATTEMPTS:
            logger.error("task %s set aside: %s", entry.task_id, reason)
            self._engine.release("dead", [entry], reason=reason)
            return
        wait = min(LONGEST_WAIT, 2.0 ** (entry.refusals + 1))
        logger.warning(
            "task %s: attempt %d was refused, next in %.0f s: %s",
            entry.task_id,
            entry.attempts + 1,
            wait,
            reason,
        )
        self._engine.release("refused", [entry], wait=wait)

    def close(self) -> None:
        self._handoff.close()

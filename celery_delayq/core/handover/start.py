"""Logs a scanner's start: one line about its store, and a warning for each risk.

It also counts the overdue tasks when the store, or the broker, is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import StoreError, StoreUnavailable
from ..servers.endpoint import shown
from ..services import Services
from ..store.counts import sum_of, union_of
from ..store.delivery import ScannerSteps
from ..text import logger_of

logger = logger_of(__name__)


class Start:
    """Logs it once.

    Args:
        steps_by_shard: The scanner's steps, of each shard.
        store: The store's URL, without secrets.
        prefix: The prefix of its keys.
        way: How due tasks reach their queues, in words.
    """

    def __init__(
        self, steps_by_shard: Sequence[ScannerSteps], *, store: str, prefix: str, way: str
    ) -> None:
        self._steps_by_shard = steps_by_shard
        self._store = store
        self._prefix = prefix
        self._way = way
        self._is_said = False

    @classmethod
    def of(cls, services: Services, steps_by_shard: Sequence[ScannerSteps]) -> Start:
        """Return the start of an app's scanner."""
        settings = services.settings
        return cls(
            steps_by_shard, store=services.endpoint.url, prefix=settings.prefix, way=_way(services)
        )

    def join(self) -> None:
        """Join the store and log it, unless that is done.

        Raises:
            StoreUnavailable: the store is down; the log line comes when it is back.
            StoreDiffers: this process would use the store in another way than the others.
        """
        if self._is_said:
            return
        self._steps_by_shard[0].meet()
        with suppress(StoreUnavailable):  # of another shard, which the scan will find as well
            self._say()

    def _say(self) -> None:
        for steps in self._steps_by_shard:
            steps.join()
        waiting = self._waiting()
        self._is_said = True
        name = self._steps_by_shard[0].name
        facts = (name, self._store, self._prefix, self._way, waiting)
        logger.info("scanner %s started: store %s, prefix %s, %s; %s", *facts)
        # A proxy may close a connection that asks this; tasks need no answer.
        with suppress(StoreUnavailable):
            nodes = {steps.node: steps for steps in self._steps_by_shard}
            for node, steps in nodes.items():
                where = f"node {shown(*node)}: " if node and len(nodes) > 1 else ""
                for line in steps.risks():
                    logger.warning("%s%s; %s", where, line.found, line.advice)

    def overdue(self) -> int | None:
        """Return how many tasks are overdue; ``None`` without the permission to count them.

        Raises:
            StoreUnavailable: the store is down.
        """
        try:
            return sum_of([steps.counts() for steps in self._steps_by_shard]).overdue
        except StoreUnavailable:
            raise
        except StoreError:
            return None

    def _waiting(self) -> str:
        try:
            counts = sum_of([steps.counts() for steps in self._steps_by_shard])
            pauses = union_of([steps.pauses() for steps in self._steps_by_shard])
        except StoreUnavailable:
            raise
        except StoreError as error:
            return f"waiting tasks unknown: {error}"  # delivery does not need this permission
        dead = f", {counts.dead} dead" if counts.dead else ""
        held = ", ".join(pause.what for pause in pauses if not pause.resumed)
        paused = f"; paused: {held} ({counts.paused} due)" if held else ""
        return f"{counts.scheduled} waiting, {counts.overdue} overdue{dead}{paused}"


def _way(services: Services) -> str:
    if services.store_is_broker:
        return "hands over directly"
    broker = services.broker
    return f"relays to the broker {broker.kind} on {broker.hosts}"

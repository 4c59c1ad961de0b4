"""What a scanner says at its first look: one line on its store, and a warning for each danger.

And how much is overdue when the store, or the broker, is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import StoreError, StoreUnavailable
from ..logs import logger_of
from ..services import Services
from ..store.overview import sum_of, union_of
from ..store.scanner_steps import ScannerSteps

logger = logger_of(__name__)


class Start:
    """Says it once.

    Args:
        engines: The scanner's, one of each shard.
        store: The store's URL, without what is secret.
        prefix: What the names of its keys begin with.
        way: How what is due reaches its queue, in words.
    """

    def __init__(
        self, engines: Sequence[ScannerSteps], *, store: str, prefix: str, way: str
    ) -> None:
        self._engines = engines
        self._store = store
        self._prefix = prefix
        self._way = way
        self._is_said = False

    @classmethod
    def of(cls, services: Services, engines: Sequence[ScannerSteps]) -> Start:
        """What a scanner of an app says."""
        settings = services.settings
        return cls(engines, store=services.endpoint.url, prefix=settings.prefix, way=_way(services))

    def join(self) -> None:
        """Join the store and say it, unless that is done.

        Raises:
            StoreUnavailable: the store is away; this is said when it is back.
            StoreDiffers: this process would use the store in another way than the others.
        """
        if self._is_said:
            return
        for engine in self._engines:
            engine.join()
        waiting = self._waiting()
        self._is_said = True
        name = self._engines[0].name
        facts = (name, self._store, self._prefix, self._way, waiting)
        logger.info("scanner %s started: store %s, prefix %s, %s; %s", *facts)
        # Something between may close a connection that asks this; tasks need no answer.
        with suppress(StoreUnavailable):
            for line in self._engines[0].risks():
                logger.warning("%s; %s", line.found, line.advice)

    def overdue(self) -> int | None:
        """How many tasks are overdue; ``None`` where a right to count them is missing.

        Raises:
            StoreUnavailable: the store is away.
        """
        try:
            return sum_of([engine.counts() for engine in self._engines]).overdue
        except StoreUnavailable:
            raise
        except StoreError:
            return None

    def _waiting(self) -> str:
        try:
            counts = sum_of([engine.counts() for engine in self._engines])
            pauses = union_of([engine.pauses() for engine in self._engines])
        except StoreUnavailable:
            raise
        except StoreError as error:
            return f"what waits is not known: {error}"  # a right that hand-over needs not
        dead = f", {counts.dead} dead" if counts.dead else ""
        held = ", ".join(one.what for one in pauses if not one.resumed)
        paused = f"; paused: {held} ({counts.paused} due)" if held else ""
        return f"{counts.scheduled} waiting, {counts.overdue} overdue{dead}{paused}"


def _way(services: Services) -> str:
    if services.store_is_broker:
        return "hands over directly"
    broker = services.broker
    return f"relays to the broker {broker.kind} on {broker.hosts}"

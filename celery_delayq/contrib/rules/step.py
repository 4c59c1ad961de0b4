"""The step of a worker that writes the runs of rules ahead, in a thread beside its scanner."""

from __future__ import annotations

import math
import random
import threading
from typing import TYPE_CHECKING, Any

from celery import bootsteps

from ...core import clock
from ...core.errors import StoreError
from ...core.logs import logger_of
from ...core.services import HasServices, find
from ...core.store.shard import Shard
from ...core.threads import OwnThread

if TYPE_CHECKING:
    from .beat import Source

logger = logger_of(__name__)

# Seconds between two looks while no rule is due: some less than a connection stays open unused.
REST = 28.0
SPREAD = 1.02  # by up to which factor a rest is longer, so that not all writers see a due rule
NAMING = 120.0  # seconds between two times that it names the rules of its `beat_schedule`
_NO_CRONSIM = "recurring rules need cronsim: pip install 'celery_delayq[rules]'"


class Writer:
    """Writes runs ahead until it is stopped; it looks each half minute, and when a rule is due."""

    def __init__(self, delayq: HasServices) -> None:
        self._services = delayq.services
        self._stopping = threading.Event()
        self._thread = OwnThread("delayq-rules", self._run, self._stopping)
        self._source: Source | None = None
        self._name_at = -math.inf
        self._warned = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(REST / 3)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._look() * random.uniform(1, SPREAD))

    def _look(self) -> float:
        """Look at the rules of each shard; return after how many seconds to look again."""
        rests = [REST]
        for shard in self._services.entries.unasked_shards:
            try:
                rests.append(self._write(shard))
            except StoreError as error:
                logger.warning("rules are not looked at: %s", error)
        has_rules = any(rest < math.inf for rest in rests[1:])
        if self._services.settings.beat or has_rules:
            self._name()
        return max(0.0, min(rests))

    def _write(self, shard: Shard) -> float:
        """Look at the rules of a shard; return the same, or infinity if it has none."""
        now_us, look_ms, names = shard.scripts.call("rules_ahead", limit=1)
        if not names:
            return math.inf if float(look_ms) < 0 else float(look_ms) / 1000 - now_us / 1e6
        if not self._has_cronsim():
            return REST
        from . import writing

        return writing.write(self._services, shard)

    def _name(self) -> None:
        """Name the rules of this process's `beat_schedule`, each two minutes."""
        if clock.monotonic() < self._name_at or not self._has_cronsim():
            return
        try:
            if self._source is None:
                from .beat import Source

                self._source = Source(self._services)
            self._source.name()
            self._name_at = clock.monotonic() + NAMING
        except StoreError as error:
            logger.warning("the rules of beat_schedule are not set: %s", error)

    def _has_cronsim(self) -> bool:
        try:
            from . import timing  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "cronsim":
                raise
            if not self._warned:
                logger.error(_NO_CRONSIM)
            self._warned = True
        return not self._warned


class RulesStep(bootsteps.StartStopStep):
    """Writes runs in a worker that scans."""

    requires = ("celery_delayq.core.integration.bootstep:ScannerStep",)
    label = "DelayQ rules"

    def __init__(self, worker: Any, no_delayq: bool = False, **_: Any) -> None:
        services = find(worker.app)
        self.enabled = services is not None and services.has_store and not no_delayq
        self._writer = Writer(worker.app.delayq) if self.enabled else None

    def start(self, _worker: Any) -> None:
        if self._writer is not None:
            self._writer.start()

    def stop(self, _worker: Any) -> None:
        if self._writer is not None:
            self._writer.stop()

    # A worker that gets SIGQUIT, or shuts down softly, calls this instead.
    terminate = stop

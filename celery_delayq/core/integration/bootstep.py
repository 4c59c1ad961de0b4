"""The scanner inside a worker."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from ..leaves import WORKER, call
from ..services import find
from ..text import logger_of
from . import startup
from .delayq import DelayQ
from .eta import give_eta

logger = logger_of(__name__)

STOP_TIMEOUT = 10.0  # seconds, as long as a publish in progress may take


class ScannerStep(bootsteps.StartStopStep):
    """Runs a scanner in a worker.

    ``DelayQ(app)`` adds it to the app's workers; adding it again, with
    ``app.steps["worker"].add(ScannerStep)``, has no effect. It is a step of the worker rather than
    of its consumer, because the consumer restarts whenever the broker connection is lost.
    """

    requires = ("celery.worker.components:Pool",)
    label = "DelayQ"

    def __init__(self, worker: Any, no_delayq: bool = False, **_: Any) -> None:
        self._scanner: Any = None
        self.enabled = not no_delayq
        with startup.ends_with_a_sentence():
            self._prepare(worker.app)
        if no_delayq:
            logger.info("no scanner in this worker because of --no-delayq: other scanners deliver")

    def _prepare(self, app: Any) -> None:
        # Read the settings here, so that an invalid one keeps the worker from starting.
        self._delayq = DelayQ(app) if find(app) is None else app.delayq
        services = self._delayq.services
        if services.is_off:
            self.enabled = False
            return
        # A worker that does not scan needs no store; a worker inside a test may have none.
        if self.enabled or services.settings.url is not None:
            self.enabled = services.has_store and self.enabled
            if services.has_store:
                services.check()
        if services.settings.capture_eta:
            give_eta()
        call(WORKER, app)  # before the pool forks

    def start(self, _worker: Any) -> None:
        self._scanner = self._delayq.scanner()
        # A worker that the store refuses takes no task.
        startup.start(self._scanner)

    def stop(self, _worker: Any) -> None:
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            scanner.stop(STOP_TIMEOUT)

    # Celery calls this instead of `stop` on SIGQUIT and on a soft shutdown.
    terminate = stop

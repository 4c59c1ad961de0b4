"""The scanner inside a worker."""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from . import contract, control, putoff, signals
from .delayq import DelayQ, scanner_of
from .registry import find

STOP_TIMEOUT = 10.0  # seconds: one publish under way may last as long


class ScannerStep(bootsteps.StartStopStep):
    """Runs a scanner in a worker.

    ``DelayQ(app)`` adds it to the app's workers; adding it once more, as
    ``app.steps["worker"].add(ScannerStep)``, changes nothing. It is a step of the worker and not
    of its consumer, which is stopped and started with every loss of the broker.
    """

    requires = ("celery.worker.components:Pool",)
    label = "DelayQ"

    def __init__(self, worker: Any, no_delayq: bool = False, **_: Any) -> None:
        # Settings are read here, so a wrong one keeps the worker from starting.
        self._services = find(worker.app) or DelayQ(worker.app).services
        # A worker that does not scan needs no store: one inside of a test may have none.
        if not no_delayq or self._services.settings.url is not None:
            self._services.check()
        self._scanner: Any = None
        self.enabled = not no_delayq
        if self._services.settings.capture_eta:
            signals.give_eta()
        contract.check()  # with what only a worker has loaded
        control.wrap_panel()
        # Before the pool forks. A task whose class has an `on_bound` of its own is met here.
        putoff.let_all_put_off(worker.app.tasks.values())

    def start(self, _worker: Any) -> None:
        self._scanner = scanner_of(self._services)
        self._scanner.start()

    def stop(self, _worker: Any) -> None:
        scanner, self._scanner = self._scanner, None
        if scanner is not None:
            scanner.stop(STOP_TIMEOUT)

    # A worker that was told to QUIT, or shuts down softly, calls this instead.
    terminate = stop

"""Metrics for Prometheus; they need the extra ``celery_delayq[metrics]``.

    a scrape --> Collector --> operations/status: gauges of the store, read at that moment
    a step   --> Hooks ------> Totals: counters and histograms of the process that took it
    a worker --> MetricsStep --> an HTTP server with both, if delayq_metrics_port is set

``alerts.yml`` and ``grafana.json`` beside this file are rules and a dashboard to copy. ``names.py``
lists the metrics. Every worker loads this module, so nothing here imports prometheus-client before
it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import bootsteps

from ...core.errors import InvalidSetting
from ...core.integration import startup
from ...core.services import find

if TYPE_CHECKING:
    from .serving import Collector, Serving, watch

__all__ = ["Collector", "watch"]

_MISSING = "None, as prometheus-client is missing: pip install 'celery_delayq[metrics]'"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import serving

    return getattr(serving, name)


class MetricsStep(bootsteps.StartStopStep):
    """Serves metrics in a worker that scans; with ``--no-delayq`` it only counts."""

    requires = ("celery_delayq.core.integration.delayq:ScannerStep",)
    label = "DelayQ metrics"

    def __init__(self, worker: Any, no_delayq: bool = False, **_: Any) -> None:
        self._serving = None
        # Before the pool forks: children count as well.
        with startup.ends_with_a_sentence():
            if find(worker.app) is not None:
                self._serving = beside_scanner(worker.app)
        self.enabled = self._serving is not None and not no_delayq

    def start(self, _worker: Any) -> None:
        if self._serving is not None:
            self._serving.start()

    def stop(self, _worker: Any) -> None:
        if self._serving is not None:
            self._serving.stop()

    # A worker that gets SIGQUIT, or shuts down softly, calls this instead.
    terminate = stop


def beside_scanner(app: Any) -> Serving | None:
    """Return the server of an app's metrics, which counts from now on, if one is configured.

    Raises:
        InvalidSetting: the port is invalid, or prometheus-client is not installed.
    """
    settings = app.delayq.services.settings
    port = settings.metrics_port
    if port is None:
        return None
    try:
        from .serving import Serving
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise InvalidSetting("delayq_metrics_port", port, _MISSING) from None
    return Serving(app.delayq, port, settings.metrics_host)

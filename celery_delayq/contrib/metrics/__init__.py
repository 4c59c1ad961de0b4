"""Metrics for Prometheus; they need the extra ``celery_delayq[metrics]``.

    a scrape --> Collector --> operations/status: gauges of the store, read at that moment
    a step   --> Hooks ------> Totals: counters and histograms of the process that took it
    a worker --> MetricsStep --> an HTTP server with both, if delayq_metrics_port is set

``alerts.yml`` and ``grafana.json`` beside this file are rules and a dashboard to copy. ``names.py``
lists the metrics. Modules are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collector import Collector
    from .serving import Serving
    from .totals import watch

__all__ = ["Collector", "watch"]

_HOMES = {"Collector": ".collector", "watch": ".totals"}


def beside_scanner(app: Any) -> Serving | None:
    """Return the server with which the command ``scan`` serves metrics, if one is configured."""
    from .step import serving_of

    return serving_of(app.delayq)


def __getattr__(name: str) -> Any:
    # A worker loads its step from here even if prometheus-client is not installed.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)

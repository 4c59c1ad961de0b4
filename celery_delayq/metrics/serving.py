"""The HTTP server of a scanner's process, which is prometheus-client's own."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

from ..errors import InvalidSetting
from ..integration.delayq import DelayQ
from ..logs import logger_of
from .collector import Collector
from .totals import watch

logger = logger_of(__name__)

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # a folder in which processes count together


class Serving:
    """Counts what this process does, from now on; once started, serves that and the store's gauges.

    It serves all that the process has in prometheus-client's default registry; or, where
    ``PROMETHEUS_MULTIPROC_DIR`` is set, all that is counted in that folder by any process.

    Raises:
        InvalidSetting: that folder is none.
    """

    def __init__(self, delayq: DelayQ, port: int, host: str) -> None:
        self._delayq = delayq
        self._port = port
        self._host = host
        self._collector = Collector(delayq)
        self._registry: CollectorRegistry = REGISTRY
        self._server: tuple[WSGIServer, Thread] | None = None
        if SHARED in os.environ:
            if not Path(os.environ[SHARED]).is_dir():
                raise InvalidSetting(SHARED, os.environ[SHARED], "the path of a folder")
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        watch(delayq)

    def start(self) -> None:
        """Serve, in a thread; where that cannot be, because the port is taken, say so."""
        try:
            self._registry.register(self._collector)
        except ValueError:
            logger.debug("the app has registered a collector of its own")
        try:
            self._server = start_http_server(self._port, self._host, self._registry)
        except OSError as error:
            logger.warning(
                "metrics are not served on %s, port %d: %s", self._host, self._port, error
            )
            return
        logger.info("metrics are served on http://%s:%d/metrics", self._host, self._port)

    def stop(self) -> None:
        """End the server, if there is one."""
        served, self._server = self._server, None
        if served is not None:
            server, thread = served
            server.shutdown()
            server.server_close()
            thread.join()

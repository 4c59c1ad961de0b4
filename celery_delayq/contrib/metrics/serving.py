"""Serves metrics from a scanner's process, with prometheus-client's HTTP server."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

from ...core.errors import InvalidSetting
from ...core.services import HasServices
from ...core.text import logger_of
from ...core.threads import OwnThread
from .collector import Collector
from .totals import watch

logger = logger_of(__name__)

AGAIN = 5.0  # most seconds between two attempts to get a port that is in use
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # a folder in which processes count together


class Serving:
    """Counts this process's steps from now on; once started, serves them and the store's gauges.

    If another process has the port, it tries again with each heartbeat, and takes the port over
    when that process has ended.

    It serves prometheus-client's default registry. If ``PROMETHEUS_MULTIPROC_DIR`` is set, it
    serves the counts of all processes that use this folder.

    Raises:
        InvalidSetting: ``PROMETHEUS_MULTIPROC_DIR`` is not a folder.
    """

    def __init__(self, delayq: HasServices, port: int, host: str) -> None:
        self._delayq = delayq
        self._port = port
        self._host = host
        self._collector = Collector(delayq)
        self._registry: CollectorRegistry = REGISTRY
        self._server: tuple[WSGIServer, Thread] | None = None
        self._again = min(AGAIN, delayq.services.settings.safety_interval)
        self._is_over = Event()
        self._trying = OwnThread("delayq-metrics", self._try_on, self._is_over)
        if SHARED in os.environ:
            if not Path(os.environ[SHARED]).is_dir():
                raise InvalidSetting(SHARED, os.environ[SHARED], "the path of a folder")
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        watch(delayq)
        _MADE.add(self)

    def start(self) -> None:
        """Serve, in a thread; if the port is in use, log it and keep trying in a thread."""
        try:
            self._registry.register(self._collector)
        except ValueError:
            logger.debug("the app has registered a collector of its own")
        try:
            self._serve()
        except OSError as error:
            facts = self._host, self._port, error, self._again
            logger.warning(
                "metrics are not served on %s, port %d: %s; trying again every %.1f s", *facts
            )
            self._trying.start()

    def _try_on(self) -> None:
        while self._server is None and not self._is_over.wait(self._again):
            with suppress(OSError):
                self._serve()

    def _serve(self) -> None:
        self._server = start_http_server(self._port, self._host, self._registry)
        logger.info("metrics are served on http://%s:%d/metrics", self._host, self._port)

    def stop(self) -> None:
        """Stop the server, or the attempts to start it."""
        self._is_over.set()
        if self._trying.is_alive():
            self._trying.join()
        served, self._server = self._server, None
        if served is not None:
            server, thread = served
            server.shutdown()
            server.server_close()
            thread.join()

    def let_go(self) -> None:
        """In a forked child: close its copy of the socket, which would keep the port."""
        if self._server is not None:
            self._server[0].socket.close()


_MADE: weakref.WeakSet[Serving] = weakref.WeakSet()


def _let_go_all() -> None:
    for serving in list(_MADE):
        serving.let_go()


# A child process may outlive a worker that was killed.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_all)

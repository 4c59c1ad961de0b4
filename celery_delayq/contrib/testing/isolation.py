"""One app, by itself for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from celery import Celery

from ...errors import CannotIsolate
from ...libraries import need
from ...services import services_of
from . import stores
from .application import MEMORY, broker_settings, configured, empty_memory, unconnected, untraced
from .backend import URL as IN_MEMORY
from .leans import LEANS_ON
from .moved import Clock, MovedScripts
from .tested import IsolatedDelayQ

RESULTS = "cache+memory://"

_isolated: set[int] = set()
_sent: dict[str, set[str]] = {}  # by URL, which scripts a Redis has been sent


@contextmanager
def isolated(
    app: Celery[Any],
    *,
    broker: str | None = MEMORY,
    backend: str | None = RESULTS,
    redis: str | None = None,
    **settings: Any,
) -> Iterator[IsolatedDelayQ]:
    """Give an app a store, a broker and a result backend of its own, and a clock that moves.

    Afterwards all is as it was before, also where the test failed: settings, connections, results.

    Args:
        app: An app that has a ``DelayQ``.
        broker: The URL of its broker, by default one in memory; ``None``: it keeps its own.
        backend: That of its result backend, by default one in memory; ``None``: it keeps its own.
        redis: The URL of a Redis for the store: only keys of a prefix of its own are written, and
            deleted. By default what the environment's ``DELAYQ_TEST_REDIS`` names, or else
            fakeredis, inside this process.
        **settings: Settings of the app that are to be others meanwhile. Unless they say so, no
            call waits for replicas, and the store's Redis is told no login but its URL's.

    Raises:
        NoDelayQ: the app has none.
        LibraryChanged: Celery or kombu lack something that this leans on.
        CannotIsolate: it is isolated already; or no *redis* is named, and fakeredis is missing.
        StoreError: Redis cannot be reached.
    """
    need(LEANS_ON)
    services = services_of(app)
    if id(app) in _isolated:
        raise CannotIsolate(f"the app {app.main!r} is isolated already; one test at a time")
    prefix = stores.new_prefix()
    settings = {
        "delayq_wait_replicas": None,  # there are none
        "delayq_transport_options": None,  # they are for another Redis
        **settings,
        **({} if broker is None else broker_settings(broker, prefix)),
        **({} if backend is None else {"result_backend": _quick(backend)}),
        "delayq_url": stores.url_of(redis),
        "delayq_prefix": prefix,
    }
    with ExitStack() as stack:
        _isolated.add(id(app))
        stack.callback(_isolated.discard, id(app))
        # Last of all, when the app has its own settings again.
        stack.callback(services.start_anew)
        for aside in (configured(app, settings), unconnected(app), empty_memory(), untraced(app)):
            stack.enter_context(aside)
        sent = _sent.setdefault(settings["delayq_url"], set())
        services.start_anew(partial(MovedScripts, sent=sent))
        stack.callback(lambda: stores.delete_all(services.scripts))
        clock = Clock(app)
        stack.enter_context(clock.shown())
        delayq = IsolatedDelayQ(app, clock)
        stack.callback(delayq.close)
        yield delayq


def _quick(backend: str) -> str:
    return IN_MEMORY if backend == RESULTS else backend

"""Isolates an app for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from celery import Celery

from ...core.errors import CannotIsolate
from ...core.libraries import need
from ...core.services import services_of
from . import stores
from .application import MEMORY, broker_settings, configured, empty_memory, unconnected, untraced
from .backend import URL as IN_MEMORY
from .leans import LEANS_ON
from .moved import Clock, MovedScripts
from .tested import IsolatedDelayQ

RESULTS = "cache+memory://"

_isolated: set[int] = set()
_sent: dict[str, set[str]] = {}  # by URL, the scripts that a Redis has


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

    Settings, connections and results are restored afterwards, even if the test fails.

    Args:
        app: An app with a ``DelayQ``.
        broker: The URL of its broker, by default one in memory; ``None`` keeps the app's own.
        backend: The URL of its result backend, by default one in memory; ``None`` keeps its own.
        redis: The URL of a Redis for the store; it writes and deletes only keys with a prefix of
            its own. The default is the environment's ``DELAYQ_TEST_REDIS``, or else fakeredis in
            this process.
        **settings: Other settings for the app meanwhile. Unless you set them here, no call waits
            for replicas, and the store's login is the one in its URL.

    Raises:
        NoDelayQ: the app has none.
        LibraryChanged: Celery or kombu lacks something that the isolation relies on.
        CannotIsolate: the app is isolated already, or neither *redis* nor fakeredis is there.
        StoreError: Redis cannot be reached.
    """
    need(LEANS_ON)
    services = services_of(app)
    if id(app) in _isolated:
        raise CannotIsolate(f"the app {app.main!r} is isolated already; one test at a time")
    prefix = stores.new_prefix()
    settings = {
        "delayq_wait_replicas": None,  # the test's Redis has none
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
        # Runs last, when the app has its own settings again.
        stack.callback(services.start_anew)
        for aside in (configured(app, settings), unconnected(app), empty_memory(), untraced(app)):
            stack.enter_context(aside)
        sent = _sent.setdefault(settings["delayq_url"], set())
        services.start_anew(partial(MovedScripts, sent=sent))
        stack.callback(lambda: stores.delete_all(services.entries.key_sets))
        clock = Clock(app)
        stack.enter_context(clock.shown())
        delayq = IsolatedDelayQ(app, clock)
        stack.callback(delayq.close)
        yield delayq


def _quick(backend: str) -> str:
    return IN_MEMORY if backend == RESULTS else backend

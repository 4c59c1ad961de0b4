"""Isolates an app for the length of a test: a store, a broker, results and a clock of its own.

    isolated --> the store: fakeredis in this process, or a Redis with a prefix for this test
             --> the broker and the results: in memory, polled more often
             --> the app: other settings, without its open connections and caches

fakeredis runs with its TCP server on loopback, so this package talks to it as it does in
production. Each process starts one on first use. Each test deletes its keys at the end.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any

from celery import Celery
from celery.backends import cache
from celery.backends.cache import CacheBackend
from celery.utils.functional import LRUCache
from kombu import pools
from kombu.transport import memory

from ...core.errors import CannotIsolate
from ...core.libraries import need
from ...core.servers.connection import packed
from ...core.servers.pool import PerProcess
from ...core.services import services_of
from ...core.store.keys import KEYS
from ...core.store.scripts import Scripts
from .clock import Clock, MovedScripts, clock_key, emptied, kept, put, without_variables
from .tested import IsolatedDelayQ

URL = f"{__name__}:QuickBackend+memory://"

#: A broker in this process; kombu warns if a URL names no host.
MEMORY = "memory://localhost//"
RESULTS = "cache+memory://"

#: Names a real Redis, if neither the caller nor pytest's options do.
VARIABLE = "DELAYQ_TEST_REDIS"
INTERVAL = 0.01  # seconds between two polls of a result
_POLLED = 0.01  # seconds between two looks at a queue in memory; kombu's own is one second

# Celery reads these before its settings.
_VARIABLES = {
    "broker_url": ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"),
    "result_backend": ("CELERY_RESULT_BACKEND",),
}
_NEEDS = (
    "an isolated store needs fakeredis with Lua: pip install 'celery_delayq[testing]'; or name a "
    f"Redis by the environment's {VARIABLE}, pytest's --delayq-redis, or redis="
)

# Undocumented names of Celery and kombu. They are checked when an app is isolated, as no process in
# production needs them.
LEANS_ON = (
    "celery._state:_set_task_join_will_block",
    "celery._state:_tls",
    "celery._state:default_app",
    "celery.app.amqp:AMQP._producer_pool",
    "celery.app.amqp:Queues._consume_from",
    "celery.app.base:Celery._local",
    "celery.app.base:Celery._pool",
    "celery.app.log:Logging._setup",
    "celery.app.task:Task.__trace__",
    "celery.backends.cache:_DUMMY_CLIENT_CACHE",
    "celery.utils.collections:ConfigurationView._to_keys",
    "celery.utils.collections:ConfigurationView.changes",
    "celery.worker.request:Request.execute",
    "celery.worker.request:Request.maybe_expire",
    "kombu.transport.memory:Channel.events",
    "kombu.transport.memory:Channel.queues",
    "kombu.transport.memory:Transport.global_state",
    "logging:_warnings_showwarning",
)
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
    prefix = _new_prefix()
    settings = {
        "delayq_wait_replicas": None,  # the test's Redis has none
        "delayq_transport_options": None,  # they are for another Redis
        **settings,
        **({} if broker is None else _broker_settings(broker, prefix)),
        **({} if backend is None else {"result_backend": _quick(backend)}),
        "delayq_url": _url_of(redis),
        "delayq_prefix": prefix,
    }
    with ExitStack() as stack:
        _isolated.add(id(app))
        stack.callback(_isolated.discard, id(app))
        # Runs last, when the app has its own settings again.
        stack.callback(services.start_anew)
        for aside in (
            configured(app, settings),
            _unconnected(app),
            _empty_memory(),
            _untraced(app),
        ):
            stack.enter_context(aside)
        sent = _sent.setdefault(settings["delayq_url"], set())
        services.start_anew(partial(MovedScripts, sent=sent))
        stack.callback(lambda: delete_all(services.entries.key_sets))
        clock = Clock(app)
        stack.enter_context(clock.shown())
        delayq = IsolatedDelayQ(app, clock)
        stack.callback(delayq.close)
        yield delayq


def _quick(backend: str) -> str:
    return URL if backend == RESULTS else backend


class QuickBackend(CacheBackend):
    """Polls often, so that a test with a worker does not wait half a second for a result."""

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = INTERVAL,
        *rest: Any,
        **given: Any,
    ) -> Any:
        return super().wait_for(task_id, timeout, min(interval, INTERVAL), *rest, **given)

    def get_many(
        self,
        task_ids: Any,
        timeout: float | None = None,
        interval: float | None = None,
        *rest: Any,
        **given: Any,
    ) -> Any:
        return super().get_many(
            task_ids, timeout, min(interval or INTERVAL, INTERVAL), *rest, **given
        )


def _url_of(redis: str | None) -> str:
    """Return the URL of the Redis for a test.

    Args:
        redis: A real one's; by default the one that the environment names, or else fakeredis.

    Raises:
        CannotIsolate: fakeredis is missing.
    """
    return redis or os.environ.get(VARIABLE) or _served.get()


def _new_prefix() -> str:
    """Return a prefix that no other test has, in any process."""
    return f"delayq-test-{os.urandom(6).hex()}"


def delete_all(key_sets: Sequence[Scripts]) -> None:
    """Delete the keys of these sets, each by its name, and no others."""
    for scripts in key_sets:
        names = [*(scripts.keys[name] for name in KEYS), clock_key(scripts)]
        scripts.connection.execute("delete", packed(["UNLINK", *names]))


def _serve() -> str:
    try:
        import_module("lupa")  # fakeredis runs scripts with it
        from fakeredis import TcpFakeServer
    except ImportError as error:
        raise CannotIsolate(_NEEDS) from error
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    # A forgotten connection must not keep the process from ending.
    server.daemon_threads = True
    server.block_on_close = False
    Thread(target=server.serve_forever, args=(0.05,), name="delayq-test-redis", daemon=True).start()
    atexit.register(_end, server, os.getpid())
    return f"redis://127.0.0.1:{server.server_address[1]}/0"


def _end(server: Any, pid: int) -> None:
    if os.getpid() == pid:
        server.shutdown()
        server.server_close()


_served = PerProcess(_serve)  # a forked child has the server's sockets only


def _broker_settings(url: str, name: str) -> dict[str, Any]:
    """Return the settings of a broker in place of the app's.

    Args:
        url: The broker's URL.
        name: A unique name, so that kombu keeps a pool for this broker alone.
    """
    options = {"polling_interval": _POLLED} if url.startswith("memory:") else {}
    return {
        "broker_url": url,
        "broker_read_url": None,
        "broker_write_url": None,
        "broker_transport": None,
        "broker_use_ssl": None,
        "broker_transport_options": {**options, "client_properties": {"isolated": name}},
    }


@contextmanager
def configured(app: Celery, settings: dict[str, Any]) -> Iterator[None]:
    """Give an app these settings for a while; all others stay as they are."""
    # The first read replaces a pending configuration by another object.
    app.conf.get("broker_url")
    conf = app.conf
    names = [name for setting in settings for name in _VARIABLES.get(setting, ())]
    with without_variables(names), kept(conf.changes):
        for name, value in settings.items():
            # It may exist by an older name, or by one with a namespace, which takes precedence: in
            # Celery 5.4 even if that changes nothing.
            first, *others = conf._to_keys(name)
            for alias in others:
                conf.changes.pop(alias, None)
            conf.changes.update({first: value, name: value})
        yield


@contextmanager
def _unconnected(app: Celery) -> Iterator[None]:
    """Set aside an app's pools and backends; close those that it opens meanwhile."""
    with ExitStack() as stack:
        if "amqp" not in vars(app):
            stack.callback(vars(app).pop, "amqp", None)
        producers = vars(app.amqp).get("_producer_pool")
        own = {"_pool": None, "_local": threading.local(), "_backend_cache": None}
        for name, value in own.items():
            stack.enter_context(put(vars(app), name, value))
        stack.enter_context(put(vars(app.amqp), "_producer_pool", None))
        stack.enter_context(_same_queues(app))
        stack.callback(_close, app, producers)
        yield


@contextmanager
def _same_queues(app: Celery) -> Iterator[None]:
    queues = app.amqp.queues
    consume_from = queues._consume_from
    with kept(queues):
        try:
            yield
        finally:
            queues._consume_from = consume_from


def _close(app: Celery, producers: Any) -> None:
    mine = app.amqp._producer_pool
    if mine is not None and mine is not producers:
        _forget(pools.producers, mine)
    if app._pool is not None:
        _forget(pools.connections, app._pool)


def _forget(group: Any, pool: Any) -> None:
    pool.force_close_all(close_pool=True)
    # As a dict: its keys are hashes already, and the group would hash them again.
    for key in [key for key, its in dict.items(group) if its is pool]:
        dict.__delitem__(group, key)


@contextmanager
def _empty_memory() -> Iterator[None]:
    """Set aside this process's queues and results in memory."""
    state = memory.Transport.global_state
    mappings = (state.exchanges, state.bindings, state.queue_index)
    results = LRUCache(limit=cache._DUMMY_CLIENT_CACHE.limit)
    with (
        emptied(memory.Channel.queues, memory.Channel.events, *mappings),
        put(vars(cache), "_DUMMY_CLIENT_CACHE", results),
    ):
        yield


@contextmanager
def _untraced(app: Celery) -> Iterator[None]:
    """Let Celery build the tasks' tracers anew, as each keeps its backend."""
    had = {task: task.__trace__ for task in app._tasks.values()}
    for task in had:
        task.__trace__ = None
    try:
        yield
    finally:
        for task in app._tasks.values():
            task.__trace__ = had.get(task)

"""Gives an app other settings for the length of a test, without its open connections and caches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from celery import Celery
from celery.backends import cache
from celery.utils.functional import LRUCache
from kombu import pools
from kombu.transport import memory

from .aside import emptied, kept, put, without_variables

_POLLED = 0.01  # seconds between two looks at a queue in memory; kombu's own is one second

# Celery reads these before its settings.
_VARIABLES = {
    "broker_url": ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"),
    "result_backend": ("CELERY_RESULT_BACKEND",),
}


#: A broker in this process; kombu warns if a URL names no host.
MEMORY = "memory://localhost//"


def broker_settings(url: str, name: str) -> dict[str, Any]:
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
def unconnected(app: Celery) -> Iterator[None]:
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
def empty_memory() -> Iterator[None]:
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
def untraced(app: Celery) -> Iterator[None]:
    """Let Celery build the tasks' tracers anew, as each keeps its backend."""
    had = {task: task.__trace__ for task in app._tasks.values()}
    for task in had:
        task.__trace__ = None
    try:
        yield
    finally:
        for task in app._tasks.values():
            task.__trace__ = had.get(task)

"""An app for the length of a test: other settings, and nothing of what it has open or cached."""

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


#: A broker in this process; kombu warns where a URL names no host.
MEMORY = "memory://localhost//"


def broker_settings(url: str, name: str) -> dict[str, Any]:
    """The settings of a broker that is another than the app's.

    Args:
        url: Where it is.
        name: What no other broker has; kombu keeps a pool for each that differs from all others.
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
    """Give an app these settings for a while; every other one stays as it is."""
    # What is read first makes a configuration that was pending a real one, another object.
    app.conf.get("broker_url")
    conf = app.conf
    names = [name for setting in settings for name in _VARIABLES.get(setting, ())]
    with without_variables(names), kept(conf.changes):
        for name, value in settings.items():
            # It may be there under an older name, or with a namespace's, which goes before: in
            # Celery 5.4 also where that is no change.
            first, *others = conf._to_keys(name)
            for alias in others:
                conf.changes.pop(alias, None)
            conf.changes.update({first: value, name: value})
        yield


@contextmanager
def unconnected(app: Celery) -> Iterator[None]:
    """Set aside what an app has open: its pools and backends; close what it opens meanwhile."""
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
    # As a dict: its keys are hashes already, and the group would hash them once more.
    for key in [key for key, its in dict.items(group) if its is pool]:
        dict.__delitem__(group, key)


@contextmanager
def empty_memory() -> Iterator[None]:
    """Set aside what this process has in the queues and results that are in memory."""
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
    """Let tasks be traced anew, as what traces one keeps its backend."""
    had = {task: task.__trace__ for task in app._tasks.values()}
    for task in had:
        task.__trace__ = None
    try:
        yield
    finally:
        for task in app._tasks.values():
            task.__trace__ = had.get(task)

"""Runs Celery's own worker for tests in a thread of the test's process, without a trace."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from celery import Celery, _state, signals

from ...core import clock
from .aside import kept, put

# The variables that a worker sets for processes that it might start.
_VARIABLES = (
    "CELERY_LOG_LEVEL",
    "CELERY_LOG_FILE",
    "_MP_FORK_LOGLEVEL_",
    "_MP_FORK_LOGFILE_",
    "_MP_FORK_LOGFORMAT_",
)
_ENDS = 30.0  # seconds for a worker to end, even with a task under way and on a slow machine
_POLLED = 0.01  # seconds between two polls of the queues, and of the request to stop


@contextmanager
def running_worker(app: Celery, **options: Any) -> Iterator[Any]:
    """Run a worker until the block ends; see ``IsolatedDelayQ.worker``."""
    from celery.contrib.testing.worker import start_worker

    given = {"perform_ping_check": False, "shutdown_timeout": _ENDS, "loglevel": "WARNING"}
    given.update(options)
    with _traceless(app), start_worker(app, **given) as worker:
        _hurry(worker)
        yield worker


@contextmanager
def _traceless(app: Celery) -> Iterator[None]:
    """Restore what such a worker changes: logging, the current app, the list of revoked ids."""
    from celery.worker import state

    with ExitStack() as stack:
        stack.callback(_state._set_task_join_will_block, _state.task_join_will_block())
        stack.enter_context(put(vars(_state), "default_app", _state.default_app))
        stack.callback(setattr, _state._tls, "current_app", _state._tls.current_app)
        stack.enter_context(kept(state.revoked_stamps))
        stack.callback(_restore_revoked, state.revoked, set(state.revoked))
        stack.enter_context(_own_logging(app))
        yield


@contextmanager
def _own_logging(app: Celery) -> Iterator[None]:
    """Keep Celery from setting up logging, as pytest does."""
    kind = type(app.log)
    captures = logging._warnings_showwarning is not None  # type: ignore[attr-defined]
    with ExitStack() as stack:
        for name in _VARIABLES:
            stack.callback(_set_variable, name, os.environ.get(name))
        stack.callback(logging.captureWarnings, captures)
        stack.callback(setattr, kind, "_setup", kind._setup)
        signals.setup_logging.connect(_leave_as_it_is, weak=False)
        stack.callback(signals.setup_logging.disconnect, _leave_as_it_is)
        yield


def _leave_as_it_is(**_: Any) -> None:
    """Do nothing: if ``setup_logging`` has a receiver, Celery does not set up logging."""


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _restore_revoked(revoked: Any, before: set[str]) -> None:
    for task_id in set(revoked) - before:
        revoked.discard(task_id)


def _hurry(worker: Any) -> None:
    """Let it notice messages, and the request to stop, soon, even if time stands still.

    By default it waits for two seconds by the monotonic clock, which freezegun stops.
    """
    connection = worker.consumer.connection
    drain = connection.drain_events

    def drained(timeout: float | None = None, **given: Any) -> Any:
        try:
            return drain(timeout=0, **given)
        except TimeoutError:
            clock.sleep(_POLLED if timeout is None else min(timeout, _POLLED))
            raise

    connection.drain_events = drained

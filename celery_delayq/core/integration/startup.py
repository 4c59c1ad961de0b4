"""Startup: a process that cannot start logs the reason in one sentence and exits with status 1.

A captured ``eta`` is restored when the task runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from celery.app.task import Task
from celery.signals import beat_init, task_prerun

from .. import clock
from ..clock import from_ms
from ..errors import DelayQError, StoreDiffers, StoreError
from ..message.headers import DUE_HEADER
from ..services import Services, find
from ..text import logger_of

if TYPE_CHECKING:
    from ..handover.scanner import Scanner

logger = logger_of(__name__)

FAILURE = 1  # exit status
FIRST_LOOK = 1.0  # seconds that a start waits for the store; after that it goes on without it


def give_eta() -> None:
    """Give running tasks that waited in the store the ``eta`` that Celery would have set."""
    task_prerun.connect(_give_eta, dispatch_uid=__name__)


def _give_eta(task: Task, **_: Any) -> None:
    # It cannot be in the message, or the worker that receives it would wait for it again.
    request = task.request
    due_ms = request.get(DUE_HEADER)
    if due_ms is not None and request.eta is None:
        request.eta = from_ms(due_ms).isoformat()


@contextmanager
def ends_with_a_sentence(*, is_said: bool = False) -> Iterator[None]:
    """On an error of this package, end the Celery command; outside of a command, raise it.

    The sentence goes to the log, as a background worker has no terminal. With *is_said*, it has
    already been logged.
    """
    try:
        yield
    except DelayQError as error:
        if click.get_current_context(silent=True) is None:
            raise  # a program that runs a worker can catch it
        if not is_said:
            logger.critical("%s", error)
        raise SystemExit(FAILURE) from None


def start(scanner: Scanner) -> None:
    """Start a scanner; if the store refuses it, end the command before it does anything."""
    scanner.start()
    with ends_with_a_sentence(is_said=True):
        try:
            scanner.wait_for_first_scan(FIRST_LOOK)
        except StoreDiffers:
            scanner.stop()
            raise


def listen() -> None:
    """Make beat check the settings when it starts, as it may schedule the tasks that it sends."""
    beat_init.connect(_check, dispatch_uid=__name__)


def _check(sender: Any, **_: Any) -> None:
    services, command = find(sender.app), click.get_current_context(silent=True)
    # Beat inside a worker: the worker has checked them, and may need no store.
    if services is not None and command is not None and command.info_name == "beat":
        with ends_with_a_sentence():
            if services.has_store:
                services.check()
                _agree(services)


def _agree(services: Services) -> None:
    try:
        services.entries.join(clock.monotonic() + FIRST_LOOK)
    except StoreDiffers:
        raise
    except StoreError as error:
        # The store may be back by the next call.
        logger.warning("%s (the %s of %s)", error, *services.named_store)

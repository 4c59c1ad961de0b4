"""A process that cannot begin says why in one sentence, and ends with status 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from celery.signals import beat_init

from .. import clock
from ..errors import DelayQError, StoreDiffers, StoreError
from ..handover.scanner import Scanner
from ..logs import logger_of
from ..services import Services, find

logger = logger_of(__name__)

FAILURE = 1  # exit status
FIRST_LOOK = 1.0  # seconds that a start waits for the store; one that is away holds up nothing


@contextmanager
def ends_with_a_sentence(*, is_said: bool = False) -> Iterator[None]:
    """End a command of Celery's where an error of this package is raised; elsewhere, raise it.

    With *is_said*, the log has its sentence already. It is the log that has it, and not the
    terminal, as a worker in the background has no terminal.
    """
    try:
        yield
    except DelayQError as error:
        if click.get_current_context(silent=True) is None:
            raise  # whoever runs a worker inside of a program can catch it
        if not is_said:
            logger.critical("%s", error)
        raise SystemExit(FAILURE) from None


def start(scanner: Scanner) -> None:
    """Start a scanner; one that its store refuses ends the command, before it does anything."""
    scanner.start()
    with ends_with_a_sentence(is_said=True):
        try:
            scanner.wait_for_first_scan(FIRST_LOOK)
        except StoreDiffers:
            scanner.stop()
            raise


def listen() -> None:
    """Let beat look at the settings before it begins: it may schedule what it sends."""
    beat_init.connect(_check, dispatch_uid=__name__)


def _check(sender: Any, **_: Any) -> None:
    services, command = find(sender.app), click.get_current_context(silent=True)
    # Inside of a worker, that one has looked at them; it needs no store where it does not scan.
    if services is not None and command is not None and command.info_name == "beat":
        with ends_with_a_sentence():
            services.check()
            _agree(services)


def _agree(services: Services) -> None:
    try:
        services.entries.join(clock.monotonic() + FIRST_LOOK)
    except StoreDiffers:
        raise
    except StoreError as error:
        # A later call may find the store well.
        logger.warning("%s (the %s of %s)", error, *services.named_store)

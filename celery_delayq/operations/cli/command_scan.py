"""The command that runs a scanner without a worker: ``scan``."""

from __future__ import annotations

import signal
from typing import Any

import click

from ...core.integration import startup
from ...core.leaves import SCAN, call
from .common import ErrorSentences, delayq_of, examples
from .looks import CeleryCommand, CeleryOption

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "FATAL")


@click.command(cls=CeleryCommand, epilog=examples("scan --loglevel INFO"))
@click.option(
    "-l", "--loglevel", type=click.Choice(LEVELS, case_sensitive=False), default="INFO",
    show_default=True,
    cls=CeleryOption, help_group="Scanner", help="Logging level.",
)  # fmt: skip
@click.pass_context
def scan(ctx: click.Context, /, loglevel: str, **_: Any) -> None:
    """Run one scanner, without a worker, until you stop it."""
    ctx.obj.app.log.setup(loglevel=loglevel)
    with ErrorSentences():
        delayq_of(ctx, heard=True).services.check()
        app = ctx.obj.app
        scanner = app.delayq.scanner()
        beside = [service for service in call(SCAN, app) if service is not None]
    # Block signals in all threads and wait for one: a handler could interrupt any statement.
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    startup.start(scanner)
    for service in beside:
        service.start()
    signal.sigwait(signals)
    for service in beside:
        service.stop()
    scanner.stop()

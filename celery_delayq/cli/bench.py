"""The command that measures the app's own Redis: ``bench``."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption

from ..bench import run as measuring
from ..bench.report import rows, sentences
from .common import Said, aligned, delayq_of, json_option


@click.command(cls=CeleryCommand)
@click.option(
    "--tasks", type=click.IntRange(1000, 1_000_000), default=20_000, show_default=True,
    cls=CeleryOption, help_group="Measuring",
    help="How many tasks wait at a time; each takes some 500 bytes of Redis's memory.",
)  # fmt: skip
@json_option
@click.pass_context
def bench(ctx: click.Context, /, tasks: int, as_json: bool, **_: Any) -> None:
    """Measure what the store's Redis takes, and what limits it.

    For some seconds Redis is as busy as one process can make it, and others feel that. It works
    on keys of its own, {PREFIX:bench-...}, where PREFIX is delayq_prefix. They are removed at the
    end, also after Ctrl-C or an error. If this process is killed, they go by themselves within ten
    minutes, where Redis lets it set their time to live. To see what is left:

    redis-cli --scan --pattern '{delayq:bench-*'
    """
    services = delayq_of(ctx).services
    try:
        with Said(), _stopped_by_signals() as stop, _progress(tasks) as advance:
            figures = measuring.run(services, tasks, lambda done: (stop(), advance(done)))
    except _Stopped as stopped:
        ctx.obj.error(f"Stopped by {stopped.signal.name}; no key is left behind.")
        ctx.exit(128 + stopped.signal)
    if as_json:
        ctx.obj.echo(json.dumps(figures.facts()))
        return
    for line in [*aligned(list(rows(figures))), "", *sentences(figures)]:
        ctx.obj.echo(line)


class _Stopped(Exception):
    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)


@contextmanager
def _stopped_by_signals() -> Iterator[Callable[[], None]]:
    """What raises once a signal came: between two calls of Redis, and never in the clearing up."""
    came: list[int] = []
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup, and a shell's background, have some ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda number, _: came.append(number))

    def stop() -> None:
        if came:
            raise _Stopped(came[0])

    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(tasks: int) -> Iterator[Callable[[int], object]]:
    """What shows how far it is, if somebody looks on."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    length = measuring.units(tasks)
    with click.progressbar(
        length=length, label="measuring", file=sys.stderr, update_min_steps=length // 100
    ) as bar:
        yield bar.update

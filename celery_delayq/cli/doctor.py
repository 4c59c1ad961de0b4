"""The command that looks at an app's store and broker, and can measure its Redis: ``doctor``."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from ..doctor.broker import unusable
from ..doctor.examine import examine
from ..doctor.measure import ONE_BY_ONE, Measurements, measure
from ..logs import plain
from ..servers.risks import Line as Found
from ..services import Services
from .common import Said, aligned, delayq_of, examples, json_option
from .looks import CeleryCommand, CeleryOption
from .screen import Line, Screen

_LIMITS = {"redis": "Redis", "round_trip": "the round trip", "this_process": "this process"}
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_LEVEL, _NAME = 9, 19  # columns: of the longest of each, and two more
_NARROW = 40  # columns that a text has at least


@click.command(
    cls=CeleryCommand,
    epilog=examples(
        "doctor", "doctor --json | jq -r 'select(.level != \"ok\").advice'", "doctor --rates"
    ),
)
@click.option(
    "--rates", is_flag=True, cls=CeleryOption, help_group="Measuring",
    help="Measure what the store's Redis takes, and what limits it, in place of looking.",
)  # fmt: skip
@click.option(
    "--tasks", type=click.IntRange(1000, 1_000_000), default=20_000, show_default=True,
    cls=CeleryOption, help_group="Measuring",
    help="How many tasks wait at a time; each takes some 500 bytes of Redis's memory.",
)  # fmt: skip
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, rates: bool, tasks: int, as_json: bool, **_: Any) -> None:
    """Tell whether all is well with store and broker, and what to do.

    A line for each thing that has to be right: ok; a warning, where tasks may be lost or late one
    day; or an error, where something does not work, or will lose tasks. Below stands what to do.
    Exit status 1 if there is an error. It is some hundred commands, safe at any time.

    With --rates it measures. For some seconds Redis is as busy as one process can make it, and
    others feel that. It works on keys of its own, {PREFIX:doctor-...}, where PREFIX is
    delayq_prefix. They are removed at the end, also after Ctrl-C or an error. If this process is
    killed, they go by themselves within ten minutes, where Redis lets it set their time to live. To
    see what is left:

    redis-cli --scan --pattern '{delayq:doctor-*'
    """
    services = delayq_of(ctx).services
    if rates:
        _measure(ctx, services, tasks, as_json)
        return
    screen, levels = Screen(ctx), set()
    with Said():
        for found in examine(services):
            levels.add(found.level)
            if as_json:
                ctx.obj.echo(json.dumps(asdict(found)))
            else:
                screen.show(_shown(found, screen.width))
    if "error" in levels:
        ctx.exit(1)


def _shown(found: Found, width: int | None) -> Iterator[Line]:
    """Its lines: of a terminal as wide as that; elsewhere one, and one for the advice."""
    room = None if width is None else max(_NARROW, width - _LEVEL - _NAME)
    texts = _wrapped(plain(found.found), room)
    yield [
        (f"{found.level:<{_LEVEL}}", _STYLES[found.level]),
        (f"{found.name:<{_NAME}}", "bold"),
        (texts[0], ""),
    ]
    texts = texts[1:] + (_wrapped(f"-> {plain(found.advice)}", room) if found.advice else [])
    for text in texts:
        yield [(" " * (_LEVEL + _NAME), ""), (text, "")]


def _wrapped(text: str, room: int | None) -> list[str]:
    if room is None:
        return [text]
    # A command or a name that is to be copied stays whole.
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _measure(ctx: click.Context, services: Services, tasks: int, as_json: bool) -> None:
    units, file = 3 * ONE_BY_ONE + 2 * tasks, sys.stderr if sys.stderr.isatty() else io.StringIO()
    with Said():
        wrong = unusable(services)
    if wrong is not None:
        raise click.ClickException(f"{wrong.found}; {wrong.advice}")
    with Said(), click.progressbar(length=units, label="measuring", file=file) as progress:
        measurements = measure(services, tasks, progress.update)
    for line in [json.dumps(asdict(measurements))] if as_json else report(measurements):
        ctx.obj.echo(line)


def report(measurements: Measurements) -> Iterator[str]:
    """What was measured, for a reader."""
    size, rows = measurements.memory_bytes_per_task, []
    for name, step in (
        ("schedule one by one", measurements.schedule_one),
        ("cancel one by one", measurements.cancel_one),
        ("schedule in bulk", measurements.schedule_many),
        ("hand over", measurements.hand_over),
    ):
        # Two digits: more would not be the same the next time.
        rate = f"{float(f'{step.per_second:.2g}'):,.0f} tasks/s"
        rows.append((name, rate, f"limited by {_LIMITS[step.limit]}"))
    rows.append(("round trip", f"{measurements.round_trip_ms:.2f} ms", ""))
    rows.append(("a waiting task", f"{size or 'unknown'} bytes", "of Redis's memory"))
    yield from aligned(rows)
    yield "What Celery does to make messages comes on top of scheduling."
    if not measurements.direct:
        yield "This app's tasks go on to another broker, at its pace; that was not measured."

"""The command ``doctor``, which checks an app's store and broker."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from ...core.servers.risks import Line as DoctorLine
from ...core.text import plain
from ...operations.cli.common import (
    CeleryCommand,
    ErrorSentences,
    advised,
    delayq_of,
    examples,
    json_option,
)
from ...operations.cli.output import Line, Screen
from .doctor import examine

RUNBOOK = "celery_delayq/docs/runbook.md"  # in the repository, not in a wheel
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_LEVEL, _NAME = 9, 19  # columns: those of the longest, and two more
_NARROW = 40  # least columns for a text


@click.command(
    cls=CeleryCommand,
    epilog=examples("doctor", "doctor --json | jq -r 'select(.level != \"ok\").advice'"),
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Check store and broker, and say what to do.

    Prints a line for each requirement: ok; a warning, if tasks may be lost or late one day; or an
    error, if something does not work or will lose tasks. Advice follows below each. Exits with 1 if
    there is an error. It sends some hundred commands, and is safe at any time. For incidents see
    the project's runbook, celery_delayq/docs/runbook.md.
    """
    services = delayq_of(ctx).services
    screen, levels = Screen(ctx), set()
    with ErrorSentences():
        for found in examine(services):
            levels.add(found.level)
            if as_json:
                ctx.obj.echo(json.dumps(asdict(found)))
            else:
                screen.show(_shown(found, screen.width))
    if "error" in levels:
        click.echo(f"In an incident, see {RUNBOOK}", err=True)
        ctx.exit(1)


def _shown(found: DoctorLine, width: int | None) -> Iterator[Line]:
    """Return its lines, wrapped for a terminal; else one line, and one for the advice."""
    room = None if width is None else max(_NARROW, width - _LEVEL - _NAME)
    texts = _wrapped(plain(found.found), room)
    yield [
        (f"{found.level:<{_LEVEL}}", _STYLES[found.level]),
        (f"{found.name:<{_NAME}}", "bold"),
        (texts[0], ""),
    ]
    texts = texts[1:] + (_wrapped(f"-> {advised(found.advice)}", room) if found.advice else [])
    for text in texts:
        yield [(" " * (_LEVEL + _NAME), ""), (text, "")]


def _wrapped(text: str, room: int | None) -> list[str]:
    if room is None:
        return [text]
    # A command or a name stays whole, so that you can copy it.
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)

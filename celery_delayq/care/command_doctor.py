"""The command that looks at an app's store and broker: ``doctor``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from ..cli.common import ErrorSentences, delayq_of, examples, json_option
from ..cli.looks import CeleryCommand
from ..cli.screen import Line, Screen
from ..logs import plain
from ..servers.risks import Line as MasterCache
from .doctor import examine

RUNBOOK = "celery_delayq/docs/runbook.md"  # in the project; no wheel has it
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_LEVEL, _NAME = 9, 19  # columns: of the longest of each, and two more
_NARROW = 40  # columns that a text has at least


@click.command(
    cls=CeleryCommand,
    epilog=examples("doctor", "doctor --json | jq -r 'select(.level != \"ok\").advice'"),
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Tell whether all is well with store and broker, and what to do.

    A line for each thing that has to be right: ok; a warning, where tasks may be lost or late one
    day; or an error, where something does not work, or will lose tasks. Below stands what to do.
    Exit status 1 if there is an error. It is some hundred commands, safe at any time. The project's
    runbook, celery_delayq/docs/runbook.md, says what to do in an incident.
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
        click.echo(f"What to do in an incident: {RUNBOOK}", err=True)
        ctx.exit(1)


def _shown(found: MasterCache, width: int | None) -> Iterator[Line]:
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

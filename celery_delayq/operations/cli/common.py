"""Helpers for commands: the app's ``DelayQ``, error messages, and text for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from shlex import quote
from typing import Any

import click

from ...core.errors import DelayQError, InvalidOption, InvalidSetting, NotATask
from ...core.services import HasServices, find, services_of
from ...core.store import Outcome
from ...core.text import plain
from .looks import CeleryOption

# Why a task in the store was not changed; for tasks that have left it, see `departed.py`.
REFUSED = {
    Outcome.IN_FLIGHT: "task {} is being published this moment; try again shortly",
    Outcome.UNCERTAIN: "task {} was changed, but an earlier attempt may have delivered it",
    Outcome.UNCHANGED: "task {} does not meet the condition; nothing was changed",
}

_UNHEARD = "signal receivers of the app may miss this, as not all its modules can be imported: {}"

json_option = click.option(
    "--json", "as_json", is_flag=True, cls=CeleryOption, help_group="Output",
    help="Print JSON: an object on each line, with times in UTC.",
)  # fmt: skip


class ErrorSentences:
    """Report an error of this package in one sentence, with exit status 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DelayQError):
            raise click.ClickException(advised(error)) from error


class UsageErrors(ErrorSentences):
    """Report an invalid option with exit status 2; other errors like :class:`ErrorSentences`."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidOption) and not isinstance(error, (InvalidSetting, NotATask)):
            raise click.UsageError(advised(error)) from error
        super().__exit__(kind, error, trace)


def advised(sentence: object) -> str:
    """Return a sentence for one row; its commands name the app as this one did."""
    ctx, line = click.get_current_context(silent=True), plain(sentence)
    app = ctx and ctx.find_root().params.get("app")
    if not isinstance(app, str):  # not given; or, in Celery 5.4, the app itself
        return line
    return line.replace("celery -A proj ", f"celery -A {quote(app)} ")


def delayq_of(ctx: click.Context, *, heard: bool = False) -> HasServices:
    """Return the ``DelayQ`` of the app that ``-A`` names, or else of Celery's current app.

    Args:
        ctx: The command's context.
        heard: Whether receivers of the app may hear of what the command does. Then import its
            modules, as Celery's ``report`` and ``shell`` do; this sets Django up.
    """
    with ErrorSentences():
        if find(ctx.obj.app) is None and ctx.find_root().params.get("app") is None:
            raise click.UsageError(f"name the app: celery -A proj delayq {ctx.info_name}", ctx)
        services_of(ctx.obj.app)  # raises if there is none
        delayq: HasServices = ctx.obj.app.delayq
    if heard:
        try:
            ctx.obj.app.loader.import_default_modules()
        except Exception as error:
            ctx.obj.error(plain(_UNHEARD.format(repr(error))))
    return delayq


def confirm(question: str) -> None:
    """Ask for confirmation; end the command without a yes, or without a terminal."""
    if not sys.stdin.isatty():
        raise click.ClickException(f"{question} There is no terminal to confirm; pass --yes")
    click.confirm(question, abort=True)


class Argument(click.Argument):
    """An argument with a help text, which click itself supports only since 8.5."""

    help_group = "Arguments"

    def __init__(self, names: Sequence[str], *, help: str, **given: Any) -> None:
        super().__init__(names, **given)
        self._text = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:  # noqa: ARG002 - click's own
        return self.metavar or str(self.name).upper(), self._text


def examples(*lines: str) -> str:
    """Return the examples of a command's help: *lines* after ``celery -A proj delayq``."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  celery -A proj delayq {line}" for line in lines)])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

"""What all commands share: the style of Celery's options, errors in one sentence, the time zone.

Times that you type and read are in the app's zone, or ``--utc``, or ``--local``. Tables name the
zone in the heading, sentences after the time. JSON is always in UTC, with the offset.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone, tzinfo
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ...core.clock import local
from ...core.errors import DelayQError, InvalidOption, InvalidSetting, NotATask
from ...core.libraries import Feature, works
from ...core.services import HasServices, find, services_of
from ...core.text import lasting, plain

__all__ = ["CeleryCommand", "CeleryOption", "handle_preload_options"]

# Celery's own style, or click's if this Celery has none.
if TYPE_CHECKING or works(Feature.LOOKS):
    from celery.bin.base import CeleryCommand as _Command
    from celery.bin.base import CeleryOption, handle_preload_options
else:
    _Command = click.Command

    class CeleryOption(click.Option):
        """An option whose group is not shown."""

        def __init__(self, *args: Any, help_group: str | None = None, **options: Any) -> None:  # noqa: ARG002 - Celery's
            super().__init__(*args, **options)

    def handle_preload_options(command: Any) -> Any:
        """Return *command* unchanged."""
        return command


class CeleryCommand(_Command):
    """A command whose help page begins with its epilog, the examples."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        super().format_help_text(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing, as the epilog is already above."""


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


_CHOSEN = "celery_delayq.zone"  # in a context's meta
STAMP = len("2030-01-31 09:00:00")  # the shortest one
_LONGEST = len("2030-01-31 09:00:00.000")


def zoned(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--utc`` and ``--local`` to a command; :func:`zone_of` returns the choice."""
    for name, text in (
        ("--local", "Times in this machine's time zone, typed and printed."),
        ("--utc", "Times in UTC. By default they are in the app's own zone."),
    ):
        command = click.option(
            name, is_flag=True, cls=CeleryOption, help_group="Times", help=text,
            expose_value=False, callback=_choose,
        )(command)  # fmt: skip
    return command


def _choose(ctx: click.Context, option: click.Parameter, is_given: bool) -> None:
    if is_given:
        if _CHOSEN in ctx.meta:
            raise click.UsageError("--utc and --local exclude each other.", ctx)
        ctx.meta[_CHOSEN] = timezone.utc if option.name == "utc" else local()


def zone_of(ctx: click.Context) -> tzinfo:
    """Return the chosen zone; by default that of the app's naive times."""
    chosen: tzinfo | None = ctx.meta.get(_CHOSEN)
    return delayq_of(ctx).services.timezone if chosen is None else chosen


def name_of(zone: tzinfo) -> str:
    """Return a zone's name for a heading."""
    # zoneinfo has `key`, pytz has `zone`.
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name if isinstance(name, str) else str(zone)


def stamp(time: datetime, zone: tzinfo) -> str:
    """Return a time for a table, whose heading names the zone; without a zero fraction."""
    return time.astimezone(zone).isoformat(" ", "milliseconds")[:_LONGEST].removesuffix(".000")


def with_zone(time: datetime, zone: tzinfo) -> str:
    """Return a time for a sentence, with its zone."""
    return f"{stamp(time, zone)} {name_of(zone)}"


def until(time: datetime, now: datetime) -> str:
    """Return the distance to a time: ``19 min``, ``now``, or ``21 s ago``."""
    seconds = (time - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return lasting(seconds) if seconds > 0 else f"{lasting(-seconds)} ago"


def soon(time: datetime, now: datetime) -> str:
    """Return the same for a sentence: ``in 19 min``, ``21 s ago``."""
    span = lasting(abs((time - now).total_seconds()))
    return f"in {span}" if time > now else f"{span} ago"


def relative(time: datetime, now: datetime, zone: tzinfo) -> str:
    """Return a time for people: ``in 19 min (2030-01-31 09:00:00 UTC)``, or ``21 s ago (…)``."""
    return f"{soon(time, now)} ({with_zone(time, zone)})"

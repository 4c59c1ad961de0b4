"""Celery's style of commands and options; click's own if this Celery has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...core.libraries import Feature, works

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


__all__ = ["CeleryCommand", "CeleryOption", "handle_preload_options"]

"""Celery's look of commands and options; click's own if this Celery has it no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..libraries import Feature, works

if TYPE_CHECKING or works(Feature.LOOKS):
    from celery.bin.base import CeleryCommand, CeleryOption, handle_preload_options
else:
    CeleryCommand = click.Command

    class CeleryOption(click.Option):
        """An option whose group nothing shows."""

        def __init__(self, *args: Any, help_group: str | None = None, **options: Any) -> None:  # noqa: ARG002 - Celery's
            super().__init__(*args, **options)

    def handle_preload_options(command: Any) -> Any:
        """*command* as it is."""
        return command


__all__ = ["CeleryCommand", "CeleryOption", "handle_preload_options"]

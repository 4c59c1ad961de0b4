"""The command that sends tasks as plain Celery messages: ``release``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...core import clock
from ...core.errors import DelayQError
from ...core.text import counted, plain
from ..releasing import Released
from ..selection import RewritableSelection
from .chosen_tasks import ChosenTasks, Operation, meaning_many
from .common import examples
from .looks import CeleryCommand, CeleryOption

TELL_EVERY = 5.0  # seconds
_AGAIN = "a scanner sends them, or run this command again"
_GOES = "a scanner sends released tasks, or run this command again"
_BEYOND = {
    "visibility_timeout": (
        "{} due later than the broker's visibility_timeout ({:.0f} s): the broker delivers "
        "them again before that; set a longer one in all workers, or they run more than once"
    ),
    "consumer_timeout": (
        "{} due later than RabbitMQ's default consumer_timeout ({:.0f} s): a worker that holds a "
        "task longer than your broker's ends with PRECONDITION_FAILED; set a longer one there"
    ),
}


@click.command(
    cls=CeleryCommand, epilog=examples("release --all --dry-run", "release --queue mail")
)
@meaning_many
@click.option(
    "--canvas", is_flag=True, cls=CeleryOption, help_group="Messages",
    help="Also release canvases, which only a worker with this package can run.",
)  # fmt: skip
def release(meant: ChosenTasks, canvas: bool) -> None:
    """Send tasks now, as plain Celery messages.

    Their eta is their due time. They go now, in due order, even if they are paused, and workers
    wait until the eta, with or without this package. If it is killed, run it again.
    """
    releasing = _Releasing(meant, canvas)
    meant.change(
        Operation(
            "release",
            "released",
            _no_single,
            releasing.step,
            tell=releasing.tell,
            rest=f"; {_GOES}",
            none=releasing.hand_over,
        )
    )


def _no_single(*_: Any, **__: Any) -> Any:
    raise NotImplementedError  # it takes no ids


class _Releasing:
    """The release of a selection, with its messages."""

    def __init__(self, meant: ChosenTasks, canvas: bool) -> None:
        self._meant = meant
        self._canvas = canvas
        self._is_warned = False
        self._told_at = clock.monotonic()

    def step(
        self,
        selection: RewritableSelection,
        *,
        dry_run: bool,
        progress: Callable[[Any], object] | None,
    ) -> Released:
        if dry_run:
            count = selection.release(canvas=self._canvas, dry_run=True)
        else:
            count = selection.release(canvas=self._canvas, progress=progress)
            self.hand_over(count)
        if not self._is_warned:
            self._warn(count)
        self._is_warned = True
        return count

    def tell(self, count: int) -> None:
        """Print the progress, every few seconds."""
        now = clock.monotonic()
        if now >= self._told_at + TELL_EVERY:
            self._told_at = now
            self._meant.say(f"{counted(count)} released so far")

    def hand_over(self, count: Released) -> None:
        """Send all released tasks, also those of earlier runs.

        It does not rely on a scanner, as none may be alive; a live one is not disturbed.
        """
        try:
            self._meant.ctx.obj.app.delayq.hand_over()
        except DelayQError as error:
            raise click.ClickException(
                f"{counted(count)} released, but not sent yet: {plain(error)}; {_AGAIN}"
            ) from error

    def _warn(self, count: Released) -> None:
        limit = self._meant.delayq.services.broker.hold_limit
        if count.beyond and limit is not None:
            self._meant.warn(_BEYOND[limit.name].format(count.beyond, limit.seconds))
        if count.dead:
            stay = "task stays" if count.dead == 1 else "tasks stay"
            self._meant.warn(f"{count.dead} dead {stay}: retry or remove them")

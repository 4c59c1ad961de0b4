"""Who a command means: ids, unique keys, or a selection; it asks before that is changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click
from celery.bin.base import CeleryOption

from ..errors import DelayQError
from ..integration.delayq import DelayQ
from ..logs import plain
from ..operations.count import Count
from ..operations.selection import Selection
from ..store import Outcome, State
from .common import REFUSED, Said, delayq_of, time_of

_GROUP = "Selection"
_PICKING = ("tag", "task", "queue", "state", "after_due", "before_due", "all")


def _option(*names: str, **given: Any) -> Any:
    return click.option(*names, cls=CeleryOption, help_group=_GROUP, **given)


_KEY = click.option(
    "--key", "keys", multiple=True, cls=CeleryOption, help_group="Tasks",
    help="Whoever has this unique key; may be given more than once.",
)  # fmt: skip
_OPTIONS = (
    _option("--tag", help="All that have this tag."),
    _option("--task", help="All of the task of this name."),
    _option("--queue", help="All that were sent with this queue."),
    _option(
        "--state", type=click.Choice([one.value.lower() for one in State], case_sensitive=False),
        help="All in this state.",
    ),
    _option("--after-due", help="All due at this time or later."),
    _option("--before-due", help="All due before this time."),
    _option("--all", is_flag=True, help="Everything."),
    _option("--dry-run", is_flag=True, help="Only say how many it would be."),
    _option("--yes", is_flag=True, help="Do not ask."),
)  # fmt: skip


def meaning(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options by which it is told who is meant; it gets a :class:`Meant`."""
    told = meaning_many(command)
    return click.argument("ids", metavar="[ID]...", nargs=-1)(_KEY(told))


def meaning_many(command: Callable[..., None]) -> Callable[..., None]:
    """The same of a command that takes a selection, and no single tasks."""

    @click.pass_context
    @wraps(command)
    def told(ctx: click.Context, /, **given: Any) -> None:
        command(Meant(ctx, given), **given)

    for option in reversed(_OPTIONS):
        told = option(told)
    return told


class Meant:
    """Who a command means. It takes what it needs out of the options *given*."""

    def __init__(self, ctx: click.Context, given: dict[str, Any]) -> None:
        self._ctx = ctx
        by_id = "ids" in given
        self._ones = [{"task_id": one} for one in given.pop("ids", ())]
        self._ones += [{"key": one} for one in given.pop("keys", ())]
        self._dry_run, self._yes = given.pop("dry_run"), given.pop("yes")
        picking = {name: given.pop(name) for name in _PICKING}
        for name in ("after_due", "before_due"):
            picking[name] = time_of(picking[name])
        self._picking = {name: value for name, value in picking.items() if value}
        if bool(self._ones) == bool(self._picking):
            named = "Name tasks by id or --key, or select" if by_id else "Select"
            raise click.UsageError(f"{named} some, as by --tag, or --all.", ctx)
        if self._ones and self._dry_run:
            raise click.UsageError("--dry-run is for a selection.", ctx)

    @property
    def delayq(self) -> DelayQ:
        """The app's."""
        return delayq_of(self._ctx)

    def change(
        self,
        word: str,
        done: str,
        one: Callable[..., Outcome],
        many: Callable[..., Count],
        unchanged: str = REFUSED[Outcome.UNCHANGED],
    ) -> None:
        """Take a step, say what came of it, and end with 1 where something was not done.

        Args:
            word: What is done to a task, as in "cancel 5 tasks?".
            done: The same when it is done.
            one: The step of one task, by ``task_id`` or ``key``.
            many: The step of a selection.
            unchanged: What is said where a condition does not hold.
        """
        if self._picking:
            is_done = self._change_selection(word, done, many)
        else:
            sentences = {**REFUSED, Outcome.UNCHANGED: unchanged}
            outcomes = [change_one(self._ctx, done, one, named, sentences) for named in self._ones]
            is_done = all(outcomes)
        if not is_done:
            self._ctx.exit(1)

    def _change_selection(self, word: str, done: str, many: Callable[..., Count]) -> bool:
        with Said():
            selection = self.delayq.select(**self._picking)
            would = many(selection, dry_run=True) if self._dry_run or not self._yes else None
            if self._dry_run:
                self.say(f"{counted(would)} would be {done}")
                return True
            if would is not None:
                self._confirm(f"{word} {counted(would)}?")
            return self._told(done, self._step(done, selection, many))

    def _step(self, done: str, selection: Selection, many: Callable[..., Count]) -> Count:
        try:
            return many(selection)
        except DelayQError as error:
            if error.so_far is not None:
                self._ctx.obj.error(f"{counted(error.so_far)} {done} so far")
            raise

    def _confirm(self, question: str) -> None:
        if not sys.stdin.isatty():
            raise click.ClickException(f"{question} There is no terminal to ask at; pass --yes")
        click.confirm(question, abort=True)

    def _told(self, done: str, count: Count) -> bool:
        self.say(f"{counted(count)} {done}")
        if count.outstanding:
            self.say(f"REVOKED is still to be stored for {count.outstanding}; scanners do that")
        if count.uncertain:
            self._ctx.obj.error(f"of {count.uncertain} an earlier attempt may have delivered it")
        if count.in_flight:
            self._ctx.obj.error(f"{count.in_flight} being published this moment; try again shortly")
        return not (count.uncertain or count.in_flight)

    def say(self, line: str) -> None:
        """Print a line."""
        self._ctx.obj.echo(line)

    def warn(self, line: str) -> None:
        """Print a line to the stream of errors."""
        self._ctx.obj.error(line)


def change_one(
    ctx: click.Context,
    done: str,
    step: Callable[..., Outcome],
    named: dict[str, str],
    sentences: Mapping[Outcome, str] = REFUSED,
) -> bool:
    """Take a step of one task, and say what came of it; whether it was done.

    Args:
        ctx: The command's.
        done: What was done, as in "task a cancelled".
        step: The step, by ``task_id`` or ``key``.
        named: The one of the two.
        sentences: What is said where it was not done.
    """
    ((_, name),) = named.items()
    try:
        outcome = step(**named)
        said = f"task {name} {done}" if outcome else sentences[outcome].format(name)
    except DelayQError as error:
        outcome, said = None, f"Error: {error}"
    say = ctx.obj.echo if outcome else ctx.obj.error
    say(plain(said))
    return bool(outcome)


def counted(count: int | None) -> str:
    """So many tasks, in words."""
    return f"{count} task" if count == 1 else f"{count} tasks"

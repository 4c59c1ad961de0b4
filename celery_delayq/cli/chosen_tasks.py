"""The tasks that a command changes: ids, unique keys, or a selection, which it confirms first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from itertools import chain
from typing import Any

import click

from ..errors import DelayQError, StoreError
from ..logs import counted, plain
from ..operations import selecting
from ..operations.count import Count
from ..services import HasServices
from ..store import Outcome
from .common import REFUSED, Argument, ErrorSentences, UsageErrors, confirm, delayq_of
from .departed import why_behind, why_gone
from .filter_options import named_in, picked, picks
from .looks import CeleryOption
from .progress import counting
from .stdin import STDIN, ids_read
from .unknown import say_unknown
from .zones import zone_of, zoned

_GROUP = "Selection"
_OTHER_REVISION = "task {} no longer has the revision of --if-revision; nothing was changed"

_KEY = click.option(
    "--key", "keys", multiple=True, cls=CeleryOption, help_group="Tasks",
    help="The task with this unique key; may be given more than once.",
)  # fmt: skip
_IDS = click.argument(
    "ids", metavar="[ID | -]...", nargs=-1, cls=Argument,
    help="Ids of tasks; - reads them from standard input, one on each line.",
)  # fmt: skip
_REVISION = click.option(
    "--if-revision", type=click.IntRange(0), cls=CeleryOption, help_group="Tasks",
    help="Only if `show` still has this revision; for one task.",
)  # fmt: skip
_LIMIT = click.option(
    "--limit", type=click.IntRange(0), cls=CeleryOption, help_group=_GROUP,
    help="Only the first so many of these, in the order of scheduling.",
)  # fmt: skip
_OPTIONS = (
    ("--all", "All tasks."),
    ("--dry-run", "Only count the tasks; for a selection, not for ids or keys."),
    ("--yes", "Do not ask for confirmation."),
)


def meaning(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose tasks to a command, which gets a :class:`ChosenTasks`."""
    told = meaning_many(command)
    return _IDS(_KEY(_REVISION(told)))


def meaning_many(command: Callable[..., None]) -> Callable[..., None]:
    """Like :func:`meaning`, for a command that takes a selection only."""

    @click.pass_context
    @wraps(command)
    def told(ctx: click.Context, /, **given: Any) -> None:
        command(ChosenTasks(ctx, given), **given)

    told = zoned(told)
    for name, text in reversed(_OPTIONS):
        told = click.option(name, is_flag=True, cls=CeleryOption, help_group=_GROUP, help=text)(
            told
        )
    return picks(_GROUP)(_LIMIT(told))


class ChosenTasks:
    """The tasks that a command changes; it removes their options from *given*."""

    def __init__(self, ctx: click.Context, given: dict[str, Any]) -> None:
        self.ctx = ctx
        by_id = "ids" in given
        ids = given.pop("ids", ())
        self._is_read = STDIN in ids
        self._ones = [{"task_id": one} for one in ids if one != STDIN]
        self._ones += [{"key": one} for one in given.pop("keys", ())]
        is_one = len(self._ones) == 1 and not self._is_read
        self._revision = given.pop("if_revision", None)
        self._dry_run, self._yes = given.pop("dry_run"), given.pop("yes")
        everything = given.pop("all")
        is_named, is_picked = self._is_read or bool(self._ones), everything or named_in(given)
        if is_named and is_picked:
            raise click.UsageError("Name tasks by id or --key, or select some, not both.", ctx)
        if not (is_named or is_picked):
            named = "Name tasks by id or --key, or select" if by_id else "Select"
            raise click.UsageError(f"{named} some, as by --tag, or --all.", ctx)
        if self._revision is not None and not is_one:
            raise click.UsageError("--if-revision takes one task, by its id or --key.", ctx)
        limit = given.pop("limit")
        if is_named and (self._dry_run or limit is not None):
            option = "--dry-run counts" if self._dry_run else "--limit bounds"
            raise click.UsageError(
                f"{option} a selection, as by --tag; it takes no ids or keys.", ctx
            )
        if self._is_read and not self._yes:
            raise click.UsageError("Ids come from standard input: pass --yes.", ctx)
        with ErrorSentences():
            self._picking = {**picked(ctx, given), **({"all": True} if everything else {})}
        if is_picked:
            self._picking["limit"] = limit

    @property
    def delayq(self) -> HasServices:
        """The app's ``DelayQ``."""
        return delayq_of(self.ctx)

    def change(
        self,
        word: str,
        done: str,
        one: Callable[..., Outcome],
        many: Callable[..., Count],
        *,
        unchanged: str = REFUSED[Outcome.UNCHANGED],
        tell: Callable[[int], object] | None = None,
        rest: str = "",
        beside: Callable[[], str] = str,
        none: Callable[[Any], object] | None = None,
    ) -> None:
        """Change the tasks and print the outcome; exit with 1 if a task was not changed.

        Args:
            word: The verb, as in "cancel 5 tasks?".
            done: Its past form, as in "5 tasks cancelled".
            one: The step for one task: takes the app's ``DelayQ``, and ``task_id`` or ``key``.
            many: The step for a selection.
            unchanged: The sentence for a task that does not meet a condition.
            tell: Called with the number of finished tasks of a selection, without a terminal.
            rest: The text after that number if Ctrl-C interrupts a selection.
            beside: Returns the text after each single task that was changed.
            none: Called with the count if a selection matches no task.
        """
        if self._revision is not None:
            alone = unchanged == REFUSED[Outcome.UNCHANGED]
            unchanged = _OTHER_REVISION if alone else REFUSED[Outcome.UNCHANGED]
            one = partial(one, if_revision=self._revision)
        sentences = {**REFUSED, Outcome.UNCHANGED: unchanged}
        one = partial(one, self.delayq)
        if self._picking:
            is_done = self._change_selection(word, done, many, tell=tell, rest=rest, none=none)
        elif self._is_read:
            is_done = self._change_read(word, done, one, sentences)
        else:
            change = partial(change_one, self.ctx, done, one, sentences=sentences, beside=beside)
            outcomes = [change(named) for named in self._ones]
            is_done = all(outcomes)
        if not is_done:
            self.ctx.exit(1)

    def _change_selection(
        self,
        word: str,
        done: str,
        many: Callable[..., Count],
        *,
        tell: Callable[[int], object] | None,
        rest: str,
        none: Callable[[Any], object] | None,
    ) -> bool:
        with UsageErrors():
            selection = selecting.select(self.delayq, **self._picking)
        with ErrorSentences():
            would = many(selection, dry_run=True) if self._dry_run or not self._yes else None
            if self._dry_run:
                self.say(f"{counted(would or 0)} would be {done}")
                self._hint(would)
                return True
            if would is not None and not would:
                if none is not None:
                    none(would)
                return self._told(done, would)
            if would is not None:
                confirm(f"{word} {counted(would)}?")

            def told(count: int) -> str:
                return f"{counted(count)} {done}{rest}"

            with counting(self.ctx, word, told, would, tell) as taken:
                count = self._step(done, partial(many, selection, progress=taken))
            return self._told(done, count)

    def _step(self, done: str, step: Callable[[], Count]) -> Count:
        try:
            return step()
        except DelayQError as error:
            if error.so_far is not None:
                self.ctx.obj.error(f"{counted(error.so_far)} {done} so far")
            raise

    def _change_read(
        self, word: str, done: str, one: Callable[..., Outcome], sentences: Mapping[Outcome, str]
    ) -> bool:
        """Change the tasks from standard input: print a count, and a line for each failure."""
        count, is_done = 0, True
        named = chain(self._ones, ({"task_id": task_id} for task_id in ids_read()))
        with (
            ErrorSentences(),
            counting(self.ctx, word, lambda so_far: f"{counted(so_far)} {done}") as taken,
        ):
            try:
                for each in named:
                    said = refusal_of(self.ctx, one, each, sentences)
                    if said is None:
                        count += 1
                    else:
                        is_done = False
                        self.warn(said)
                    taken(count)
            except (StoreError, click.ClickException):
                self.warn(f"{counted(count)} {done} so far")
                raise
        self.say(f"{counted(count)} {done}")
        return is_done

    def _hint(self, count: Count | None) -> None:
        """If there are none, note that a name may be misspelt."""
        if not count:
            names = {name: self._picking.get(name, ()) for name in ("queue", "task")}
            say_unknown(self.ctx, **names)

    def _told(self, done: str, count: Count) -> bool:
        self.say(f"{counted(count)} {done}")
        self._hint(count)
        if count.outstanding:
            self.say(f"REVOKED is still to be stored for {count.outstanding}; scanners do that")
        if count.uncertain:
            self.ctx.obj.error(f"of {count.uncertain} an earlier attempt may have delivered it")
        if count.behind:
            self.ctx.obj.error(f"{count.behind} of these wait behind tasks that hold their keys")
        if count.in_flight:
            self.ctx.obj.error(f"{count.in_flight} being published this moment; try again shortly")
        return not (count.uncertain or count.behind or count.in_flight)

    def say(self, line: str) -> None:
        """Print a line."""
        self.ctx.obj.echo(line)

    def warn(self, line: str) -> None:
        """Print a line to standard error."""
        self.ctx.obj.error(line)


def change_one(
    ctx: click.Context,
    done: str,
    step: Callable[..., Outcome],
    named: dict[str, str],
    sentences: Mapping[Outcome, str] = REFUSED,
    *,
    beside: Callable[[], str] = str,
) -> bool:
    """Change one task, print the outcome, and return whether it was changed.

    Args:
        ctx: The command's context.
        done: The past form of the verb, as in "task a cancelled".
        step: The step, which takes ``task_id`` or ``key``.
        named: One of the two, with its value.
        sentences: The sentence for each outcome that leaves the task unchanged.
        beside: Returns the text after the line of a changed task.
    """
    try:
        said = refusal_of(ctx, step, named, sentences)
    except StoreError as error:
        said = plain(f"Error: {error}")
    if said is None:
        ((_, name),) = named.items()
        ctx.obj.echo(plain(f"task {name} {done}{beside()}"))
    else:
        ctx.obj.error(said)
    return said is None


def refusal_of(
    ctx: click.Context,
    step: Callable[..., Outcome],
    named: dict[str, str],
    sentences: Mapping[Outcome, str],
) -> str | None:
    """Change one task; return why it was not changed, or ``None`` if it was.

    Raises:
        StoreError: the store failed, so other tasks would fail too.
    """
    ((_, name),) = named.items()
    try:
        outcome = step(**named)
    except StoreError:
        raise
    except DelayQError as error:
        return plain(f"Error: {error}")
    if outcome in (Outcome.HANDED_OVER, Outcome.NOT_FOUND):
        return plain(why_gone(delayq_of(ctx), zone_of(ctx), named))
    if outcome is Outcome.BEHIND:
        return plain(why_behind(delayq_of(ctx), zone_of(ctx), named))
    return None if outcome else plain(sentences[outcome].format(name))

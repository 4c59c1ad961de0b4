"""The tasks that a command changes: ids, unique keys, or a selection, which it confirms first.

options --> Choice, as typed --> ChosenTasks --Operation, made by the command--> its outcome, told
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from itertools import chain
from typing import Any, Protocol

import click

from ...core.errors import DelayQError, StoreError
from ...core.services import HasServices
from ...core.store import Outcome
from ...core.tasks.selection import Count
from ...core.text import counted, plain
from ..selection import RewritableSelection
from .common import REFUSED, Argument, ErrorSentences, UsageErrors, advised, confirm, delayq_of
from .departed import Target, why_behind, why_gone
from .filter_options import Filters, picks, taken
from .looks import CeleryOption
from .progress import counting
from .stdin import STDIN, ids_read
from .unknown import say_unknown
from .zones import zone_of, zoned

_GROUP = "Selection"
_BACK = "to bring {} back: celery -A proj delayq undo --bulk {}"
_NO_WAY_BACK = "none of them can be brought back: delayq_undo keeps no undo of theirs"
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


class StepForOne(Protocol):
    """Changes one task."""

    def __call__(
        self,
        delayq: HasServices,
        task_id: str | None,
        /,
        *,
        key: str | None,
        if_revision: int | None,
    ) -> Outcome: ...


class StepForMany(Protocol):
    """Changes the tasks of a selection."""

    def __call__(
        self,
        selection: RewritableSelection,
        /,
        *,
        dry_run: bool,
        progress: Callable[[Any], object] | None,
    ) -> Count: ...


@dataclass(frozen=True)
class Choice:
    """The options that choose tasks, as they were typed.

    Attributes:
        filters: The filters of a selection.
        all: Whether all tasks are selected.
        limit: The most tasks of a selection, or ``None``.
        dry_run: Whether to count only.
        yes: Whether to ask for no confirmation.
        ids: Ids, or ``-``; ``None`` if the command takes none.
        keys: Unique keys.
        if_revision: The revision that the only task must have, or ``None``.
    """

    filters: Filters
    all: bool
    limit: int | None
    dry_run: bool
    yes: bool
    ids: tuple[str, ...] | None = None
    keys: tuple[str, ...] = ()
    if_revision: int | None = None


@dataclass(frozen=True)
class Operation:
    """What a command does with the tasks, and the words for it.

    Attributes:
        word: The verb, as in "cancel 5 tasks?".
        done: Its past form, as in "5 tasks cancelled".
        one: The step for one task.
        many: The step for a selection.
        unchanged: The sentence for a task that does not meet a condition.
        tell: Called with the number of finished tasks of a selection, without a terminal.
        rest: The text after that number if Ctrl-C interrupts a selection.
        beside: Returns the text after each single task that was changed.
        none: Called with the count if a selection matches no task.
        aim: Returns the text after the number of tasks in the question before a selection.
    """

    word: str
    done: str
    one: StepForOne
    many: StepForMany
    unchanged: str = REFUSED[Outcome.UNCHANGED]
    tell: Callable[[int], object] | None = None
    rest: str = ""
    beside: Callable[[], str] = str
    none: Callable[[Any], object] | None = None
    aim: Callable[[], str] = str


class ChosenTasks:
    """The tasks that a command changes."""

    def __init__(self, ctx: click.Context, choice: Choice) -> None:
        self.ctx, self._choice = ctx, choice
        ids, filters = choice.ids or (), choice.filters
        self._is_read = STDIN in ids
        self._named = [Target(task_id=each) for each in ids if each != STDIN]
        self._named += [Target(key=key) for key in choice.keys]
        is_one = len(self._named) == 1 and not self._is_read
        is_named = self._is_read or bool(self._named)
        self._is_picked = choice.all or bool(filters.named)
        if is_named and self._is_picked:
            raise click.UsageError("Name tasks by id or --key, or select some, not both.", ctx)
        if not (is_named or self._is_picked):
            named = "Select" if choice.ids is None else "Name tasks by id or --key, or select"
            raise click.UsageError(f"{named} some, as by --tag, or --all.", ctx)
        if choice.if_revision is not None and not is_one:
            raise click.UsageError("--if-revision takes one task, by its id or --key.", ctx)
        if is_named and (choice.dry_run or choice.limit is not None):
            option = "--dry-run counts" if choice.dry_run else "--limit bounds"
            raise click.UsageError(
                f"{option} a selection, as by --tag; it takes no ids or keys.", ctx
            )
        if self._is_read and not choice.yes:
            raise click.UsageError("Ids come from standard input: pass --yes.", ctx)
        with ErrorSentences():
            self._picks = replace(filters.picked(ctx), all=choice.all, limit=choice.limit)

    @property
    def delayq(self) -> HasServices:
        """The app's ``DelayQ``."""
        return delayq_of(self.ctx)

    def change(self, what: Operation) -> None:
        """Change the tasks and print the outcome; exit with 1 if a task was not changed."""
        delayq_of(self.ctx, heard=not self._choice.dry_run)
        if self._is_picked:
            is_done = self._change_selection(what)
        elif self._is_read:
            is_done = self._change_read(what)
        else:
            outcomes = [self._change_named(what, who) for who in self._named]
            is_done = all(outcomes)
        if not is_done:
            self.ctx.exit(1)

    def _change_selection(self, what: Operation) -> bool:
        choice = self._choice
        with UsageErrors():
            selection = RewritableSelection(self.delayq.services, self._picks)
        with ErrorSentences():
            asks = choice.dry_run or not choice.yes
            would = what.many(selection, dry_run=True, progress=None) if asks else None
            if choice.dry_run:
                self.say(f"{counted(would or 0)} would be {what.done}{what.aim()}")
                self._hint(would)
                return True
            if would is not None and not would:
                if what.none is not None:
                    what.none(would)
                return self._told(what, would)
            if would is not None:
                confirm(f"{what.word} {counted(would)}{what.aim()}?")

            def told(count: int) -> str:
                return f"{counted(count)} {what.done}{what.rest}"

            with counting(self.ctx, what.word, told, would, what.tell) as taken:
                try:
                    count = what.many(selection, dry_run=False, progress=taken)
                except DelayQError as error:
                    if error.so_far is not None:
                        self.warn(f"{counted(error.so_far)} {what.done} so far")
                    raise
            return self._told(what, count)

    def _change_named(self, what: Operation, who: Target) -> bool:
        """Change one task, print the outcome, and return whether it was changed."""
        try:
            sentence = self._refusal(what, who)
        except StoreError as error:
            sentence = advised(f"Error: {error}")
        if sentence is None:
            self.say(plain(f"task {who} {what.done}{what.beside()}"))
        else:
            self.warn(sentence)
        return sentence is None

    def _refusal(self, what: Operation, who: Target) -> str | None:
        """Change one task; return why it was not changed, or ``None`` if it was.

        Raises:
            StoreError: the store failed, so other tasks would fail too.
        """
        try:
            outcome = what.one(
                self.delayq, who.task_id, key=who.key, if_revision=self._choice.if_revision
            )
        except StoreError:
            raise
        except DelayQError as error:
            return advised(f"Error: {error}")
        if outcome:
            return None
        if outcome in (Outcome.HANDED_OVER, Outcome.NOT_FOUND):
            return plain(why_gone(self.delayq, zone_of(self.ctx), who))
        if outcome is Outcome.BEHIND:
            return plain(why_behind(self.delayq, zone_of(self.ctx), who))
        sentences = {**REFUSED, Outcome.UNCHANGED: self._unchanged(what)}
        return plain(sentences[outcome].format(who))

    def _unchanged(self, what: Operation) -> str:
        if self._choice.if_revision is None:
            return what.unchanged
        # With another condition, either may be the reason.
        alone = what.unchanged == REFUSED[Outcome.UNCHANGED]
        return _OTHER_REVISION if alone else REFUSED[Outcome.UNCHANGED]

    def _change_read(self, what: Operation) -> bool:
        """Change the tasks from standard input: print a count, and a line for each failure."""
        count, is_done = 0, True
        named = chain(self._named, (Target(task_id=each) for each in ids_read()))
        with (
            ErrorSentences(),
            counting(self.ctx, what.word, lambda so_far: f"{counted(so_far)} {what.done}") as taken,
        ):
            try:
                for who in named:
                    sentence = self._refusal(what, who)
                    if sentence is None:
                        count += 1
                    else:
                        is_done = False
                        self.warn(sentence)
                    taken(count)
            except (StoreError, click.ClickException):
                self.warn(f"{counted(count)} {what.done} so far")
                raise
        self.say(f"{counted(count)} {what.done}")
        return is_done

    def _hint(self, count: Count | None) -> None:
        """If there are none, note that a name may be misspelt."""
        if not count:
            filters = self._choice.filters
            say_unknown(self.ctx, queue=filters.queue, task=filters.task)

    def _told(self, what: Operation, count: Count) -> bool:
        self.say(f"{counted(count)} {what.done}")
        self._hint(count)
        if count and count.bulk:
            kept, _ = self.delayq.services.entries.undoable(count.bulk)
            which = "them" if kept == count else f"{kept} of the {counted(count)}"
            self.say(advised(_BACK.format(which, count.bulk)) if kept else _NO_WAY_BACK)
        if count.outstanding:
            self.say(f"REVOKED is still to be stored for {count.outstanding}; scanners do that")
        if count.uncertain:
            self.ctx.obj.error(f"of {count.uncertain} an earlier attempt may have delivered it")
        if count.behind:
            self.ctx.obj.error(f"{count.behind} of these wait behind tasks that hold their keys")
        if count.in_flight:
            self.ctx.obj.error(f"{count.in_flight} being published this moment; try again shortly")
        if count.unreadable:
            stay = "stays" if count.unreadable == 1 else "stay"
            self.ctx.obj.error(f"{counted(count.unreadable)} cannot be read, and {stay}")
        return count.is_complete

    def say(self, line: str) -> None:
        """Print a line."""
        self.ctx.obj.echo(line)

    def warn(self, line: str) -> None:
        """Print a line to standard error."""
        self.ctx.obj.error(line)


def meaning(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose tasks to a command, which gets a :class:`ChosenTasks`."""
    return _IDS(_KEY(_REVISION(meaning_many(command))))


def meaning_many(command: Callable[..., None]) -> Callable[..., None]:
    """Like :func:`meaning`, for a command that takes a selection only."""

    @click.pass_context
    @wraps(command)
    def decorated(ctx: click.Context, /, **given: Any) -> None:
        chosen = ChosenTasks(ctx, taken(Choice, given))
        command(chosen, **given)

    chosen_by = zoned(decorated)
    for name, text in reversed(_OPTIONS):
        option = click.option(name, is_flag=True, cls=CeleryOption, help_group=_GROUP, help=text)
        chosen_by = option(chosen_by)
    return picks(_GROUP)(_LIMIT(chosen_by))

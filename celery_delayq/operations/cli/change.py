"""The tasks that a command changes: ids, unique keys, or a selection, which it confirms first.

options --> Choice, as typed --> ChosenTasks --Operation, made by the command--> its outcome, told

The commands that change scheduled tasks: cancel, reschedule, run-now, retry, remove.

The command that changes what tasks are: ``edit``.

The command that sends tasks as plain Celery messages: ``release``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import wraps
from itertools import chain
from typing import Any, Protocol

import click

from ...core import clock
from ...core.clock import from_ms, to_ms
from ...core.errors import DelayQError, InvalidOption, StoreError
from ...core.services import HasServices
from ...core.store import Outcome
from ...core.tasks import changing
from ...core.tasks.changing import Changes, Direction
from ...core.tasks.scheduled_task import target_of
from ...core.tasks.selection import Count
from ...core.text import counted, plain
from .. import edits
from ..edits import KEPT, Edit
from ..selection import Released, RewritableSelection
from ..typed_times import GivenTime, told
from .common import (
    REFUSED,
    Argument,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    UsageErrors,
    advised,
    confirm,
    delayq_of,
    examples,
    name_of,
    soon,
    with_zone,
    zone_of,
    zoned,
)
from .input import (
    STDIN,
    Filters,
    TimeParam,
    earlier,
    ids_read,
    misplaced,
    moment_of,
    move_of,
    now_of,
    picks,
    say_unknown,
    taken,
    unquoted,
)
from .output import Target, counting, why_behind, why_gone

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


_NOT_DEAD = "task {} is not dead; nothing was changed"
_NOT_DUE = "task {} is not due at the time of --if-due; nothing was changed"
_NO_MOVE = "task {{}} would not move {0}, as --only requires; nothing was changed"
_EITHER = "task {{}} is not due at --if-due, or would not move {0}; nothing was changed"


@click.command(
    cls=CeleryCommand,
    epilog=examples(
        "cancel order-42 order-43", "cancel --tag user:7 --dry-run", "cancel - --yes < ids.txt"
    ),
)
@meaning
@click.option(
    "--revoke", is_flag=True, cls=CeleryOption, help_group="Tasks",
    help="Tell the workers to drop tasks that were already delivered; by id only.",
)  # fmt: skip
def cancel(meant: ChosenTasks, revoke: bool) -> None:
    """Cancel scheduled tasks."""

    def one(
        delayq: HasServices, task_id: str | None, /, *, key: str | None, if_revision: int | None
    ) -> Outcome:
        return changing.cancel(delayq, task_id, key=key, revoke=revoke, if_revision=if_revision)

    meant.change(Operation("cancel", "cancelled", one, RewritableSelection.cancel))


class _Moving(CeleryCommand):
    """Suggests the right command line if a time is misplaced."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)  # a copy, as parsing empties the list
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _meant(ctx, earlier(error.option_name, words)) or error from None
        except click.BadParameter as error:
            is_when = error.param is not None and error.param.name == "when"
            raise (is_when and _meant(ctx, misplaced(words))) or error from None
        hint = unquoted(ctx.params["ids"] or (), ctx.params["when"])
        if hint:
            raise click.UsageError(hint, ctx)
        return rest


def _meant(ctx: click.Context, hint: str | None) -> click.UsageError | None:
    return None if hint is None else click.UsageError(hint, ctx)


@click.command(
    cls=_Moving,
    epilog=examples(
        "reschedule order-42 +2h",
        "reschedule order-42 2030-01-31T09:00 --local",
        "reschedule --tag user:7 --only later by:+1d --yes",
    ),
)
@meaning
@click.argument("when", type=TimeParam(due=True), cls=Argument, help="The time; see above.")
@click.option(
    "--only", type=click.Choice(["earlier", "later"]), cls=CeleryOption, help_group="Moves",
    help="Move tasks only in this direction.",
)  # fmt: skip
@click.option(
    "--if-due", type=TimeParam(), cls=CeleryOption, help_group="Moves",
    help="Move only tasks that are due at this time.",
)  # fmt: skip
def reschedule(
    meant: ChosenTasks, when: GivenTime, only: Direction | None, if_due: GivenTime | None
) -> None:
    """Give scheduled tasks another due time.

    WHEN is a day and a time, 'tomorrow 9:00', 'mon 9:00', '26 Nov 9:00', or 2030-01-31T09:00; Unix
    time in seconds; a delay from now, +30m, +1h30m, +90 (seconds); or one from a task's due time,
    by:+30m, by:-1d. The units are s, m, h and d.
    """
    with ErrorSentences():
        at, after, by = move_of(meant.ctx, when)
        if_due_at = None if if_due is None else moment_of(meant.ctx, if_due)
    due: datetime | None = None

    def one(
        delayq: HasServices, task_id: str | None, /, *, key: str | None, if_revision: int | None
    ) -> Outcome:
        nonlocal due
        zone = delayq.services.timezone
        times = {"at": at, "after": after, "by": by}
        what = changing.move_of(zone, only, if_due_at, if_revision, **times)
        outcome, change = changing.move(delayq.services, target_of(task_id, key), what)
        due = None if change.due_ms is None else from_ms(change.due_ms)
        return outcome

    def many(
        selection: RewritableSelection,
        /,
        *,
        dry_run: bool,
        progress: Callable[[Count], object] | None,
    ) -> Count:
        return selection.reschedule(
            at, after=after, by=by, only=only, if_due=if_due_at, dry_run=dry_run, progress=progress
        )

    def aim() -> str:
        if by is not None:
            return ", each from its own due time"
        zone = zone_of(meant.ctx)
        moment = from_ms(to_ms(moment_of(meant.ctx, when), zone))
        return f" to {told(moment, zone, name_of(zone))}, {soon(moment, now_of(meant.ctx))}"

    meant.change(
        Operation(
            "reschedule",
            "rescheduled",
            one,
            many,
            unchanged=_unchanged(only, if_due),
            beside=lambda: f" to {with_zone(due, zone_of(meant.ctx))}" if due else "",
            aim=aim,
        )
    )


def _unchanged(only: str | None, if_due: GivenTime | None) -> str:
    """Return the sentence for a task that does not meet the conditions of a move."""
    if only is None:
        return REFUSED[Outcome.UNCHANGED] if if_due is None else _NOT_DUE
    return (_NO_MOVE if if_due is None else _EITHER).format(only)


@click.command("run-now", cls=CeleryCommand, epilog=examples("run-now order-42"))
@meaning
def run_now(meant: ChosenTasks) -> None:
    """Deliver tasks now, even if they are paused or dead."""
    meant.change(Operation("run", "due now", changing.run_now, RewritableSelection.run_now))


@click.command(cls=CeleryCommand, epilog=examples("retry order-42", "retry --dead --queue mail"))
@meaning
def retry(meant: ChosenTasks) -> None:
    """Try to deliver dead tasks again."""
    retry, many = changing.retry, RewritableSelection.retry
    meant.change(Operation("retry", "due now", retry, many, unchanged=_NOT_DEAD))


@click.command(cls=CeleryCommand, epilog=examples("remove order-42", "remove --dead --dry-run"))
@meaning
def remove(meant: ChosenTasks) -> None:
    """Delete dead tasks, even unreadable ones."""
    remove, many = changing.remove, RewritableSelection.remove
    meant.change(Operation("remove", "removed", remove, many, unchanged=_NOT_DEAD))


_ONE_ID = "--new-key takes one task, by its id."
_CHANGES = (
    *("--args", "--kwargs", "--priority", "--expires"),
    *("--new-queue", "--new-key", "--add-tag", "--remove-tag"),
)


@click.command(
    cls=CeleryCommand,
    epilog=examples(
        "edit order-42 --args '[42, \"mail\"]'",
        "edit --key topup:7 --expires by:+30m --priority 3",
        "edit --queue old --new-queue new",
    ),
)
@meaning
@click.option("--args", cls=CeleryOption, help_group="Message", help="All arguments: a JSON list.")
@click.option(
    "--kwargs", cls=CeleryOption, help_group="Message", help="All keyword arguments: a JSON object."
)
@click.option("--priority", type=int, cls=CeleryOption, help_group="Message", help="0 to 255.")
@click.option(
    "--expires", type=TimeParam(due=True, never=True), cls=CeleryOption, help_group="Message",
    help="A time, +2h from now, by:+30m from its due time, or never.",
)  # fmt: skip
@click.option(
    "--new-queue", cls=CeleryOption, help_group="Place",
    help="The queue to send it to; your task_routes apply.",
)  # fmt: skip
@click.option("--new-key", cls=CeleryOption, help_group="Place", help="Its unique key; by id only.")
@click.option(
    "--add-tag", "add_tags", multiple=True, cls=CeleryOption, help_group="Place",
    help="A tag that it gets; may be given more than once.",
)  # fmt: skip
@click.option(
    "--remove-tag", "remove_tags", multiple=True, cls=CeleryOption, help_group="Place",
    help="A tag that it loses; may be given more than once.",
)  # fmt: skip
def edit(
    meant: ChosenTasks,
    *,
    args: str | None,
    kwargs: str | None,
    priority: int | None,
    expires: GivenTime | None,
    new_queue: str | None,
    new_key: str | None,
    add_tags: tuple[str, ...],
    remove_tags: tuple[str, ...],
) -> None:
    """Edit scheduled tasks.

    Change their arguments, priority, expiry, queue, key or tags. Values that you do not pass stay.
    """
    ctx = meant.ctx
    given = (args, kwargs, priority, expires, new_queue, new_key, add_tags, remove_tags)
    if all(value in (None, ()) for value in given):
        *most, last = _CHANGES
        raise click.UsageError(f"Say what to change: {', '.join(most)} or {last}.", ctx)
    named = ctx.params
    if new_key is not None and (named["keys"] or len(named["ids"]) != 1 or STDIN in named["ids"]):
        raise click.UsageError(_ONE_ID, ctx)
    with UsageErrors():
        changes: Changes = {
            "args": _json("--args", args),
            "kwargs": _json("--kwargs", kwargs),
            "priority": KEPT if priority is None else priority,
            "expires": _expires(ctx, expires),
            "queue": KEPT if new_queue is None else new_queue,
            "add_tags": add_tags,
            "remove_tags": remove_tags,
        }
        validated = Edit(**changes, key=KEPT if new_key is None else new_key)

    def one(
        delayq: HasServices, task_id: str | None, /, *, key: str | None, if_revision: int | None
    ) -> Outcome:
        return edits.apply(delayq.services, target_of(task_id, key), validated, if_revision)

    def many(
        selection: RewritableSelection,
        /,
        *,
        dry_run: bool,
        progress: Callable[[Count], object] | None,
    ) -> Count:
        return selection.edit(dry_run=dry_run, progress=progress, **changes)

    try:
        meant.change(Operation("edit", "edited", one, many))
    except TypeError as error:  # arguments that do not fit the task
        raise click.ClickException(plain(error)) from error


def _json(name: str, text: str | None) -> Any:
    if text is None:
        return KEPT
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidOption(name, text, "JSON") from None


def _expires(ctx: click.Context, given: GivenTime | None) -> Any:
    if given is None:
        return KEPT
    if given.kind == "by":
        return given.value
    if given.kind == "never":
        return None
    moment = moment_of(ctx, given)
    # `edit` would count a number from the due time.
    return moment if isinstance(moment, datetime) else from_ms(to_ms(moment, timezone.utc))


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

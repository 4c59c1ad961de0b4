"""The commands that change tasks: of ids, unique keys, or a selection, which they confirm first.

a row of ACTIONS --command_of--> its command, with the options that choose tasks
    | a Change: run
    +--> the method of DelayQ, or of a selection, that has its name --> the outcome in words

Below are those that have options of their own: cancel, reschedule, edit and release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import chain
from typing import Any, ClassVar

import click
from celery.utils.imports import import_from_cwd
from kombu.utils.imports import symbol_by_name

from ...core import clock
from ...core.clock import from_ms, to_ms
from ...core.errors import DelayQError, InvalidOption, StoreError, UnreadableRecord
from ...core.store import Outcome
from ...core.tasks import changing, reading
from ...core.tasks.scheduled_task import target_of
from ...core.tasks.selection import Count
from ...core.text import counted, plain
from ..actions import ACTIONS, REFUSED, Action
from ..edits import KEPT, Edit
from ..finding import ids_from
from ..selection import Edits, Released, RewritableSelection
from ..typed_times import MOVES, forms, told
from .common import (
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
    now_of,
    picks,
    say_unknown,
    taken,
    times_of,
    unquoted,
)
from .output import UUID, Target, counting, why_behind, why_gone

_BACK = "to {} {} back: celery -A proj delayq undo --bulk {}"
_NO_WAY_BACK = "none of them can be brought back: delayq_undo keeps no undo of theirs"
_OUTSTANDING = "{} will have the result REVOKED as soon as a scanner has stored it"
_SEVERAL = "the ids of more than one task begin with {!r}; nothing was changed, name one of them:"
_OTHER_REVISION = "task {} no longer has the revision of --if-revision; nothing was changed"


_SHORT = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,27}")  # the beginning of a UUID


@dataclass(frozen=True)
class _Choice:
    """The options that choose tasks, as they were typed."""

    filters: Filters
    all: bool
    limit: int | None
    dry_run: bool
    yes: bool
    ids: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    if_revision: int | None = None


class Change:
    """A run of the command of a change.

    Attributes:
        more: What the command's help says behind the first sentence.
        options: The command's own options.
        kind: The command's class.
        rest: The text after the number of finished tasks if Ctrl-C interrupts a selection.
        action: What is done.
        unchanged: The sentence for a task that does not meet a condition.
        how: The method's further arguments.
    """

    more: ClassVar[str] = ""
    options: ClassVar[tuple[Callable[[Any], Any], ...]] = ()
    kind: ClassVar[type[CeleryCommand]] = CeleryCommand
    rest: ClassVar[str] = ""

    def __init__(self, action: Action, ctx: click.Context, choice: _Choice, **own: Any) -> None:
        self.action, self.unchanged = action, action.unchanged
        self.done, self.verb = action.done, action.verb or action.name
        self.ctx, self.choice, self.say, self.warn = ctx, choice, ctx.obj.echo, ctx.obj.error
        ids, filters = choice.ids, choice.filters
        self._is_read = STDIN in ids
        self._named = [Target(task_id=each) for each in ids if each != STDIN]
        self._named += [Target(key=key) for key in choice.keys]
        is_one = len(self._named) == 1 and not self._is_read
        is_named = self._is_read or bool(self._named)
        self.is_picked = choice.all or bool(filters.named)
        if is_named and self.is_picked:
            raise click.UsageError("Name tasks by id or --key, or select some, not both.", ctx)
        if not (is_named or self.is_picked):
            named = "Name tasks by id or --key, or select" if action.of_one else "Select"
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
        self.how = self.read(**own)

    # What a row may say of its own.

    def read(self, **own: Any) -> dict[str, Any]:
        """Return the method's further arguments, from the command's own options."""
        return own

    def one(self, who: Target) -> Outcome:
        """Change one task."""
        key = {} if who.key is None else {"key": who.key}
        method = getattr(self.delayq, self.action.name)
        outcome: Outcome = method(
            who.task_id, **key, if_revision=self.choice.if_revision, **self.how
        )
        return outcome

    def many(self, selection: RewritableSelection, **run: Any) -> Any:
        """Change the tasks of a selection; *run* has ``dry_run`` and ``progress``."""
        return getattr(selection, self.action.name)(**self.how, **run)

    def aim(self) -> str:
        """Return the text after the number of tasks in the question before a selection."""
        return ""

    def beside(self) -> str:
        """Return the text after each single task that was changed."""
        return ""

    def tell(self, count: int) -> None:
        """Take note of the number of finished tasks of a selection, without a terminal."""

    def none(self, count: Any) -> None:
        """Take note that a selection matches no task."""

    # Its run.

    def run(self) -> None:
        """Change the tasks and print the outcome; exit with 1 if a task was not changed."""
        self.delayq: Any = delayq_of(self.ctx, heard=not self.choice.dry_run)
        if self.choice.if_revision is not None:
            # With another condition, either may be the reason.
            alone = self.unchanged == REFUSED[Outcome.UNCHANGED]
            self.unchanged = _OTHER_REVISION if alone else REFUSED[Outcome.UNCHANGED]
        if self.is_picked:
            is_done = self._change_selection()
        elif self._is_read:
            is_done = self._change_read()
        else:
            outcomes = [self._change_named(self._whole(who)) for who in self._named]
            is_done = all(outcomes)
        if not is_done:
            self.ctx.exit(1)

    def _change_selection(self) -> bool:
        choice = self.choice
        with UsageErrors():
            selection = RewritableSelection(self.delayq.services, self._picks)
        with ErrorSentences():
            asks = choice.dry_run or not choice.yes
            would = self.many(selection, dry_run=True, progress=None) if asks else None
            if choice.dry_run:
                self.say(f"{counted(would or 0)} would be {self.done}{self.aim()}")
                self._hint(would)
                return True
            if would is not None and not would:
                self.none(would)
                return self._told(would)
            if would is not None:
                confirm(f"{self.verb} {counted(would)}{self.aim()}?")

            def told(count: int) -> str:
                return f"{counted(count)} {self.done}{self.rest}"

            with counting(self.ctx, self.verb, told, would, self.tell) as taken:
                try:
                    count = self.many(selection, dry_run=False, progress=taken)
                except DelayQError as error:
                    if error.so_far is not None:
                        self.warn(f"{counted(error.so_far)} {self.done} so far")
                    raise
            return self._told(count)

    def _whole(self, who: Target) -> Target:
        """Return the only task whose UUID begins as was typed; if there are more, end with them.

        An id that is no UUID is always whole: ``order-4`` never means ``order-42``.
        """
        short = who.task_id
        if short is None or not _SHORT.fullmatch(short):
            return who
        with ErrorSentences():
            try:
                if reading.get(self.delayq, short) is not None:
                    return who
            except UnreadableRecord:  # but it is there
                return who
            found = [each for each in ids_from(self.delayq, short) if UUID.fullmatch(each)]
        if len(found) > 1:
            self.warn(_SEVERAL.format(short))
            for each in found:
                self.warn(each)
            self.ctx.exit(1)
        return Target(found[0]) if found else who

    def _change_named(self, who: Target) -> bool:
        """Change one task, print the outcome, and return whether it was changed."""
        try:
            sentence = self._refusal(who)
        except StoreError as error:
            sentence = advised(f"Error: {error}")
        if sentence is None:
            self.say(plain(f"task {who} {self.done}{self.beside()}"))
        else:
            self.warn(sentence)
        return sentence is None

    def _refusal(self, who: Target) -> str | None:
        """Change one task; return why it was not changed, or ``None`` if it was.

        Raises:
            StoreError: the store failed, so other tasks would fail too.
        """
        try:
            outcome = self.one(who)
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
        sentences = {**REFUSED, Outcome.UNCHANGED: self.unchanged}
        return plain(sentences[outcome].format(who))

    def _change_read(self) -> bool:
        """Change the tasks from standard input: print a count, and a line for each failure."""
        count, is_done = 0, True
        named = chain(self._named, (Target(task_id=each) for each in ids_read()))
        with (
            ErrorSentences(),
            counting(self.ctx, self.verb, lambda so_far: f"{counted(so_far)} {self.done}") as taken,
        ):
            try:
                for who in named:
                    sentence = self._refusal(who)
                    if sentence is None:
                        count += 1
                    else:
                        is_done = False
                        self.warn(sentence)
                    taken(count)
            except (StoreError, click.ClickException):
                self.warn(f"{counted(count)} {self.done} so far")
                raise
        self.say(f"{counted(count)} {self.done}")
        return is_done

    def _hint(self, count: Count | None) -> None:
        """If there are none, note that a name may be misspelt."""
        if not count:
            filters = self.choice.filters
            say_unknown(self.ctx, queue=filters.queue, task=filters.task)

    def _told(self, count: Count) -> bool:
        self.say(f"{counted(count)} {self.done}")
        self._hint(count)
        if count and count.bulk:
            kept, _ = self.delayq.services.entries.undoable(count.bulk)
            which = "them" if kept == count else f"{kept} of the {counted(count)}"
            verb = "move" if self.action.takes == "time" else "bring"
            self.say(advised(_BACK.format(verb, which, count.bulk)) if kept else _NO_WAY_BACK)
        if count.outstanding:
            self.say(_OUTSTANDING.format(counted(count.outstanding)))
        if count.uncertain:
            self.warn(f"of {count.uncertain} an earlier attempt may have delivered it")
        if count.behind:
            self.warn(f"{count.behind} of these wait behind tasks that hold their keys")
        if count.in_flight:
            self.warn(f"{count.in_flight} being published this moment; try again shortly")
        if count.unreadable:
            stay = "stays" if count.unreadable == 1 else "stay"
            self.warn(f"{counted(count.unreadable)} cannot be read, and {stay}")
        return count.is_complete


_TASKS, _SELECTION = (
    {"cls": CeleryOption, "help_group": group} for group in ("Tasks", "Selection")
)
_NAMED = (
    click.argument(
        "ids", metavar="[ID | -]...", nargs=-1, cls=Argument,
        help="Ids of tasks; of a UUID, its first 8 characters or more. - reads whole ids from "
        "standard input, one on each line.",
    ),
    click.option(
        "--key", "keys", multiple=True, **_TASKS,
        help="The task with this unique key; may be given more than once.",
    ),
    click.option(
        "--if-revision", type=click.IntRange(0), **_TASKS,
        help="Only if `show` still has this revision; for one task.",
    ),
)  # fmt: skip
_PICKED = (
    picks("Selection"),
    click.option(
        "--limit", type=click.IntRange(0), **_SELECTION,
        help="Only the first so many of these, in the order of scheduling.",
    ),
    click.option("--all", is_flag=True, **_SELECTION, help="All tasks."),
    click.option(
        "--dry-run", is_flag=True, **_SELECTION,
        help="Only count the tasks; for a selection, not for ids or keys.",
    ),
    click.option("--yes", is_flag=True, **_SELECTION, help="Do not ask for confirmation."),
    zoned,
)  # fmt: skip


def command_of(action: Action) -> click.Command:
    """Return the command of a change."""
    change = _WITH_OPTIONS.get(action.name, Change)

    @click.pass_context
    def run(ctx: click.Context, /, **given: Any) -> None:
        change(action, ctx, taken(_Choice, given), **given).run()

    decorated: Any = run
    for option in reversed((*(_NAMED if action.of_one else ()), *_PICKED, *change.options)):
        decorated = option(decorated)
    return click.command(
        action.command,
        cls=change.kind,
        epilog=examples(*action.examples),
        help=f"{action.says}\n\n{change.more}",
    )(decorated)


class _Cancel(Change):
    options = (
        click.option(
            "--revoke", is_flag=True, **_TASKS,
            help="Tell the workers to drop tasks that were already delivered; by id only.",
        ),
    )  # fmt: skip

    def read(self, **own: Any) -> dict[str, Any]:
        return {} if self.is_picked else own


_NOT_DUE = "task {} is not due at the time of --if-due; nothing was changed"
_NO_MOVE = "task {{}} would not move {0}, as --only requires; nothing was changed"
_EITHER = "task {{}} is not due at --if-due, or would not move {0}; nothing was changed"
_MOVES = {"cls": CeleryOption, "help_group": "Moves"}


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


class _Reschedule(Change):
    more = f"WHEN has one of these forms. {forms(MOVES)}"
    kind = _Moving
    options = (
        click.argument("when", type=TimeParam(due=True), cls=Argument, help="The time; see above."),
        click.option(
            "--only", type=click.Choice(["earlier", "later"]), **_MOVES,
            help="Move tasks only in this direction.",
        ),
        click.option(
            "--if-due", type=TimeParam(), **_MOVES,
            help="Move only tasks that are due at this time.",
        ),
    )  # fmt: skip
    _due_ms: int | None = None  # of the task that was moved last

    def read(self, **own: Any) -> dict[str, Any]:
        self._when, only, if_due = own["when"], own["only"], own["if_due"]
        if only is not None:
            self.unchanged = (_NO_MOVE if if_due is None else _EITHER).format(only)
        elif if_due is not None:
            self.unchanged = _NOT_DUE
        with ErrorSentences():
            times = times_of(self.ctx, self._when)
            at_due = None if if_due is None else moment_of(self.ctx, if_due)
        return {**times, "only": only, "if_due": at_due}

    def one(self, who: Target) -> Outcome:
        services, revision = self.delayq.services, self.choice.if_revision
        what = changing.move_of(services.timezone, if_revision=revision, **self.how)
        outcome, change = changing.move(services, target_of(*who), what)
        self._due_ms = change.due_ms
        return outcome

    def aim(self) -> str:
        if self._when.kind == "by":
            return ", each from its own due time"
        zone = zone_of(self.ctx)
        moment = from_ms(to_ms(moment_of(self.ctx, self._when), zone))
        return f" to {told(moment, zone, name_of(zone))}, {soon(moment, now_of(self.ctx))}"

    def beside(self) -> str:
        if self._due_ms is None:
            return ""
        return f" to {with_zone(from_ms(self._due_ms), zone_of(self.ctx))}"


_MESSAGE, _PLACE, _CODE = (
    {"cls": CeleryOption, "help_group": group} for group in ("Message", "Place", "Other code")
)
#: The options of an edit; a rule has some of them, too.
CHANGES: dict[str, dict[str, Any]] = {
    "--args": {**_MESSAGE, "help": "All arguments: a JSON list."},
    "--kwargs": {**_MESSAGE, "help": "All keyword arguments: a JSON object."},
    "--priority": {**_MESSAGE, "type": int, "help": "0 to 255."},
    "--expires": {
        **_MESSAGE,
        "type": TimeParam(due=True, never=True),
        "help": "A time, +2h from now, by:+30m from its due time, or never.",
    },
    "--new-queue": {**_PLACE, "help": "The queue to send it to; your task_routes apply."},
    "--new-key": {**_PLACE, "help": "Its unique key; by id only."},
    "--add-tag": {
        **_PLACE, "multiple": True, "help": "A tag that it gets; may be given more than once."
    },
    "--remove-tag": {
        **_PLACE, "multiple": True, "help": "A tag that it loses; may be given more than once."
    },
    "--to-task": {
        **_CODE, "multiple": True, "metavar": "NAME|OLD=NEW",
        "help": "The task's new name; or OLD=NEW, also for links and parts of canvases.",
    },
    "--with": {
        **_CODE, "metavar": "MODULE:FUNCTION",
        "help": "A function of (args, kwargs) that returns the new ones, or None if they stay.",
    },
}  # fmt: skip


_OF_RULES = "{} of rules left alone: rules edit, with the same options, changes their rules"


class _Edit(Change):
    more = """
    Change their arguments, task, priority, expiry, queue, key or tags. Values that you do not pass
    stay. With --to-task or --with, a dry run shows the first five before and after, and which do
    not fit.
    """
    options = tuple(click.option(name, **how) for name, how in CHANGES.items())
    _refused = 0

    def read(self, **given: Any) -> dict[str, Any]:
        moves = code_options(given.pop("to_task"), given.pop("with"), self.ctx)
        if not moves and all(value in (None, ()) for value in given.values()):
            *most, last = CHANGES
            raise click.UsageError(f"Say what to change: {', '.join(most)} or {last}.", self.ctx)
        given = {name: KEPT if value is None else value for name, value in given.items()}
        key, ids = given["new_key"], self.choice.ids
        if key is not KEPT and (self.choice.keys or len(ids) != 1 or STDIN in ids):
            raise click.UsageError("--new-key takes one task, by its id.", self.ctx)
        with UsageErrors():
            changes = {
                "args": _json("--args", given["args"]),
                "kwargs": _json("--kwargs", given["kwargs"]),
                "priority": given["priority"],
                "expires": self._expires(given["expires"]),
                "queue": given["new_queue"],
                "add_tags": given["add_tag"],
                "remove_tags": given["remove_tag"],
                **moves,
                **({} if key is KEPT else {"key": key}),
            }
            Edit(**changes)  # before the first task
        return changes

    def one(self, who: Target) -> Outcome:
        try:
            return super().one(who)
        except (DelayQError, TypeError):
            raise
        except Exception as error:
            if "change" not in self.how:
                raise
            raise click.ClickException(plain(f"{type(error).__name__}: {error}")) from error

    def many(self, selection: RewritableSelection, **run: Any) -> Edits:
        count: Edits = super().many(selection, **run)
        if run["dry_run"]:
            for task_id, before, after in count.first:
                self.say(plain(f"task {task_id}"))
                self.say(plain(f"  - {before}"))
                self.say(plain(f"  + {after}"))
        # After the question, only what came of it.
        self._refused = count.refused
        for task_id, why in count.why:
            self.warn(plain(f"task {task_id} stays: {why}"))
        if count.refused > len(count.why):
            self.warn(f"and {counted(count.refused - len(count.why))} more")
        if count.of_rules:
            self.warn(_OF_RULES.format(counted(count.of_rules)))
        return count

    def run(self) -> None:
        try:
            super().run()
        except TypeError as error:  # arguments that do not fit the task
            raise click.ClickException(plain(error)) from error
        if self._refused and self.choice.dry_run:
            self.ctx.exit(1)

    def _expires(self, given: Any) -> Any:
        if given is KEPT:
            return KEPT
        if given.kind in ("by", "never"):
            return given.value
        moment = moment_of(self.ctx, given)
        # `edit` would count a number from the due time.
        return moment if isinstance(moment, datetime) else from_ms(to_ms(moment, timezone.utc))


def code_options(names: Sequence[str], function: str | None, ctx: click.Context) -> dict[str, Any]:
    """Return the arguments of an edit that fits tasks to other code."""
    found = dict[str, Any]()
    pairs = [name.partition("=") for name in names]
    if pairs and len(pairs) == 1 and not pairs[0][1]:
        found["task"] = names[0]
    elif pairs:
        if not all(old and new for old, _, new in pairs):
            raise click.UsageError("--to-task takes one name, or OLD=NEW for each.", ctx)
        found["task"] = {old: new for old, _, new in pairs}
    if function is not None:
        try:
            # From the current directory, too, as Celery finds the app of -A.
            found["change"] = symbol_by_name(function, imp=import_from_cwd)
        except (ImportError, AttributeError, ValueError) as error:
            raise click.UsageError(plain(f"--with {function}: {error}"), ctx) from error
    return found


def _json(name: str, text: Any) -> Any:
    if text is KEPT:
        return KEPT
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidOption(name, text, "JSON") from None


TELL_EVERY = 5.0  # seconds
_AGAIN = "a scanner sends them, or run this command again"
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


class _Release(Change):
    more = """
    Their eta is their due time. They go now, in due order, even if they are paused, and workers
    wait until the eta, with or without this package. If it is killed, run it again.
    """
    options = (
        click.option(
            "--canvas", is_flag=True, cls=CeleryOption, help_group="Messages",
            help="Also release canvases, which only a worker with this package can run.",
        ),
    )  # fmt: skip
    rest = "; a scanner sends released tasks, or run this command again"
    _is_warned = False

    def read(self, **own: Any) -> dict[str, Any]:
        self._told_at = clock.monotonic()
        return own

    def many(self, selection: RewritableSelection, **run: Any) -> Released:
        count: Released = super().many(selection, **run)
        if not run["dry_run"]:
            self.none(count)
        if not self._is_warned:
            self._warn(count)
        self._is_warned = True
        return count

    def tell(self, count: int) -> None:
        """Print the progress, every few seconds."""
        now = clock.monotonic()
        if now >= self._told_at + TELL_EVERY:
            self._told_at = now
            self.say(f"{counted(count)} released so far")

    def none(self, count: Released) -> None:
        """Send all released tasks, also those of earlier runs.

        It does not rely on a scanner, as none may be alive; a live one is not disturbed.
        """
        try:
            self.delayq.hand_over()
        except DelayQError as error:
            raise click.ClickException(
                f"{counted(count)} released, but not sent yet: {plain(error)}; {_AGAIN}"
            ) from error

    def _warn(self, count: Released) -> None:
        limit = self.delayq.services.broker.hold_limit
        if count.beyond and limit is not None:
            self.warn(_BEYOND[limit.name].format(count.beyond, limit.seconds))
        if count.dead:
            stay = "task stays" if count.dead == 1 else "tasks stay"
            self.warn(f"{count.dead} dead {stay}: retry or remove them")


_WITH_OPTIONS: dict[str, type[Change]] = {
    "cancel": _Cancel,
    "reschedule": _Reschedule,
    "edit": _Edit,
    "release": _Release,
}
COMMANDS = [command_of(action) for action in ACTIONS.values()]

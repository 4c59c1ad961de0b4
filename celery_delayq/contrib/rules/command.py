"""The command ``rules``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...core.errors import DelayQError
from ...core.text import counted, plain
from ...operations.cli.change import CHANGES, code_options
from ...operations.cli.common import (
    STAMP,
    Argument,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    confirm,
    delayq_of,
    examples,
    json_option,
    name_of,
    stamp,
    with_zone,
    zone_of,
    zoned,
)
from ...operations.cli.output import Column, Line, Room, Screen, table

if TYPE_CHECKING:
    from ...core.services import Services
    from .face import Rule


# The order in which columns of a row that is too wide shrink; names late, as people type them.
_NAME, _TASK, _SCHEDULE, _ZONE, _FROM, _NEXT = range(6)
_GIVES = (
    (_NEXT, 32), (_FROM, 8), (_TASK, 16), (_SCHEDULE, 16), (_ZONE, 8), (_FROM, 0), (_ZONE, 0),
    (_NEXT, STAMP), (_TASK, 9), (_NAME, 16), (_SCHEDULE, 9),
)  # fmt: skip
_DONE = {"pause": "paused", "resume": "resumed", "remove": "removed"}
_ALREADY = {"pause": "is paused already", "resume": "is not paused", "remove": "is not there"}
_STYLES = {"paused": "yellow", "trouble": "red", "overdue": "red"}
_ACTIONS = ("list", "show", *_DONE, "edit", "skip", "unskip", "run", "import")
_DIALECTS = ("cron", "celery")
_SOURCES = ("redbeat", "django-celery-beat")


@click.command(
    cls=CeleryCommand, epilog=examples(
        "rules", "rules pause digest", "rules list --json", "rules import --from redbeat --dry-run",
        "rules edit digest --schedule '0 6 * * *' --tz Asia/Tokyo",
        "rules edit --all --to-task shop.mail=shop.send_mail",
    ),
)  # fmt: skip
@click.argument(
    "action", type=click.Choice(_ACTIONS), default="list", cls=Argument,
    help="What to do; list by default.",
)  # fmt: skip
@click.argument("names", metavar="[NAME]...", nargs=-1, cls=Argument, help="Names of rules.")
@click.option(
    "--from", "source", type=click.Choice(_SOURCES), cls=CeleryOption, help_group="Importing",
    help="The scheduler whose entries import turns into rules.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group="Importing",
    help="Show only what import would do.",
)  # fmt: skip
@click.option(
    "--remove", "removes", is_flag=True, cls=CeleryOption, help_group="Importing",
    help="Remove the rules of this scheduler whose entries are gone.",
)  # fmt: skip
@click.option(
    "--schedule", cls=CeleryOption, help_group="Editing",
    help="Five fields, such as '0 6 * * *', or seconds, such as 'every 90 s'.",
)  # fmt: skip
@click.option(
    "--tz", cls=CeleryOption, help_group="Editing",
    help="The zone of the fields; by default the one that the rule has.",
)  # fmt: skip
@click.option(
    "--dialect", type=click.Choice(_DIALECTS), cls=CeleryOption, help_group="Editing",
    help="What fields mean that restrict the day of the month and the weekday: either, or both.",
)  # fmt: skip
@click.option("--to-task", **CHANGES["--to-task"])
@click.option("--with", "function", **CHANGES["--with"])
@click.option(
    "--back-to-code", "back", is_flag=True, cls=CeleryOption, help_group="Editing",
    help="Let the schedule count again that code says.",
)  # fmt: skip
@click.option(
    "--all", "every_one", is_flag=True, cls=CeleryOption, help_group="Many",
    help="Pause, resume or remove all rules; or fit all to other code.",
)  # fmt: skip
@click.option(
    "--yes", is_flag=True, cls=CeleryOption, help_group="Many",
    help="Do not ask for confirmation.",
)  # fmt: skip
@zoned
@json_option
@click.pass_context
def rules(
    ctx: click.Context, /, action: str, names: tuple[str, ...], *, source: str | None,
    dry_run: bool, removes: bool, schedule: str | None, tz: str | None, dialect: str | None,
    to_task: tuple[str, ...], function: str | None, back: bool, every_one: bool, yes: bool,
    as_json: bool, **_: Any,
) -> None:  # fmt: skip
    """List the recurring tasks, or change some.

    To pause or remove a rule cancels the runs that it has written ahead. skip leaves out the next
    run only, and unskip brings back those that were skipped; run sends the task now, beside the
    schedule. edit gives another schedule, over the one that code says; or, with --to-task or
    --with, fits the rule to other code. import makes a rule of each entry of another scheduler, or
    of those that you name; a disabled one is paused. The entries stay. Exits with 1 if an entry was
    refused, or is gone and its rule stays.
    """
    edit = Edit(schedule, tz, dialect or "", back, code_options(to_task, function, ctx))
    all_of = edit.all_of if every_one else None
    wrong = _wrong(action, names, source, of_import=dry_run or removes, all_of=all_of)
    if wrong := wrong or edit.wrong(action):
        raise click.UsageError(wrong, ctx)
    from . import face

    services = delayq_of(ctx, heard=action not in ("list", "show")).services
    if source is not None:
        from .importing import import_rules

        options = {"removes": removes, "dry_run": dry_run, "as_json": as_json}
        with ErrorSentences():
            import_rules(ctx, services, source, names, **options)
        return
    with ErrorSentences():
        if every_one:
            _change_all(ctx, services, action, edit, yes=yes)
            return
        if action == "list":
            _list(ctx, services, names, as_json=as_json)
            return
        if action in _DONE:  # also of a rule that this version cannot read
            answers = [_change(ctx, services, name, action) for name in names]
        elif action == "edit":
            answers = [_edit(ctx, services, name, edit) for name in names]
        else:
            answers = [_act(ctx, face.named(services, name), name, action) for name in names]
    if not all(answers):
        ctx.exit(1)


_UNREAD = "rule {} cannot be read: {}"
_OF_EDIT = "--schedule, --tz, --dialect, --to-task, --with and --back-to-code are of edit."
_NEEDS = (
    "edit needs --schedule, with or without --tz and --dialect; or --to-task or --with; or "
    "--back-to-code."
)


class Edit(NamedTuple):
    """What the options of editing say."""

    schedule: str | None
    tz: str | None
    dialect: str
    back: bool
    moves: dict[str, Any]

    @property
    def all_of(self) -> tuple[str, ...]:
        """The actions that take --all."""
        return (*_DONE, "edit") if self.moves else (*_DONE,)

    def wrong(self, action: str) -> str:
        """Return what is wrong with them; empty if nothing is."""
        if action != "edit":
            return _OF_EDIT * any(self)
        others = (self.schedule, self.tz, self.dialect, self.back)
        if self.moves:
            return "--to-task and --with take no schedule." * any(others)
        if self.back is (self.schedule is not None) or (self.back and (self.tz or self.dialect)):
            return _NEEDS
        return ""


def _edit(ctx: click.Context, services: Services, name: str, edit: Edit) -> bool:
    from . import face

    rule = face.named(services, name)
    if rule is None:
        ctx.obj.error(plain(f"there is no rule {name}"))
        return False
    if edit.moves:
        return _rewrite(ctx, services, rule, edit.moves)
    if edit.back:
        is_done = rule.back_to_code()
    else:
        is_done = rule.edit(edit.schedule, tz=edit.tz, dialect=edit.dialect)
    now = face.named(services, name)
    has = f"has the schedule {now.schedule} ({now.tz})" if now else "is gone"
    said = f"rule {name} {has}" + ("" if is_done else " already")
    (ctx.obj.echo if is_done else ctx.obj.error)(plain(said))
    return is_done


def _rewrite(ctx: click.Context, services: Services, rule: Rule, moves: dict[str, Any]) -> bool:
    """Fit a rule to other code; return whether it fits."""
    from . import face

    try:
        is_done = rule.rewrite(**moves)
    except DelayQError:
        raise
    except Exception as error:  # of the user's function, or arguments that do not fit
        ctx.obj.error(plain(f"rule {rule.name} stays: {type(error).__name__}: {error}"))
        return False
    now = face.named(services, rule.name)
    if is_done and now:
        ctx.obj.echo(plain(f"rule {now.name} has the task {now.task}"))
    return True


def _wrong(
    action: str,
    names: tuple[str, ...],
    source: str | None,
    *,
    of_import: bool,
    all_of: tuple[str, ...] | None,
) -> str:
    """Return what is wrong with the options; empty if nothing is.

    With ``--all``, *all_of* are the actions that take it.
    """
    if (source is None) is (action == "import") or (of_import and source is None):
        return "import needs --from; --from, --dry-run and --remove are of import."
    if all_of is not None and (names or action not in all_of):
        return "--all is of pause, resume, remove, and edit with --to-task, without names."
    needs_names = action not in ("list", "import") and all_of is None
    return f"Name the rules to {action}." if needs_names and not names else ""


def _act(ctx: click.Context, rule: Rule | None, name: str, action: str) -> bool:
    if rule is None:
        ctx.obj.error(plain(f"there is no rule {name}"))
        return False
    if action == "show":
        _show_one(ctx, rule)
        return True
    if action == "run":
        ctx.obj.echo(plain(f"rule {name}: task {rule.run().id} runs now"))
        return True
    if action == "unskip":
        is_done = rule.unskip()
        said = "the skipped runs come again" if is_done else "no run was skipped"
        (ctx.obj.echo if is_done else ctx.obj.error)(plain(f"rule {name}: {said}"))
        return is_done
    skipped = rule.skip()
    if skipped is None:
        ctx.obj.error(plain(f"rule {name}: no run comes"))
        return False
    cancelled = f": task {skipped.id} is cancelled" if skipped.id else ""
    when = with_zone(skipped.due, zone_of(ctx))
    ctx.obj.echo(plain(f"rule {name}: the run of {when} is skipped{cancelled}"))
    return True


def _change_all(
    ctx: click.Context, services: Services, action: str, edit: Edit, *, yes: bool
) -> None:
    """Change all rules, also those that this version cannot read, if that can be done."""
    from .. import rule_store
    from . import face

    if action == "edit":
        read, unread = face.all_rules(services)
        names = [rule.name for rule in read]
    else:
        all_of_them = rule_store.each(services.entries)
        names, unread = sorted({rule.name for rule in all_of_them if not rule.is_removed}), {}
    if names and not yes:
        confirm(f"{action} {counted(len(names), 'rule')}?")
    if action == "edit":
        answers = [_edit(ctx, services, name, edit) for name in names]
        ctx.obj.echo(f"looked at {counted(len(names), 'rule')}")  # most may need no change
        for name, why in unread.items():
            ctx.obj.error(plain(_UNREAD.format(name, why)))
        if unread or not all(answers):
            ctx.exit(1)
        return
    done = sum(face.change(services, name, action) for name in names)
    ctx.obj.echo(f"{counted(done, 'rule')} {_DONE[action]}")


def _change(ctx: click.Context, services: Services, name: str, action: str) -> bool:
    from . import face

    if not face.is_there(services, name):
        ctx.obj.error(plain(f"there is no rule {name}"))
        return False
    is_done = face.change(services, name, action)
    say = ctx.obj.echo if is_done else ctx.obj.error
    say(plain(f"rule {name} {f'is {_DONE[action]}' if is_done else _ALREADY[action]}"))
    return is_done


def _list(ctx: click.Context, services: Services, names: tuple[str, ...], *, as_json: bool) -> None:
    from . import face

    read, unread = face.all_rules(services)
    _show(ctx, [rule for rule in read if not names or rule.name in names], as_json=as_json)
    for name, why in unread.items():
        if not names or name in names:
            ctx.obj.error(plain(_UNREAD.format(name, why)))


def _show(ctx: click.Context, found: list[Rule], *, as_json: bool) -> None:
    if as_json:
        for rule in found:
            ctx.obj.echo(json.dumps(_facts(rule)))
        return
    screen = Screen(ctx)
    screen.show(table_of(found, zone_of(ctx), screen.width))


def table_of(found: list[Rule], zone: tzinfo, width: int | None) -> Iterator[Line]:
    """Return the lines of a table of rules, fitted to *width* columns; ``None``: any width."""
    columns = [*map(Column, ("NAME", "TASK", "SCHEDULE", "ZONE", "FROM"))]
    columns.append(Column(f"NEXT ({name_of(zone)})", _STYLES))
    rows = (
        (
            *map(plain, (rule.name, rule.task, rule.schedule, rule.tz, _from(rule))),
            _next(rule, zone),
        )
        for rule in found
    )
    return table(columns, rows, None if width is None else Room(width, _GIVES))


def _from(rule: Rule) -> str:
    """Return what sets a rule: code that runs at each start; another scheduler; or a call.

    And who changed its schedule.
    """
    origin = rule.source or ("code" if rule.is_declared else "call")
    return f"{origin}, changed by {rule.edited.by}" if rule.edited else origin


def _next(rule: Rule, zone: tzinfo) -> str:
    if rule.trouble:
        return f"trouble: {plain(rule.trouble)}"
    if rule.is_paused:
        return "paused"
    if rule.overdue:
        return f"overdue since {stamp(rule.overdue, zone)}"
    coming = stamp(rule.next[0], zone) if rule.next else "never"
    return coming + ", made when due" * rule.is_made_when_due


def _show_one(ctx: click.Context, rule: Rule) -> None:
    zone, last = zone_of(ctx), rule.last_run()
    words = last.what.replace("_", " ") if last else ""
    coming = ", ".join(stamp(moment, zone) for moment in rule.next)
    facts = {
        "name": rule.name,
        "task": rule.task,
        "schedule": f"{rule.schedule} ({rule.tz})",
        "changed": _edited(rule, zone),
        "state": _state(rule, zone),
        "trouble": rule.trouble,
        f"next ({name_of(zone)})": coming,
        "skipped": ", ".join(stamp(moment, zone) for moment in rule.skipped),
        "runs": "made when due" if rule.is_made_when_due else "",
        "last run": f"{stamp(last.due, zone)} {words} {last.id}" if last else "none yet",
        "missed": rule.missed,
        "jitter": f"{rule.jitter:g} s" if rule.jitter else "",
        "tags": ", ".join(rule.tags),
        "version": str(rule.version or ""),
        "source": rule.source,
        "declared": "workers say it at each start" if rule.is_declared else "",
    }
    width = max(map(len, facts))
    for name, text in facts.items():
        if text:
            ctx.obj.echo(f"{name:{width}}  {plain(text)}")


def _edit_facts(rule: Rule) -> dict[str, str] | None:
    if rule.edited is None:
        return None
    by, at, schedule, tz = rule.edited
    return {"by": by, "at": at.isoformat(), "code_schedule": schedule, "code_tz": tz}


def _edited(rule: Rule, zone: tzinfo) -> str:
    if rule.edited is None:
        return ""
    by, at, schedule, tz = rule.edited
    return f"by {by}, {stamp(at, zone)}; code says {schedule} ({tz})"


def _state(rule: Rule, zone: tzinfo) -> str:
    if rule.is_paused:
        return "paused"
    if rule.overdue is None:
        return "at work"
    return f"overdue since {stamp(rule.overdue, zone)}: no worker has written or delivered its run"


def _facts(rule: Rule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "task": rule.task,
        "schedule": rule.schedule,
        "tz": rule.tz,
        "edited": _edit_facts(rule),
        "tags": [*rule.tags],
        "missed": rule.missed,
        "jitter": rule.jitter,
        "paused": rule.is_paused,
        "next": [moment.isoformat() for moment in rule.next],
        "skipped": [moment.isoformat() for moment in rule.skipped],
        "overdue": rule.overdue.isoformat() if rule.overdue else None,
        "last": rule.last.isoformat(),
        "revision": rule.revision,
        "version": rule.version,
        "source": rule.source,
        "declared": rule.is_declared,
        "trouble": rule.trouble or None,
        "made_when_due": rule.is_made_when_due,
    }

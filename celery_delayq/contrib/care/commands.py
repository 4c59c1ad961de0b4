"""The commands for the care of a store: check, doctor, dump, load, reshard and upgrade."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from ...core.errors import DelayQError
from ...core.servers.risks import Line as DoctorLine
from ...core.services import HasServices
from ...core.settings import MOST_SHARDS
from ...core.store.record import FORMAT
from ...core.tasks import reading
from ...core.tasks.scheduled_task import line_of_json
from ...core.text import counted, plain
from ...operations.cli.common import (
    Argument,
    CeleryCommand,
    CeleryOption,
    ErrorSentences,
    advised,
    aligned,
    confirm,
    delayq_of,
    examples,
    json_option,
)
from ...operations.cli.output import Line, Screen, counting
from .. import rule_store
from .check import KINDS, Finding, Repaired, check_store, repair_many
from .doctor import examine
from .dump import dump as dump_of
from .dump import wait_for_leases
from .lines import DUMP, END, RULE, UNREADABLE, text_of
from .load import Loaded, steps
from .migration import Estimate, Resharding, format_of, older_scanners, told
from .migration import upgrade as upgrade_of

SHOWN = 20  # findings of a kind that are shown in full

WORDS = {
    "done": "repaired",
    "back": "repaired; the task waits again",
    "late": "repaired; the task waits again, and will be skipped, as its grace period is over",
    "dead": "repaired; the task is dead",
    "lost": "repaired; the task is lost",
    "gone": "resolved by itself meanwhile",
    "left": "left alone",
}

RUNBOOK = "celery_delayq/docs/runbook.md"  # in the repository, not in a wheel
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_LEVEL, _NAME = 9, 19  # columns: those of the longest, and two more
_NARROW = 40  # least columns for a text
_AGAIN = "run the same command to continue"
_NOT_ASKED = "ids and keys were not compared with the tasks in this store"
_MOVING = "this store is not paused: tasks that come or go now may or may not be in the dump"
_UNREAD = {
    UNREADABLE: "{} unreadable, dumped as stored, and no load restores that; dump with the newest "
    "release that uses this store, and run check for details",
    RULE: "{} of a later release, dumped; only a release that reads the format can load that",
}
_LEAVING = (
    "this store is not paused: it remembers tasks that leave it only as long as delayq_remember "
    "says; then loading the same dump again may bring them back; pass --paused to prevent that"
)
_HAS = "the store's number of shards is %d"


@click.command(
    cls=CeleryCommand, epilog=examples("check", "check --json | jq .kind", "check --repair")
)
@click.option(
    "--repair", is_flag=True, cls=CeleryOption, help_group="Repair",
    help="Repair the findings, after listing them and asking.",
)  # fmt: skip
@click.option("--yes", is_flag=True, cls=CeleryOption, help_group="Repair", help="Do not ask.")
@json_option
@click.pass_context
def check(ctx: click.Context, /, repair: bool, yes: bool, as_json: bool, **_: Any) -> None:
    """Find inconsistencies in the store.

    Prints a line for each finding and exits with 1, or prints: nothing found. Changes nothing.

    With --repair it lists the findings and their repairs, asks, repairs and checks again. It exits
    with 1 if something is left. The step that repairs a finding checks it again, so consistent data
    stays as it is, and scheduling and delivery go on meanwhile.
    """
    if yes and not repair:
        raise click.UsageError("--yes is for --repair.", ctx)
    if as_json and repair and not yes:
        raise click.UsageError("--json --repair cannot ask: pass --yes.", ctx)
    checking = Check(ctx, as_json=as_json, asks=not yes)
    with ErrorSentences():
        is_clean = checking.repair() if repair else checking.find()
    if not is_clean:
        ctx.exit(1)


class Check:
    """One run of the command.

    Args:
        ctx: The command's context.
        as_json: Whether to print everything as JSON.
        asks: Whether to ask before changing anything.
    """

    def __init__(self, ctx: click.Context, *, as_json: bool, asks: bool) -> None:
        self._ctx, self._as_json, self._asks = ctx, as_json, asks
        self._delayq = delayq_of(ctx)

    def find(self) -> bool:
        """Print all findings; return whether there are none."""
        return not self._find()

    def repair(self) -> bool:
        """Check, ask, repair, check again; return whether nothing is left."""
        found = self._find("found")
        if not found:
            return True
        self._tell_kinds(Counter(finding.kind for finding in found))
        mendable = sum(bool(finding.repair) for finding in found)
        if not mendable:
            self._say("none of these can be repaired")
            return False
        if self._asks:
            confirm(f"repair {_counted(mendable)}?")
        delayq_of(self._ctx, heard=True)
        # Only the findings that were listed.
        self._mend(found)
        self._say("checking again")
        return not self._find("left")

    def _find(self, step: str = "") -> list[Finding]:
        """Return the findings and print them: all as JSON; in a repair, the first of each kind."""
        found: list[Finding] = []
        counts: Counter[str] = Counter()
        for finding in check_store(self._delayq.services.entries):
            found.append(finding)
            counts[finding.kind] += 1
            if self._as_json:
                self._print(({"step": step} if step else {}) | _facts_of(finding))
            elif not step or counts[finding.kind] <= SHOWN:
                self._say(plain(finding))
        for kind, count in counts.items():
            if step and count > SHOWN:
                self._say(f"and {count - SHOWN:,} more of {kind}")
        if not found:
            self._say("nothing found")
        return found

    def _tell_kinds(self, counts: Counter[str]) -> None:
        rows = [("found", "kind", "repair")]
        for kind, count in counts.items():
            does = KINDS[kind].repair or "none; it is only reported"
            rows.append((f"{count:,}", kind, does))
        self._say("")
        for line in aligned(rows):
            self._say(line)
        self._say("")

    def _mend(self, found: Sequence[Finding]) -> None:
        became: Counter[str] = Counter()
        with counting(
            self._ctx, "repair", lambda count: f"{_counted(count)} processed", len(found)
        ) as taken:
            for some in repair_many(self._delayq.services, found):
                for repaired in some:
                    became[repaired.what] += 1
                    self._tell(repaired)
                taken(became.total())
        for what, count in became.items():
            self._say(f"{count:,} {WORDS[what]}")

    def _tell(self, repaired: Repaired) -> None:
        """Print the result of a repair as JSON; otherwise only the log has lost and dead tasks."""
        if self._as_json:
            facts = {
                "kind": repaired.finding.kind,
                "id": repaired.finding.id,
                "what": repaired.what,
            }
            reason = {"reason": repaired.reason} if repaired.reason else {}
            self._print({"step": "repaired", **facts, **reason})

    def _print(self, facts: dict[str, str]) -> None:
        self._ctx.obj.echo(line_of_json(facts))

    def _say(self, line: str) -> None:
        if not self._as_json:
            self._ctx.obj.echo(line)


def _facts_of(finding: Finding) -> dict[str, str]:
    """Return a finding's fields for JSON."""
    return {
        "kind": finding.kind,
        "id": finding.id,
        **({} if finding.tag is None else {"tag": finding.tag}),
        "sentence": finding.sentence,
        "repair": finding.repair,
    }


def _counted(count: int) -> str:
    return "1 finding" if count == 1 else f"{count:,} findings"


@click.command(
    cls=CeleryCommand,
    epilog=examples("doctor", "doctor --json | jq -r 'select(.level != \"ok\").advice'"),
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, **_: Any) -> None:
    """Check store and broker, and say what to do.

    Prints a line for each requirement: ok; a warning, if tasks may be lost or late one day; or an
    error, if something does not work or will lose tasks. Advice follows below each. Exits with 1 if
    there is an error. It sends some hundred commands, and is safe at any time. For incidents see
    the project's runbook, celery_delayq/docs/runbook.md.
    """
    services = delayq_of(ctx).services
    screen, levels = Screen(ctx), set()
    with ErrorSentences():
        for found in examine(services):
            levels.add(found.level)
            if as_json:
                ctx.obj.echo(json.dumps(asdict(found)))
            else:
                screen.show(_shown(found, screen.width))
    if "error" in levels:
        click.echo(f"In an incident, see {RUNBOOK}", err=True)
        ctx.exit(1)


def _shown(found: DoctorLine, width: int | None) -> Iterator[Line]:
    """Return its lines, wrapped for a terminal; else one line, and one for the advice."""
    room = None if width is None else max(_NARROW, width - _LEVEL - _NAME)
    texts = _wrapped(plain(found.found), room)
    yield [
        (f"{found.level:<{_LEVEL}}", _STYLES[found.level]),
        (f"{found.name:<{_NAME}}", "bold"),
        (texts[0], ""),
    ]
    texts = texts[1:] + (_wrapped(f"-> {advised(found.advice)}", room) if found.advice else [])
    for text in texts:
        yield [(" " * (_LEVEL + _NAME), ""), (text, "")]


def _wrapped(text: str, room: int | None) -> list[str]:
    if room is None:
        return [text]
    # A command or a name stays whole, so that you can copy it.
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)


@click.command(cls=CeleryCommand, epilog=examples("dump > tasks.jsonl", "dump --wait 60 | gzip"))
@click.option(
    "--wait", type=click.FloatRange(0, 86400), default=0.0, cls=CeleryOption, help_group="Moving",
    metavar="SECONDS", help="Wait this long at most until nothing is being published; else exit 1.",
)  # fmt: skip
@click.pass_context
def dump(ctx: click.Context, /, wait: float, **_: Any) -> None:
    """Print the contents of the store as JSON lines.

    These are the waiting, in-flight and dead tasks, the pauses and the rules. It changes nothing.
    Before you move a store, pause everything and stop the processes that schedule. The last line
    counts the others, so load refuses a truncated dump. Exits with 1 if this release cannot read a
    task or a rule, and so could not load it.
    """
    delayq = delayq_of(ctx)
    latest: dict[str, dict[str, Any]] = {}  # kind -> line
    unread = Counter[str]()  # how many lines this release could not load, by kind

    def lines() -> Iterator[Line]:
        for line in dump_of(delayq):
            latest[line["kind"]] = line
            unread[line["kind"]] += _is_unread(line)
            if line["kind"] == DUMP:
                _say_how_it_stands(ctx, line)
            yield [(text_of(line), "")]

    with ErrorSentences():
        left = wait_for_leases(delayq.services, wait) if wait else 0
        if left:
            raise click.ClickException(f"{counted(left)} still being published; dumped nothing")
        Screen(ctx).show(lines())
    dumped = latest[END]["tasks"] + latest[END]["unreadable"]
    if latest[DUMP]["paused"] and (wrong := _wrong_count(dumped, delayq)):
        ctx.obj.error(wrong)
    for kind, count in (+unread).items():
        ctx.obj.error(_UNREAD[kind].format(counted(count, "rule" if kind == RULE else "task")))
    if unread.total():
        ctx.exit(1)


def _is_unread(line: dict[str, Any]) -> bool:
    """Whether this release cannot read what a line has, and so cannot load it."""
    kind = line["kind"]
    return kind == UNREADABLE or (kind == RULE and bool(rule_store.newer(line["plan"])))


def _say_how_it_stands(ctx: click.Context, first: dict[str, Any]) -> None:
    """Print warnings about the store, from the dump's first line."""
    if not first["paused"]:
        ctx.obj.error(_MOVING)
    if first["in_flight"]:
        ctx.obj.error(
            f"{counted(first['in_flight'])} being published: dumped as possibly delivered"
        )
    if first["owed"]:
        ctx.obj.error(
            f"REVOKED is not stored yet for {first['owed']}; this store's scanners do that, the "
            "dump does not have it"
        )


def _wrong_count(dumped: int, delayq: HasServices) -> str:
    """Return a warning if a paused store's counts differ from the dump; empty if they match.

    A dump reads the records; the counts come from the indexes that scanners read.
    """
    try:
        counts = reading.counts(delayq)
    except DelayQError as error:
        return f"could not compare the dump with the store's counts: {plain(error)}"
    kept = counts.scheduled + counts.paused + counts.in_flight + counts.dead
    if dumped == kept:
        return ""
    return (
        f"{counted(dumped)} dumped, but the store counts {kept} now: a process still schedules, "
        "cancels or publishes, or the store is inconsistent; run check"
    )


@click.command(
    cls=CeleryCommand, epilog=examples("load < tasks.jsonl", "load --dry-run < tasks.jsonl")
)
@click.option(
    "--skip-existing", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Skip tasks whose id or unique key another task in this store has.",
)  # fmt: skip
@click.option(
    "--paused", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Pause everything first, so that nothing is delivered until resume.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group="Loading",
    help="Only check the lines, not whether their ids and keys are taken.",
)  # fmt: skip
@click.pass_context
def load(ctx: click.Context, /, skip_existing: bool, paused: bool, dry_run: bool, **_: Any) -> None:
    """Load a dump from standard input.

    Each task is restored as it was, after the pauses. Loading the same tasks again adds nothing, so
    after an interruption you can run the same command again; if the store is not paused, as long as
    delayq_remember says. Exits with 1 if a task was not loaded.
    """
    if reads_terminal():
        raise click.UsageError("Pass a dump on standard input: load < FILE", ctx)
    done, warn = "can be read" if dry_run else "loaded", ctx.obj.error
    options = {"skip_existing": skip_existing, "paused": paused, "dry_run": dry_run}
    whole, failed = Loaded(), 0
    with (
        ErrorSentences(),
        counting(ctx, "load", lambda count: f"{counted(count)} {done}; {_AGAIN}") as taken,
    ):
        services = delayq_of(ctx).services
        services.entries.check_membership()
        try:
            for part in steps(services, sys.stdin.buffer, partial(warn, _LEAVING), **options):
                failed += _say_failed(ctx, part)
                whole.add(part)
                taken(whole.loaded)
        except DelayQError:
            warn(f"{counted(whole.loaded)} {done} so far")
            raise
    _say_what_came_of_it(ctx, whole, done)
    if failed:
        warn(f"{counted(failed)} not loaded")
    if dry_run:
        warn(_NOT_ASKED)
    if failed:
        ctx.exit(1)


def _say_failed(ctx: click.Context, part: Loaded) -> int:
    """Print why some were not loaded, and clear the list; return how many they are."""
    for error in part.refused:
        ctx.obj.error(plain(error))
    for task_id, why in part.unreadable:
        ctx.obj.error(f"task {plain(task_id)} was dumped as unreadable: {plain(why)}")
    count = len(part.refused) + len(part.unreadable)
    part.refused, part.unreadable = [], []
    return count


def _say_what_came_of_it(ctx: click.Context, whole: Loaded, done: str) -> None:
    ctx.obj.echo(f"{counted(whole.loaded)} {done}")
    if whole.here:
        ctx.obj.echo(f"{counted(whole.here)} here already")
    if whole.left:
        ctx.obj.error(f"{counted(whole.left)} left out: delivered or cancelled here since")
    if whole.skipped:
        ctx.obj.error(f"{counted(whole.skipped)} left out: another task has the id or the key")


def reads_terminal() -> bool:
    """Whether standard input is a terminal, or missing."""
    return sys.stdin is None or sys.stdin.isatty()


@click.command(
    cls=CeleryCommand,
    epilog=examples("reshard 6 --dry-run", "reshard 6", "reshard --abort"),
)
@click.argument(
    "shards", type=click.IntRange(1, MOST_SHARDS), required=False, cls=Argument,
    help="The new number of shards.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, cls=CeleryOption, help_group="Reshard",
    help="Only tell how long it takes, and how much memory.",
)  # fmt: skip
@click.option(
    "--abort", is_flag=True, cls=CeleryOption, help_group="Reshard",
    help="Give an unfinished resharding up; the store is as before.",
)  # fmt: skip
@click.option("--yes", is_flag=True, cls=CeleryOption, help_group="Reshard", help="Do not ask.")
@click.pass_context
def reshard(
    ctx: click.Context, /, shards: int | None, dry_run: bool, abort: bool, yes: bool, **_: Any
) -> None:
    """Move the store to another number of shards.

    Meanwhile nothing is scheduled, changed or delivered: such calls raise StoreUnavailable, and
    scanners wait. Reading goes on. It copies everything in the store; then the number changes,
    and it deletes the old keys. Running processes use the new number from then on, with a warning;
    set delayq_shards to it.

    If the command is interrupted, run it again to finish, or with --abort to give up. Until the
    number changes, the store is as before. It needs memory for a second copy of all tasks.
    """
    if (shards is None) is not abort or (abort and dry_run):
        raise click.UsageError("pass the new number of shards, or --abort.", ctx)
    services, say = delayq_of(ctx).services, ctx.obj.echo
    with (
        ErrorSentences(),
        counting(ctx, "reshard", _copied) as taken,
        closing(Resharding(services, taken)) as resharding,
    ):
        if shards is None:
            say("aborted" if resharding.abort() else "nothing to abort")
            return
        number, phase = resharding.shards(), resharding.under_way()
        if phase is None and number in (None, shards):
            say("no process has used this store yet" if number is None else _HAS % shards)
            return
        if phase is None or dry_run:
            say(_told(number or 1, shards, resharding.estimate(shards)))
        if dry_run:
            return
        if phase is None and not yes:
            confirm("continue?")
        resharding.run(shards)
        say(f"{_HAS % shards}; set delayq_shards to {shards}")


def _copied(count: int) -> str:
    return f"{count:,} tasks copied"


def _told(before: int, after: int, takes: Estimate) -> str:
    lacks = f"; Redis lacks {takes.lacks / 1e6:,.1f} MB of that" if takes.lacks else ""
    return (
        f"from {before} to {after} shards: {takes.entries:,} tasks; about {takes.seconds:,.0f} s "
        f"in which the store can only be read; {takes.bytes / 1e6:,.1f} MB more memory{lacks}"
    )


@click.command(cls=CeleryCommand, epilog=examples("upgrade"))
@click.option("--yes", is_flag=True, cls=CeleryOption, help="Do not ask for confirmation.")
@click.pass_context
def upgrade(ctx: click.Context, /, yes: bool, **_: Any) -> None:
    """Let tasks and rules be stored in the newest format.

    Run it after all processes have the new release, and once you do not want to go back to the one
    before. It asks first, as the format is never lowered: a process of an older release still
    cancels and moves the tasks, and pauses and removes the rules, and its scanner lays both aside
    for one that can read them. Changes nothing and exits with 1 if a scanner runs that cannot read
    the new format.
    """
    services = delayq_of(ctx).services
    with ErrorSentences():
        raises = "" < format_of(services.scripts) < FORMAT
        if raises and not yes and not older_scanners(services, FORMAT):
            confirm(f"store tasks and rules in format {FORMAT} from now on?")
        new = upgrade_of(services)
        old = older_scanners(services, FORMAT) if new < FORMAT else []
    ctx.obj.echo(told(new, old))
    if old:
        ctx.exit(1)

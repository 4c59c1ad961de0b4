"""Rules from the entries of another scheduler: the action ``import`` of the command ``rules``.

    foreign.py --entries--> plan --steps--> carry_out --> rules

An import is a mirror, but of the entries of `beat_schedule`: each rule becomes as its entry is,
also paused or not, so to import the same again changes nothing. A rule whose entry is gone is
named, and removed if one asks for that. If no rule can be made of an entry any more, its rule is
paused, and beat sends the entry. The entries stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
from celery.canvas import Signature

from ...core.errors import InvalidOption, StoreError
from ...core.services import Services
from ...core.text import plain
from ...operations.cli.output import Column, Screen, table
from .. import rule_store as store
from . import face
from .beat import BEAT, CLEANUP
from .every import app_of, checked_plan, every
from .foreign import SOURCES, Entry
from .rule import plan_of
from .timing import Timing, timing_of

NEW, CHANGED, SAME, SKIPPED, REFUSED = "new", "changed", "same", "skipped", "refused"
GONE, REMOVED = "gone", "removed"
_STYLES = {NEW: "green", CHANGED: "yellow"}
_OF_CELERY = "it comes from beat_schedule or Celery; delayq_beat takes it over"
_OFF = "; it is disabled here, and delayq_beat does not see that: pause its rule"
_PAUSED = "; its rule is paused, and beat sends it"
_NO_ENTRY = "no entry has this name any more"


@dataclass(frozen=True)
class Step:
    """A step of an import: an entry, and its result.

    Attributes:
        entry: The entry; of ``gone`` and ``removed`` what is known of it from its rule.
        word: ``new``, ``changed``, ``same``, ``skipped``, ``refused``, ``gone`` or ``removed``.
        why: Why it is skipped or refused.
        timing: The times of its rule.
        pauses: Whether there is a rule of an entry that is refused, which is paused.
    """

    entry: Entry
    word: str
    why: str = ""
    timing: Timing | None = None
    pauses: bool = False


def import_rules(
    ctx: click.Context, services: Services, source: str, names: tuple[str, ...],
    *, removes: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Import the entries of a source, or those of some names.

    Exits with 1 if an entry is refused, or is gone and its rule stays.
    """
    found = SOURCES[source]
    # All before the first line: a reader that stops, such as head, must not stop the import.
    done = [
        step if dry_run else carry_out(services, source, step)
        for step in plan(services, source, found.entries(services), names)
    ]
    is_empty = not done and not names
    # Of an empty place, perhaps a wrong one, nothing is removed unless it is named.
    for step in [*_gone(services, source, {step.entry.name for step in done}, names)]:
        gone = replace(step, word=REMOVED) if removes and not is_empty else step
        done.append(gone if dry_run else carry_out(services, source, gone))
    _show(ctx, done, as_json=as_json)
    if is_empty:
        stays = "; no rule is removed" if removes and done else ""
        ctx.obj.error(plain(f"{source} has no entries: {found.place(services)} is empty{stays}"))
    missing = {*names} - {step.entry.name for step in done}
    for name in sorted(missing):
        ctx.obj.error(plain(f"{source} has no entry {name}"))
    if missing or {REFUSED, GONE} & {step.word for step in done}:
        ctx.exit(1)


def plan(
    services: Services, source: str, entries: Iterable[Entry], names: Sequence[str] = ()
) -> Iterator[Step]:
    """Yield what would become of entries, or of those of some names; it writes nothing.

    Raises:
        StoreError: the store or the scheduler's Redis cannot be read.
    """
    seen = set[str]()
    for entry in entries:
        if names and entry.name not in names:
            continue
        if entry.name in seen:
            yield Step(entry, REFUSED, entry.refused or "another entry has this name")
        else:
            yield _or_refused(services, source, entry, partial(_plan, services, source, entry))
        seen.add(entry.name)


def _gone(services: Services, source: str, seen: set[str], names: Sequence[str]) -> Iterator[Step]:
    """Yield the rules of a source, or those of some names, that have no entry."""
    found = {rule.name: rule for rule in store.each(services.entries) if not rule.is_removed}
    for name in sorted({*found} - seen):
        rule = found[name]
        is_ours = rule.source == source and rule.row.get("app") == app_of(services)
        if not is_ours or (names and name not in names):
            continue
        entry, timing = Entry(name, is_enabled=not rule.is_paused), None
        try:
            made = plan_of(rule)
            task = made.signature_of(services.app).task
            entry, timing = replace(entry, task=task), made.timing
        except ValueError:  # a later release wrote it
            pass
        yield Step(entry, GONE, _NO_ENTRY, timing)


def carry_out(services: Services, source: str, step: Step) -> Step:
    """Do what a step says; return what became of it."""
    if step.word in (NEW, CHANGED):
        make = partial(_carry_out, services, source, step)
        step = _or_refused(services, source, step.entry, make)
    if step.pauses:
        face.change(services, step.entry.name, "pause", given=BEAT)
    elif step.word == REMOVED:
        face.change(services, step.entry.name, "remove")
    return step


def _or_refused(services: Services, source: str, entry: Entry, make: Callable[[], Step]) -> Step:
    """Return the step that *make* returns; its error refuses the entry, and no other one."""
    try:
        if not entry.refused:
            return make()
        why = entry.refused
    except StoreError:
        raise
    except Exception as error:  # Celery's schedules may raise anything
        why = str(error) or type(error).__name__
    pauses = _is_nameable(entry) and _is_of(services, source, entry.name)
    return Step(entry, REFUSED, why + _PAUSED * pauses, pauses=pauses)


def _is_nameable(entry: Entry) -> bool:
    return 1 <= len(entry.name.encode(errors="replace")) <= face.LONGEST_NAME


def _is_of(services: Services, source: str, name: str) -> bool:
    """Whether there is a rule of this name and source."""
    try:
        found = store.find(services.entries, name)
    except UnicodeError:
        return False
    return found is not None and not found.is_removed and found.source == source


def _plan(services: Services, source: str, entry: Entry) -> Step:
    if not _is_nameable(entry):
        raise ValueError(f"its name is no text of 1 to {face.LONGEST_NAME} bytes")
    if entry.name in {*(services.app.conf.beat_schedule or ()), CLEANUP}:
        return Step(entry, SKIPPED, _OF_CELERY + _OFF * (not entry.is_enabled))
    rule, before = face.rule(services, entry.name), store.find(services.entries, entry.name)
    # A rule that is set in code, or by another import, is not this import's to change.
    if rule is not None and rule.source != source:
        raise InvalidOption("name", entry.name, "a name that no rule of another source has")
    zone = str(services.timezone)
    timing = timing_of(entry.schedule, tz=entry.tz, default_zone=zone)
    made = checked_plan(_signature_of(entry), timing, "one", 0, [])
    if rule is None or before is None or before.digest != made.digest:
        return Step(entry, CHANGED if rule else NEW, timing=timing)
    is_same = rule.is_paused is not entry.is_enabled and not before.is_beats
    return Step(entry, SAME if is_same else CHANGED, timing=timing)


def _carry_out(services: Services, source: str, step: Step) -> Step:
    entry = step.entry
    before = face.rule(services, entry.name)
    if before is not None and not entry.is_enabled:
        before.pause()  # before it has another schedule, or a run of that might leave
    rule = every(
        services,
        entry.name,
        _signature_of(entry),
        entry.schedule,
        tz=entry.tz,
        source=source,
        is_paused=not entry.is_enabled,
        taken=entry.taken,
    )
    if entry.is_enabled:
        rule.resume()
    return step


def _signature_of(entry: Entry) -> Signature[Any]:
    if entry.signature is None:
        raise InvalidOption("signature", None, "the task of the entry")
    return entry.signature


def _show(ctx: click.Context, steps: Sequence[Step], *, as_json: bool) -> None:
    if as_json:
        for step in steps:
            ctx.obj.echo(json.dumps(_facts(step)))
        return
    columns = [Column("NAME"), Column("TASK"), Column("SCHEDULE"), Column("ZONE")]
    columns.append(Column("BECOMES", _STYLES))
    Screen(ctx).show(table(columns, (_row(step) for step in steps)))


def _row(step: Step) -> tuple[str, ...]:
    entry, timing = step.entry, step.timing
    schedule, zone = (timing.text, timing.zone) if timing else (entry.kind, entry.tz or "")
    becomes = f"{step.word}: {step.why}" if step.why else step.word
    if timing and not step.why and not entry.is_enabled:
        becomes += ", paused"
    return tuple(map(plain, (entry.name, entry.task, schedule, zone, becomes)))


def _facts(step: Step) -> dict[str, Any]:
    entry, timing = step.entry, step.timing
    return {
        "name": entry.name,
        "task": entry.task,
        "schedule": timing.text if timing else None,
        "tz": timing.zone if timing else entry.tz,
        "enabled": entry.is_enabled,
        "becomes": step.word,
        "why": step.why or None,
        "pauses_rule": step.pauses,
    }

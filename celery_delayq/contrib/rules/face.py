"""Rules as users read and change them."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery.result import AsyncResult

from ...core.acting import actor
from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.scheduling.options import AFTER, TAGS
from ...core.services import Services
from ...core.store.ids import checked_name
from ...core.tasks.changing import cancel
from ...core.tasks.reading import departure, state
from ...core.tasks.selecting import select
from .. import rule_store as store
from ..rule_store import RowEdit, Stored, is_run, ms_of, tag_of
from . import writing
from .rule import plan_in_code, plan_of, times
from .timing import read_schedule, timing_of

LONGEST_NAME = 200  # bytes
SHOWN = 3  # of the next times


class LastRun(NamedTuple):
    """The run of the latest slot that is over.

    Attributes:
        id: Its task's id; empty if it is unknown.
        due: When it was due.
        what: Its state in the store: ``scheduled``, ``paused``, ``in_flight`` or ``dead``; how it
            left: ``handed_over``, ``skipped``, ``cancelled`` or ``uncertain``; or ``unknown``: it
            was left out, or the store has forgotten it.
    """

    id: str
    due: datetime
    what: str


class Edited(NamedTuple):
    """A person's change of a schedule.

    Attributes:
        by: The name that the program gave by :meth:`DelayQ.acting`, or the user of the page; else
            the host.
        at: When.
        schedule, tz: What code says, and counts again after :meth:`Rule.back_to_code`.
    """

    by: str
    at: datetime
    schedule: str
    tz: str


@dataclass(frozen=True)
class Rule:
    """A recurring task.

    Attributes:
        name: Its name.
        schedule: Five fields, or ``every N s``.
        tz: The zone of the fields.
        task: The name of its task.
        tags: Tags of its runs, beside ``every:NAME``.
        missed, jitter: As for :meth:`DelayQ.every`.
        is_paused: Whether it is paused.
        next: The next three times of its schedule, UTC; none of a paused rule. A run that was
            skipped or moved still counts: the waiting runs are the tasks with its tag.
        last: Its last slot: the runs up to that are written, or left out.
        revision: Raised by each change.
        version: As for :meth:`DelayQ.every`.
        source: Where it comes from, such as ``beat``; empty: from :meth:`DelayQ.every`.
        is_declared: Whether workers say it at each start. It is removed ten minutes after the last
            of them has ended, unless none is left.
        trouble: Why its next run cannot be made; empty: nothing is known against it.
        is_made_when_due: Whether no run waits, because the task's class has an ``apply_async`` of
            its own: a writer calls that at each slot.
    """

    name: str
    schedule: str
    tz: str
    task: str
    tags: tuple[str, ...]
    missed: str
    jitter: float
    is_paused: bool
    next: tuple[datetime, ...]
    last: datetime
    revision: int
    version: int
    source: str
    is_declared: bool
    trouble: str
    is_made_when_due: bool
    _stored: Stored = field(repr=False, compare=False)
    _now: datetime = field(repr=False, compare=False)
    _services: Services = field(repr=False, compare=False)

    @property
    def digest(self) -> str:
        """Of all that it says: two rules with one digest do the same."""
        return self._stored.digest

    def pause(self) -> bool:
        """Cancel what it has written ahead, and write nothing; return whether it was at work."""
        return change(self._services, self.name, "pause")

    def resume(self) -> bool:
        """Write its runs again, from now on; return whether it was paused."""
        return change(self._services, self.name, "resume")

    def remove(self) -> bool:
        """Cancel what it has written ahead, and forget it; return whether it was there."""
        return change(self._services, self.name, "remove")

    @property
    def edited(self) -> Edited | None:
        """Who gave it another schedule than code does; ``None``: nobody did."""
        edit = self._stored.edit
        if edit is None:
            return None
        timing = plan_in_code(self._stored).timing
        return Edited(edit.by, from_ms(edit.at_ms), timing.text, timing.zone)

    def edit(self, schedule: Any, *, tz: str | None = None, dialect: str = "") -> bool:
        """Give it another schedule, which lies over the one that code says, until you end that.

        What it has written ahead is cancelled, but for runs that somebody moved or edited. An
        interval counts since 1970. If code says another rule under the name, the schedule stays.

        Args:
            schedule: As for :meth:`DelayQ.every`; or text such as ``every 10 s``.
            tz: The zone of the fields; by default the one that it has.
            dialect: As for :meth:`DelayQ.every`.

        Returns:
            Whether it had another schedule before.

        Raises:
            InvalidOption: an argument is none, or the schedule never fires; nothing is changed.
        """
        plan = plan_of(self._stored)
        default = plan.timing.zone
        timing = timing_of(read_schedule(schedule), tz=tz, dialect=dialect, default_zone=default)
        if timing == plan.timing:
            return False
        at_ms = ms_of(store.now(self._services.entries.unasked_shards[self._stored.shard]))
        parts = timing.text, timing.zone, timing.dialect
        offset = str(plan.offset(self.name) // timedelta(milliseconds=1))
        edit = RowEdit(parts, offset, actor() or socket.gethostname(), at_ms)
        return change(self._services, self.name, "edit", given=edit.text)

    def back_to_code(self) -> bool:
        """End what :meth:`edit` changed; return whether there was something to end."""
        return change(self._services, self.name, "edit")

    def skip(self) -> str | None:
        """Cancel its next waiting run; return the task's id, or ``None``: none waits."""
        delayq = self._services.app.delayq
        found = select(delayq, tag=tag_of(self.name))
        waiting = sorted((task for task in found if is_run(task.id)), key=lambda task: task.due)
        return next((task.id for task in waiting if cancel(delayq, task.id)), None)

    def run(self) -> AsyncResult[Any]:
        """Run its task now, beside the schedule; return the result."""
        plan = plan_of(self._stored)
        options: dict[str, Any] = {AFTER: 0, TAGS: [*plan.tags, tag_of(self.name)]}
        made: AsyncResult[Any] = plan.signature_of(self._services.app).apply_async(**options)
        return made

    def last_run(self) -> LastRun | None:
        """What became of the latest run that was due when you read the rule; ``None``: none was."""
        plan, services = plan_of(self._stored), self._services
        offset = self._stored.offset
        began = from_ms(self._stored.since_ms)
        over = plan.timing.latest(self._now - offset, 1, began)
        if not over:
            return None
        [slot] = over
        task_id = writing.id_of(self._stored, slot, services.settings.shards)
        if left := departure(services, task_id):
            return LastRun(task_id, slot + offset, left.how)
        if found := state(services.app.delayq, task_id):
            return LastRun(task_id, slot + offset, found.value.lower())
        return LastRun("", slot + offset, "unknown")


def rule(services: Services, name: str, said: str = "") -> Rule | None:
    """Return the rule of a name, or ``None``.

    With *said*, a rule that only a later release can read is returned with this plan.
    """
    found = store.find(services.entries, checked(name))
    if found is None or found.is_removed:
        return None
    if said and found.newer:
        found = replace(found, row={**found.row, "plan": said})
    try:
        return rule_of(services, found, now_of(services))
    except ValueError as error:
        readable = "the name of a rule that this version can read"
        raise InvalidOption("name", name, readable) from error


def is_there(services: Services, name: str) -> bool:
    """Whether there is a rule of this name, perhaps one that this version cannot read."""
    return any(not rule.is_removed for rule in store.find_all(services.entries, checked(name)))


def rules(services: Services, *, tag: str | None = None) -> list[Rule]:
    """Return all rules, by name, but for those that this version cannot read."""
    read, _ = all_rules(services)
    return [each for each in read if tag is None or tag in each.tags]


def all_rules(services: Services) -> tuple[list[Rule], dict[str, str]]:
    """Return all rules, by name; and the names of those that this version cannot read, with why."""
    found = {stored.name: stored for stored in store.each(services.entries)}
    now = now_of(services)
    read, unread = list[Rule](), dict[str, str]()
    for name in sorted(found):
        if not found[name].is_removed:
            try:
                read.append(rule_of(services, found[name], now))
            except ValueError as error:
                unread[name] = str(error)
    return read, unread


def rule_of(services: Services, stored: Stored, now: datetime) -> Rule:
    """Return a rule as users see it at a time.

    Raises:
        ValueError: this version cannot read it.
    """
    plan = plan_of(stored)
    try:
        coming = tuple(times(stored, now, SHOWN))
    except Exception as error:  # another version of cronsim, or of the zones, set it
        raise ValueError(str(error)) from error
    return Rule(
        stored.name,
        plan.timing.text,
        plan.timing.zone,
        plan.signature_of(services.app).task,
        plan.tags,
        plan.missed,
        plan.jitter,
        stored.is_paused,
        () if stored.is_paused else coming,
        stored.last,
        stored.revision,
        int(stored.row["version"]),
        stored.source,
        stored.is_declared,
        stored.trouble,
        writing.is_made_when_due(services, plan),
        stored,
        now,
        services,
    )


def now_of(services: Services) -> datetime:
    """Return Redis's time."""
    return from_ms(services.entries.counts().now_ms)


def change(
    services: Services, name: str, what: str, *, given: str = "", settles: bool = True
) -> bool:
    """Pause, resume or remove a rule; return whether it was not so before.

    If ``beat`` is *given*, beat sends the entry of a paused rule. Without *settles* a writer clears
    up its runs.
    """
    shards, answers = services.entries.unasked_shards, set[str]()
    for found in store.find_all(services.entries, name):
        answers.add(store.change(shards[found.shard], name, what, given))
    if settles:
        settle(services, name)
    return "done" in answers


def settle(services: Services, name: str) -> None:
    """Clear up what a rule wrote before its change; a writer writes its next runs."""
    for found in store.find_all(services.entries, name):
        if found.is_unclear:
            writing.tidy(services, services.entries.unasked_shards[found.shard], found)


def checked(name: Any) -> str:
    """Return a rule's name.

    Raises:
        InvalidOption: it cannot be one.
    """
    with suppress(InvalidOption):
        if len(checked_name("name", name).encode()) <= LONGEST_NAME:
            return str(name)
    raise InvalidOption("name", name, f"text of 1 to {LONGEST_NAME} bytes, without NUL")

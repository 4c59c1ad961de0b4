"""A rule as users read and change it, and the rules page by page.

at most SORTED --read all--> sorted by name --> 100 behind a name
more ---------a slice at a time--------------> some 100 from a place on, in no order
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from celery.result import AsyncResult

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.hooks import actor
from ...core.services import HasServices, Services
from ...core.store.keys import checked_name
from ...operations.edits import KEPT, Edit
from .. import rule_store as store
from ..rule_store import RowEdit, Stored, ms_of
from . import runs, writing
from .plan import plan_in_code, plan_of, read_schedule, rewritten, timing_of
from .runs import LastRun, Shown, Skipped, shown

LONGEST_NAME = 200  # bytes
SORTED = 1000  # a hash has no order, so all rules are read to sort them
PAGE = 100
_OF_CODE = ("version", "source", "app", "home", "offset", "flags", "declared")
_ENOUGH = 50  # rules that end a page; the next slice may bring a hundred


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
        next: When its next three runs are due, UTC: those that wait, as they are stored, and then
            those of its schedule. Of a paused rule only runs that somebody moved are left.
        skipped: When runs would be due that somebody skipped.
        overdue: Since when a run is overdue: workers wrote or delivered none for half a minute, and
            it is not paused. ``None``: none is.
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
    skipped: tuple[datetime, ...]
    overdue: datetime | None
    last: datetime
    revision: int
    version: int
    source: str
    is_declared: bool
    trouble: str
    is_made_when_due: bool
    _last_run: LastRun | None = field(repr=False, compare=False)
    _stored: Stored = field(repr=False, compare=False)
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

    def rewrite(
        self,
        *,
        task: str | Mapping[str, str] = KEPT,
        change: Callable[[Any, Any], tuple[Sequence[Any], Mapping[str, Any]] | None] = KEPT,
    ) -> bool:
        """Fit it to other code, by new names of tasks or a function, as :meth:`DelayQ.edit` does.

        What it has written ahead is cancelled and written anew, but for runs that somebody moved or
        edited. A worker that declares it says what its code says when it starts.

        Returns:
            Whether it has changed.

        Raises:
            InvalidOption: an argument is none, or this app has no such task.
            TypeError: the arguments do not fit the task.
        """
        services = self._services
        Edit(task=task, change=change).check_names(services)
        # As it is now: this object may have been read long ago.
        stored = store.find(services.entries, self.name)
        if stored is None or stored.is_removed:
            return False
        new = rewritten(services.app, plan_in_code(stored), task, change)
        if new is None:
            return False
        own = {name: stored.row[name] for name in _OF_CODE if name in stored.row}
        row = {**own, "by": socket.gethostname(), "plan": new.text, "digest": new.digest}
        store.put(services.entries, "put", self.name, row)
        settle(services, self.name)
        return True

    def back_to_code(self) -> bool:
        """End what :meth:`edit` changed; return whether there was something to end."""
        return change(self._services, self.name, "edit")

    def skip(self) -> Skipped | None:
        """Leave out the run that comes next, also if it is not written yet, but no other one.

        It stays left out if the rule is paused and resumed, or its schedule is changed and changed
        back. An undo of its cancel, or :meth:`unskip`, brings it back.

        Returns:
            What is left out; ``None``: no run comes.

        Raises:
            InvalidOption: 100 runs that were to come are skipped already.
        """
        settle(self._services, self.name)
        return runs.skip(self._services, self.name)

    def unskip(self) -> bool:
        """Let the runs come that were skipped; return whether there were such."""
        settle(self._services, self.name)
        runs.withdraw_undone(self._services, self.name)
        return change(self._services, self.name, "unskip")

    def run(self) -> AsyncResult[Any]:
        """Run its task now, beside the schedule; return the result.

        If the rule has a key, and its own next run waits under that, this run is sent now, and
        another one is written for its slot as soon as the key is free.

        Raises:
            AlreadyScheduled: another task has the key, or a run that somebody moved or edited.
            KeyHeld: a run that was delivered still holds the key.
        """
        return runs.run(self._services, self._stored)

    def last_run(self) -> LastRun | None:
        """The latest run that was due when you read the rule; ``None``: none was."""
        return self._last_run


class Listed(NamedTuple):
    """A page of the rules.

    Attributes:
        rules: The rules.
        further: Where the next page begins: ``after`` a name, or at a ``place``; empty: nowhere.
        in_order: Whether they are sorted by name.
        unreadable: Names of rules that this version cannot read.
    """

    rules: list[Rule]
    further: dict[str, str]
    in_order: bool
    unreadable: list[str]


def rule(delayq: HasServices, name: str) -> Rule | None:
    """The rule of this name, or ``None``."""
    return named(delayq.services, name)


def rules(delayq: HasServices, *, tag: str | None = None) -> list[Rule]:
    """All rules that this version can read, by name; with *tag*, those whose runs have it."""
    read, _ = all_rules(delayq.services)
    return [each for each in read if tag is None or tag in each.tags]


def named(services: Services, name: str, said: str = "") -> Rule | None:
    """Return the rule of a name, or ``None``.

    With *said*, a rule that only a later release can read is returned with this plan.
    """
    found = store.find(services.entries, checked(name))
    if found is None or found.is_removed:
        return None
    if said and found.newer:
        found = replace(found, row={**found.row, "plan": said})
    [(_, read)] = rules_of(services, [found])
    if isinstance(read, ValueError):
        readable = "the name of a rule that this version can read"
        raise InvalidOption("name", name, readable) from read
    return read


def is_there(services: Services, name: str) -> bool:
    """Whether there is a rule of this name, perhaps one that this version cannot read."""
    return any(not rule.is_removed for rule in store.find_all(services.entries, checked(name)))


def all_rules(services: Services) -> tuple[list[Rule], dict[str, str]]:
    """Return all rules, by name; and the names of those that this version cannot read, with why."""
    found = {rule.name: rule for rule in store.each(services.entries) if not rule.is_removed}
    read, unread = list[Rule](), dict[str, str]()
    for stored, rule in rules_of(services, [found[name] for name in sorted(found)]):
        if isinstance(rule, Rule):
            read.append(rule)
        else:
            unread[stored.name] = str(rule)
    return read, unread


def unwritten(services: Services, name: str, row: Mapping[str, str]) -> Rule:
    """Return the rule of a row that the store does not have."""
    now = clock.utc_now()
    times = dict.fromkeys(("from", "since"), str(ms_of(now)))
    stored = Stored(name, 0, {**row, **times}, 0, now, row["flags"], now=now)
    [(_, read)] = rules_of(services, [stored])
    if isinstance(read, ValueError):  # never: this process has made the plan
        raise read
    return read


def rules_of(
    services: Services, stored: Sequence[Stored]
) -> Iterator[tuple[Stored, Rule | ValueError]]:
    """Yield rules as users see them; or why this version cannot read one."""
    for rule, found in zip(stored, shown(services, stored), strict=True):
        yield rule, found if isinstance(found, ValueError) else _rule_of(services, rule, found)


def _rule_of(services: Services, stored: Stored, found: Shown) -> Rule:
    plan = plan_of(stored)
    return Rule(
        name=stored.name,
        schedule=plan.timing.text,
        tz=plan.timing.zone,
        task=plan.signature_of(services.app).task,
        tags=plan.tags,
        missed=plan.missed,
        jitter=plan.jitter,
        is_paused=stored.is_paused,
        next=found.next,
        skipped=found.skipped,
        overdue=found.overdue,
        last=stored.last,
        revision=stored.revision,
        version=stored.version,
        source=stored.source,
        is_declared=stored.is_declared,
        trouble=stored.trouble,
        is_made_when_due=writing.is_made_when_due(services, plan),
        _last_run=found.last,
        _stored=stored,
        _services=services,
    )


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


def listed(
    services: Services,
    *,
    only: str = "",
    text: str = "",
    tag: str = "",
    after: str = "",
    place: tuple[int, int] | None = None,
    seconds: float = 1.0,
) -> Listed:
    """Return a page of the rules.

    Args:
        services: The app's services.
        only: The name of the only rule; nothing else counts then.
        text: A part of their names, in either case.
        tag: A tag of their runs.
        after: The name after which the page begins.
        place: The shard and the cursor at which it begins.
        seconds: How long to look for rules that match, if there are too many to sort.
    """
    if only:
        one = store.find(services.entries, only)
        return _shown(services, [one] if one and _matches(one) else [], {})
    few = _few(services) if place is None else None
    if few is not None:
        names = sorted(name for name in few if name > after and _matches(few[name], text, tag))
        page = [few[name] for name in names[:PAGE]]
        return _shown(services, page, {"after": page[-1].name} if names[PAGE:] else {})
    until, kept = clock.monotonic() + seconds, dict[str, Stored]()
    further: tuple[int, int] | None = None
    for found, further in store.slices(services.entries, *(place or ())):  # noqa: B007
        kept |= {stored.name: stored for stored in found if _matches(stored, text, tag)}
        if len(kept) >= _ENOUGH or clock.monotonic() >= until:
            break
    at = {"place": f"{further[0]}:{further[1]}"} if further else {}
    return _shown(services, kept.values(), at, in_order=False)


def _few(services: Services) -> dict[str, Stored] | None:
    """Return all rules; ``None`` if there are too many to sort."""
    found: dict[str, Stored] = {}
    for stored in store.each(services.entries):
        found[stored.name] = stored
        if len(found) > SORTED:
            return None
    return found


def _matches(stored: Stored, text: str = "", tag: str = "") -> bool:
    if stored.is_removed or text.lower() not in stored.name.lower():
        return False
    try:
        return not tag or tag in plan_of(stored).tags
    except (ValueError, TypeError):
        return False


def _shown(
    services: Services, stored: Iterable[Stored], further: dict[str, str], *, in_order: bool = True
) -> Listed:
    rules, unreadable = list[Rule](), list[str]()
    for one, read in rules_of(services, [*stored]):
        if isinstance(read, Rule):
            rules.append(read)
        else:
            unreadable.append(one.name)
    return Listed(rules, further, in_order, unreadable)

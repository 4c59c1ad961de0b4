"""The rules that a worker declares: they go with the code that says them.

    `every`, `beat_schedule` --> a worker names them --nobody did for ten minutes--> removed
                                      '--the store was emptied--> set again

Code may change while old workers still say what it was. So each worker names what it says each two
minutes. A rule stays as it is while a living worker says it so; then one that says another plan
sets that. Beside its rules a worker names the tasks that it knows. With the setting ``delayq_beat``
the entries of ``beat_schedule`` are declared, too, with the source ``beat``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from celery import Celery
from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.canvas import Signature
from celery.schedules import crontab

from ...core import clock
from ...core.errors import InvalidOption, StoreError
from ...core.services import Services
from ...core.text import counted, logger_of
from .. import rule_store as store
from ..rule_store import Named, Stored, said_of
from .every import app_of, row_of, say
from .plan import Taken, plan_of

logger = logger_of(__name__)

BEAT = "beat"  # the source of these rules
HEADER = "celery_beat_task"  # of the messages of beat, since Celery 5.6
CLEANUP = "celery.backend_cleanup"
SHOWN = 3  # of the rules whose task is unknown

# They send the entries of `beat_schedule` as they are.
_SCHEDULERS = {
    "celery.beat.PersistentScheduler",
    "celery.beat.Scheduler",
    "django",
    "django_celery_beat.schedulers.DatabaseScheduler",
    "redbeat.RedBeatScheduler",
    "redbeat.schedulers.RedBeatScheduler",
}
_OWN_SCHEDULER = (
    "delayq_beat: beat_schedule stays with beat, as beat_scheduler is %s: a class of your own may "
    "change or leave out entries when beat starts; move that into beat_schedule, and use Celery's "
    "scheduler"
)
_DEADLINE = (
    "delayq_beat: rules do not use beat_cron_starting_deadline: of the slots that were missed the "
    "latest runs, however late"
)
_EMPTIED = (
    "the store was emptied: this worker sets the %s again that it declares; pauses, edits and "
    "removals of rules are lost, and so is each rule that was set otherwise"
)
_REMOVED = "rule %s is removed: no worker has said it for ten minutes"
_LEFT_OUT = "beat_schedule: %s is left out, as another rule has its name"
_SAID = set[str]()


class Declared:
    """The rules that this process declares.

    Args:
        services: The app's.
        runs_tasks: Whether it runs tasks, as a worker does, and the command ``scan`` does not.
    """

    def __init__(self, services: Services, *, runs_tasks: bool) -> None:
        self._services = services
        self._runs_tasks = runs_tasks
        self._process = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._rows: dict[str, dict[str, str]] = {}
        self._of_beat: dict[str, tuple[dict[str, str], Taken]] | None = None
        self._left_out = set[str]()  # entries of beat whose names other rules have
        self._named_ms = 0
        # Rules that it has not set yet; false: not even if none is there.
        self._waiting: dict[str, bool] = {}

    def name(self) -> None:
        """Name the rules of this process, and set those that are not as it says them.

        It also removes those that nobody says any more, if it is the one to do so.

        Raises:
            StoreError: the store cannot be reached.
        """
        self._collect()
        named = self._ask(full=bool(self._waiting))
        if self._named_ms and not named.knows and named.since_ms > self._named_ms:
            self._find_lost()
        self._named_ms = named.now_ms
        if named.looks:
            self._look(named)
        living = named.living
        for name, is_first in [*self._waiting.items()]:
            if self._set(name, living, is_first=is_first):
                del self._waiting[name]
            else:
                self._waiting[name] = False

    def end(self) -> None:
        """Say that this process has ended, so that others may change what it said.

        Raises:
            StoreError: the store cannot be reached.
        """
        if self._named_ms:
            store.name(self._services.entries, self._process, full=False)

    def _ask(self, *, full: bool, unknown: Mapping[str, Any] | None = None) -> Named:
        names = {
            "rules": {name: row["digest"] for name, row in self._rows.items()},
            "tasks": sorted(self._services.app.tasks) if self._runs_tasks else [],
        }
        return store.name(self._services.entries, self._process, names, unknown=unknown, full=full)

    def _collect(self) -> None:
        """Take up what this process has said by now."""
        rows = {**said_of(self._services).rows}
        if self._services.settings.beat and self._of_beat is None:
            self._of_beat = {name: (row, taken) for name, row, taken in _sayings(self._services)}
        for name, (row, _) in (self._of_beat or {}).items():
            if name in rows:
                self._leave_out(name)
            elif name not in self._left_out:
                rows[name] = row
        self._waiting |= {name: True for name in rows if rows[name] is not self._rows.get(name)}
        self._rows = rows

    def _find_lost(self) -> None:
        """Set all rules again of each shard that was emptied: it has none from before that."""
        entries = self._services.entries
        found = [store.find(entries, name) for name in self._rows]
        kept = {rule.shard for rule in found if rule and rule.revision <= self._named_ms}
        homes = {
            name: store.shard_for(entries, row["home"]).number for name, row in self._rows.items()
        }
        lost = {name: True for name, home in homes.items() if home not in kept}
        if lost:
            logger.warning(_EMPTIED, counted(len(lost), "rule"))
            self._waiting |= lost

    def _set(self, name: str, living: Mapping[str, set[str]], *, is_first: bool) -> bool:
        """Set a rule as this process says it; return whether nothing is left to do."""
        row, before = self._rows.get(name), store.find(self._services.entries, name)
        if row is None:
            return True
        is_there = before is not None and not before.is_removed
        if not is_first and not (is_there and before is not None and before.is_declared):
            return True  # somebody has removed it, or set another one
        if is_there and before is not None and BEAT == row["source"] != before.source:
            self._leave_out(name)
            del self._rows[name]
            return True
        _, taken = (self._of_beat or {}).get(name, (row, None))
        row = {**row, "declared": "1"}
        try:
            return say(self._services, name, row, before, taken=taken, living=living) != "stays"
        except InvalidOption as error:  # there are too many
            logger.error("rule %s is not set: %s", name, error)
            return True

    def _leave_out(self, name: str) -> None:
        if name not in self._left_out:
            logger.warning(_LEFT_OUT, name)
            self._left_out.add(name)

    def _look(self, named: Named) -> None:
        """Look at all rules: remove those that nobody says, and note those that nobody can run."""
        said, living, tasks = named.said, named.living, named.tasks
        unknown = list[tuple[str, str]]()
        for rule in [*store.each(self._services.entries)]:
            if named.sweeps and self._is_ours(rule) and rule.name not in said:
                self._remove(rule)
                continue
            if self._is_of_the_dead(rule, living):
                self._waiting.setdefault(rule.name, False)
            task = _task_of(rule)
            if task and tasks and task not in tasks:
                unknown.append((rule.name, task))
        found = {"count": len(unknown), "rules": sorted(unknown)[:SHOWN]}
        self._ask(full=False, unknown=found)

    def _is_of_the_dead(self, rule: Stored, living: Mapping[str, set[str]]) -> bool:
        """Whether a worker that has ended set a rule otherwise than this process says it."""
        own = self._rows.get(rule.name)
        is_other = own is not None and own["digest"] != rule.digest
        return is_other and rule.digest not in living.get(rule.name, ())

    def _is_ours(self, rule: Stored) -> bool:
        return rule.is_declared and rule.row.get("app") == app_of(self._services)

    def _remove(self, rule: Stored) -> None:
        shard = self._services.entries.unasked_shards[rule.shard]
        # A writer clears up its runs, in the worker's pool.
        if store.change(shard, rule.name, "sweep", str(rule.revision)) == "done":
            logger.info(_REMOVED, rule.name)


def _task_of(rule: Stored) -> str:
    """Return the task of a rule; empty if it is paused, or this version cannot read it."""
    if rule.is_paused or rule.is_removed:
        return ""
    try:
        return str(json.loads(plan_of(rule).signature)["task"])
    except (KeyError, TypeError, ValueError):
        return ""


def _sayings(services: Services) -> Iterator[tuple[str, dict[str, str], Taken]]:
    """Yield the name, the row, and what it takes over, of each entry that a rule can have."""
    app = services.app
    for name, given in _entries_of(app).items():
        try:
            now = clock.utc_now()
            entry = ScheduleEntry(**{"last_run_at": now, **given, "name": name, "app": app})
            row = row_of(services, name, signature_of(app, entry), entry.schedule, source=BEAT)
            taken = _taken_of(entry) if "last_run_at" in given else Taken()
        except StoreError:
            raise
        except Exception as error:  # a user's own schedule may raise anything
            why = str(error) or type(error).__name__
            logger.error("beat_schedule: %s stays with beat: %s", name, why)
        else:
            yield name, row, taken


def _entries_of(app: Celery) -> dict[str, Mapping[str, Any]]:
    """Return the entries that beat would have, its own for the result backend included.

    Of a scheduler that is not known to leave them as they are, there are none.
    """
    if scheduler := _own_scheduler(app.conf.beat_scheduler):
        _say_once(logging.ERROR, _OWN_SCHEDULER, scheduler)
        return {}
    if app.conf.beat_cron_starting_deadline is not None:
        _say_once(logging.WARNING, _DEADLINE)
    schedule = dict(app.conf.beat_schedule)
    if app.conf.result_expires and not app.backend.supports_autoexpire:
        options = {"expires": 12 * 3600}
        cleanup = {"task": CLEANUP, "schedule": crontab("0", "4", "*"), "options": options}
        schedule.setdefault(CLEANUP, cleanup)
    return schedule


def _own_scheduler(given: Any) -> str:
    """Return the name of a scheduler that may change the entries; empty: it is a known one."""
    is_text = isinstance(given, str)
    name = given if is_text else f"{given.__module__}.{given.__qualname__}"
    return "" if name.replace(":", ".") in _SCHEDULERS else name


def _say_once(level: int, text: str, *values: str) -> None:
    if text not in _SAID:
        logger.log(level, text, *values)
        _SAID.add(text)


def signature_of(app: Celery, entry: Any) -> Signature[Any]:
    """Return the signature of an entry of beat, with the header that beat sends.

    Raises:
        InvalidOption: beat would compute an argument when it sends it.
    """
    given = (*(entry.args or ()), *(entry.kwargs or {}).values())
    if any(isinstance(value, BeatLazyFunc) for value in given):
        raise InvalidOption("args", "BeatLazyFunc", "values; let the task compute them")
    options = with_header(entry.options)
    made: Signature[Any] = app.signature(
        entry.task, args=entry.args or (), kwargs=entry.kwargs, options=options
    )
    return made


def with_header(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the header by which others know a task of beat."""
    return {**options, "headers": {**(options.get("headers") or {}), HEADER: True}}


def _taken_of(entry: ScheduleEntry) -> Taken:
    """Return what an entry says of its last run."""
    return Taken(entry.schedule.maybe_make_aware(entry.last_run_at))

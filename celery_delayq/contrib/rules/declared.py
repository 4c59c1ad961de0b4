"""The rules that a worker declares: they go with the code that says them.

`every` at import, `beat_schedule` --> a worker names them --nobody did for ten minutes--> removed
                                            '--the store was emptied--> set again

Code may change while old workers still say what it was. So each worker names what it says each two
minutes. A rule stays as it is while a living worker says it so; then one that says another plan
sets that. Beside its rules a worker names the tasks that it knows.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from ...core.errors import InvalidOption
from ...core.services import Services
from ...core.text import counted, logger_of
from .. import rule_store as store
from ..rule_store import Named, Stored, said_of
from .beat import BEAT, sayings
from .every import app_of, say
from .rule import Taken, plan_of

SHOWN = 3  # of the rules whose task is unknown
_EMPTIED = (
    "the store was emptied: this worker sets the %s again that it declares; pauses, edits and "
    "removals of rules are lost, and so is each rule that was set otherwise"
)
_REMOVED = "rule %s is removed: no worker has said it for ten minutes"
_LEFT_OUT = "beat_schedule: %s is left out, as another rule has its name"

logger = logger_of(__name__)


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
            self._of_beat = {name: (row, taken) for name, row, taken in sayings(self._services)}
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

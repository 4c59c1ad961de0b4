"""The store seen from outside: entries, their places, and messages that came."""

import re
from dataclasses import dataclass, field
from typing import Any

from tests.lab.simulator.world import SECOND, START_US

EDITED = re.compile(rb"edit:([\w.]+);")
NAME = re.compile(rb"call:([\w.]+);")  # in the message: the call that scheduled it
GONE = "gone"  # the place of an id that is not in the store
WAITING = ("due", "relay", "refused", "parked")

# Of what is delivered: the due time, and the name of the call that edited it last.
Version = tuple[int, str]


@dataclass(frozen=True)
class View:
    """An entry as it stands in the store."""

    name: str  # of the call that scheduled it
    due_ms: int
    key: str
    tags: tuple[str, ...]
    created_ms: int
    runs_now: bool
    last_ms: float  # until when it may leave
    edited: str  # the name of the call that did so last
    is_released: bool
    since_ms: int  # that its lateness counts from
    holds: bool = False  # its key, until its run has finished

    @property
    def version(self) -> Version:
        return self.due_ms, self.edited


@dataclass(frozen=True)
class RuleView:
    """A recurring rule as it stands in the store.

    Attributes:
        plan: The name of what it is.
        every_ms: Between two slots; runs are due so much later than these as `offset_ms` says.
        most: How many of the slots that were missed are made up.
        since_ms: When it was first set.
    """

    revision: int
    last_ms: int
    flags: str
    digest: str
    plan: str
    every_ms: int
    offset_ms: int
    most: int
    key: str
    since_ms: int


@dataclass
class Sight:
    """Entries by id, and messages that came into the queue since the last look.

    Attributes:
        raw: For each id its record, and its places with their scores.
        holders: The id in the store that has each key.
        left: The id, the delivery and the end in time (ms) of each that has left and holds its key.
        behind: The id that waits behind the holder of each key.
        tagged: Members of the index of tags: tag, and id.
        owed: The ids whose ``REVOKED`` is still to be stored.
        paused: Lanes, by their first letters, with p (paused) or b (comes back).
        rules: Recurring rules by name; and the names of those that a writer will look at.
    """

    views: dict[str, View] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    arrived: list[bytes] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    left: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)
    tagged: list[tuple[str, str]] = field(default_factory=list)
    owed: set[str] = field(default_factory=set)
    paused: dict[str, str] = field(default_factory=dict)
    rules: dict[str, RuleView] = field(default_factory=dict)
    rules_next: set[str] = field(default_factory=set)

    def place(self, task_id: str | None) -> str:
        parts = self.raw.get(task_id)
        return parts[1][0] if parts and len(parts) > 1 else GONE

    def means(self, key: str) -> str | None:
        """The id that a call by this key is about: of the one behind, if there is one."""
        return self.behind.get(key) or self.holders.get(key)

    def waits(self, task_id: str | None) -> bool:
        return self.place(task_id) in WAITING


def name_in(message: bytes) -> str:
    """The name of the call that a message or a record is of."""
    return NAME.search(message)[1].decode()


def edited_in(message: bytes) -> str:
    """The name of the call that edited it last."""
    found = EDITED.search(message)
    return found[1].decode() if found else ""


def kind_of(old: View, new: View) -> str:
    """The kind of call that makes one of the other."""
    if old.edited == new.edited:
        return "reschedule"
    return "release" if new.is_released and not old.is_released else "edit"


def describe(before: Sight, after: Sight) -> str:
    """The differences, for the history."""
    parts = [f"pushed {name_in(message)}" for message in after.arrived]
    for task_id in sorted(before.raw.keys() | after.raw.keys()):
        if before.raw.get(task_id) != after.raw.get(task_id):
            view, (_, *places) = after.views.get(task_id), after.raw.get(task_id, [None])
            at = [f"{place} {_since_start(int(score))}" for place, score in places]
            parts.append(f"{task_id} {view.name} {' '.join(at)}" if view else f"{task_id} is gone")
    rules = sorted(dict(before.rules.items() ^ after.rules.items()))
    return ", ".join([*parts, *(f"rule {one} {_told(after.rules.get(one))}" for one in rules)])


def _told(rule: RuleView | None) -> str:
    if rule is None:
        return "is gone"
    return f"{rule.plan} {rule.flags} {rule.revision % 1000} {_since_start(rule.last_ms)}"


def _since_start(ms: int) -> str:
    return f"{ms / 1000 - START_US / SECOND:+.3f}"

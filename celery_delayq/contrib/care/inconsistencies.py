"""Every kind of inconsistency in the store: its meaning and its repair.

A script that Redis stops half-way leaves too much, not too little: a place, key or tag of an entry
that is gone, two places of one entry, a count too high. Missing data was deleted from outside,
evicted or damaged. So repair removes surplus data, and restores missing data from the record. A
task that may have been delivered before is not delivered by a repair, unless marked: it is dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.text import plain


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        wrong: The inconsistency and its effect.
        repair: The repair; empty if it is only reported.
    """

    wrong: str
    repair: str = ""


KINDS = {
    "record_without_place": Kind(
        "a record waits nowhere, or is parked although nothing is paused, so it will not be "
        "delivered",
        "it waits again for its due time; marked, if it was being published; skipped, if its "
        "grace period is over; dead, with the reason, if it had failed or may have been delivered",
    ),
    "place_without_record": Kind(
        "a place has no record; at its due time it is dropped or dead; a dead one cannot be "
        "restored",
        "the place is removed",
    ),
    "second_place": Kind(
        "a second place of one record, which a later step drops",
        "it is removed; the record keeps its lease, or else the place where it waits",
    ),
    "unreadable_record": Kind(
        "a record that this version cannot read, or whose template is gone or damaged; it will be "
        "dead at its due time, unless a process that schedules its task stores the template again"
    ),
    "wrong_key": Kind(
        "a unique key names a task that is not here or has another key; or a record waits without "
        "its key, so its key does not find it; or it waits behind another task, and no step looks "
        "whether that still holds its key",
        "the name is removed; the record gets its key back, unless another task has it by then; "
        "or it waits until the key is free",
    ),
    "wrong_tag": Kind(
        "a tag names a task that is not here or does not have it; or a record has a tag by which "
        "no selection finds it",
        "the tag is removed; the record's tag finds it again",
    ),
    "wrong_count": Kind(
        "a template's count is too low, so it may be deleted before its last record; or too high, "
        "so it stays after the last one; or is no number, so no task that shares it can be "
        "scheduled",
        "the count is corrected, and the template deleted if no record shares it; a count that is "
        "too high is corrected only while nothing is scheduled",
    ),
    "owed_revoked": Kind(
        "REVOKED must be stored for a cancelled task, but the time or the message is missing",
        "a scanner stores it now; an item without a message, or with a new task's id, is removed",
    ),
    "number_too_low": Kind(
        "the last insertion number is no number, so nothing can be scheduled; or is lower than a "
        "record's, so selections and dumps skip that record",
        "numbering continues above all numbers in use",
    ),
    "leftover": Kind(
        "a claim or an error is left of a task that is not here; a new task with its id would get "
        "it",
        "it is removed",
    ),
}

# Kinds that concern a whole shard, of which only one finding is reported.
ONCE = ("number_too_low",)

# The kind that no single step can see: finding and repairing it needs a count of all records.
COUNTED = "wrong_count"


@dataclass(frozen=True)
class Finding:
    """An inconsistency in the store.

    Attributes:
        kind: One of :data:`KINDS`.
        id: The task's id; or a template's name, in hexadecimal digits; or a unique key; or ``seq``,
            the last insertion number.
        part: The key of the store in which it was found.
        at: The field or member there, as stored.
        shard: The number of the shard.
    """

    kind: str
    id: str
    part: str = field(default="", repr=False)
    at: bytes = field(default=b"", repr=False)
    shard: int = field(default=0, repr=False)

    @property
    def sentence(self) -> str:
        """The inconsistency and its effect."""
        return KINDS[self.kind].wrong

    @property
    def repair(self) -> str:
        """The repair; empty if it is only reported."""
        return KINDS[self.kind].repair

    @property
    def tag(self) -> str | None:
        """The tag that is left, if the finding is about one."""
        is_tag = self.part == "tags"
        return self.at.partition(b"\0")[0].decode(errors="replace") if is_tag else None

    def __str__(self) -> str:
        tag = "" if self.tag is None else f" (tag {plain(self.tag)})"
        return f"{plain(self.id)}: {self.sentence}{tag}"


@dataclass(frozen=True)
class Repaired:
    """The result of repairing a finding.

    Attributes:
        what: ``done``; ``back``: the task waits again; ``late``: it does, but will be skipped, as
            its grace period is over; ``dead``; ``lost``: its place was removed, as its record is
            gone; ``gone``: another step had changed it, so nothing was done; ``left``: there is no
            repair for its kind.
        reason: Why the task is dead.
    """

    finding: Finding
    what: str
    reason: str = ""

    def __bool__(self) -> bool:
        """Whether the finding is resolved."""
        return self.what != "left"

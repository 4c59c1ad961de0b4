"""What can be wrong in the store: every kind of finding, what it means, and what repair does.

A script that Redis stops half-way leaves too much, and not too little: a place, key or tag of what
has gone, two places of one entry, a count too high. What is missing was deleted by somebody,
evicted or spoilt. So whatever is too much is removed, and whatever is missing is put back from what
the record says. Nothing goes by it where a copy may have left before, unless marked: it is dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..logs import plain


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        wrong: What is wrong, and what that means.
        repair: What repair does about it; empty: nothing, it is only told.
    """

    wrong: str
    repair: str = ""


KINDS = {
    "record_without_place": Kind(
        "a record has no place, or is parked in a lane that is not paused, so it will not be "
        "delivered",
        "it waits again for its due time; marked, if it was being published; skipped, if its "
        "grace is over; dead, with the reason, if it had failed or may have left",
    ),
    "place_without_record": Kind(
        "a place has no record; when it is due it is dropped, or dead; a dead one cannot be "
        "retried",
        "the place is removed",
    ),
    "second_place": Kind(
        "a second place of one record, which a later step drops",
        "it is removed; the record keeps its lease, or else its waiting place",
    ),
    "unreadable_record": Kind(
        "a record that this version cannot read, or whose template is gone or damaged; then it "
        "will be dead when it is due, unless a process that schedules its task sends that again"
    ),
    "wrong_key": Kind(
        "a unique key names a task that is not here or has another; or a record waits without its "
        "key, by which nothing finds it",
        "the name is removed; the record has its key again, if no other waits under that by then",
    ),
    "wrong_tag": Kind(
        "a tag is left of a task that is not here or has another; or a record has a tag by which "
        "no selection finds it",
        "the tag is removed; the record's tag finds it again",
    ),
    "wrong_count": Kind(
        "a template counts too few records, so it may go before the last of them; or too many, so "
        "it stays when the last has left; or its count is no number, so nothing that shares it "
        "can be scheduled",
        "the count is put right, and the template goes if nothing shares it; one that is too high "
        "only while nothing is scheduled",
    ),
    "owed_revoked": Kind(
        "REVOKED is to be stored for a cancelled task, but no scanner knows when, or of which "
        "message",
        "a scanner does it now; without a message, or with the id of a new task, it is removed",
    ),
    "number_too_low": Kind(
        "the last insertion number is no number, so nothing can be scheduled, or is lower than a "
        "record's, so selections and dumps pass that by",
        "numbers continue above all earlier ones",
    ),
    "leftover": Kind(
        "a claim or an error is left of a task that is not here; a new task with its id has it",
        "it is removed",
    ),
}

# Those that are about a whole shard, however many records show them: one is told of.
ONCE = ("number_too_low",)

# What no single step can see: it is found, and mended, by counting all records.
COUNTED = "wrong_count"


@dataclass(frozen=True)
class Finding:
    """Something in the store that does not fit.

    Attributes:
        kind: What kind of thing, in one word with underscores.
        id: The task's id; or of a template its name, in hexadecimal digits; or a unique key; or
            ``seq``, the last insertion number.
        part: The key of the store where it was found.
        at: The field or member there, as it is.
        shard: The number of the shard.
    """

    kind: str
    id: str
    part: str = field(default="", repr=False)
    at: bytes = field(default=b"", repr=False)
    shard: int = field(default=0, repr=False)

    @property
    def sentence(self) -> str:
        """What is wrong, and what that means."""
        return KINDS[self.kind].wrong

    @property
    def repair(self) -> str:
        """What repair does about it; empty where it does nothing, and only tells of it."""
        return KINDS[self.kind].repair

    @property
    def tag(self) -> str | None:
        """The tag that it is about, if it is about one that is left."""
        is_tag = self.part == "tags"
        return self.at.partition(b"\0")[0].decode(errors="replace") if is_tag else None

    def __str__(self) -> str:
        tag = "" if self.tag is None else f" (tag {plain(self.tag)})"
        return f"{plain(self.id)}: {self.sentence}{tag}"


@dataclass(frozen=True)
class Repaired:
    """What became of a finding.

    Attributes:
        what: ``done``; ``back``: the task waits again; ``late``: it does, but its grace is over, so
            it will be skipped; ``dead``; ``lost``: its place was removed, as its record is gone;
            ``gone``: by itself, as another step had changed it, and nothing
            was done; ``left``: nothing is done about its kind.
        reason: Why the task is dead.
    """

    finding: Finding
    what: str
    reason: str = ""

    def __bool__(self) -> bool:
        """Whether it is no more."""
        return self.what != "left"

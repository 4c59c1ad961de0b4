"""The record of a history: calls, their answers and effects, and entries."""

from dataclasses import dataclass, field
from typing import Any

from tests.lab.simulator.sight import RuleView, Version, View

RULES = {
    "twice": "a call takes effect once; so does a selection, but for answers that are to come",
    "late": "a call takes effect before its caller gets the answer",
    "order": "a call that was interrupted takes no effect after a later one",
    "answer": "an answer is true",
    "copies": "of an entry there is one unmarked copy at most",
    "undone": "a cancelled entry is not delivered, nor is a moved or edited one as it was",
    "back": "a cancelled entry comes back as it was",
    "early": "nothing leaves before it is due by Redis's clock",
    "unique": "one entry waits under a key, but for entries that came back while it was taken",
    "kept": "an entry that stays, by the answer, was there, and its due time is a reason",
    "debounce": "a replacement is due at the latest so long after the first was scheduled",
    "revoked": "a task that is replaced, or gives way, is revoked, and no other",
    "ghost": "the key and tags of an entry come and go with it",
    "paused": "no paused entry leaves, but for those that run now",
    "skipped": "an entry with a late policy leaves in time, or is skipped",
    "count": "a selection counts what it did",
    "taken": "a message that is delivered becomes an entry once, and is over then",
    "lost": "an accepted entry stays until it is delivered or cancelled",
    "unasked": "no message comes without a request",
    "overtime": "a call ends with its time",
    "unanswered": "when nothing fails any more, a call is answered",
    "tardy": "when nothing fails any more, due entries leave within the safety interval",
    "exclusive": "no two tasks run at once that hold a key until they have finished",
    "held": "a key is held from the hand-over on, and nothing else comes under it",
    "freed": "only the word of its own run, or its end in time, frees a key",
    "behind": "one waits behind the holder of its key, until that has it no longer",
    "stuck": "a key is free once its run has said so, or its time is over",
    "end": "a run that goes on sets the end of its key anew",
    "slot": "a slot of a rule has one run at most, and only while the rule is at work",
    "missed": "a slot is left out only if it was missed, met a held key, or its rule was changed",
    "cleared": "a change of a rule takes its older runs, and only those; not what others changed",
    "loaded": "a load brings a rule as it was dumped, or lets the one that is there begin anew",
    "left over": "due entries leave",
    "check": "the package's own check finds nothing",
    "error": "no other errors",
}

# Calls about a recurring rule, in several steps; and the looks of those that write its runs.
RULE_KINDS = ("write", "every", "every pause", "every resume", "every remove", "dump", "load")
# The effects on entries of calls, if these are not their own kind.
EFFECTS = {"sweep": ("reschedule",), **dict.fromkeys(RULE_KINDS, ("schedule", "cancel"))}


@dataclass(frozen=True)
class Finding:
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what} ({RULES[self.rule]})"


@dataclass(frozen=True)
class RulePlan:
    """The plan of a recurring rule. Its key is held so long after the delivery, if at all."""

    name: str
    seconds: int
    missed: str
    jitter: float = 0
    key: str = ""
    hold_s: int = 0


@dataclass(frozen=True)
class Answer:
    """The answer to a caller about an id or a key, with the due time if there is one.

    Attributes:
        stays: The id of the entry that is kept.
        gone: The id that the answer names as revoked, and whether that is certain.
    """

    word: str
    due_ms: int | None = None
    stays: str = ""
    gone: tuple[tuple[str, bool], ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, filter(None, (self.word, self.stays, self.due_ms))))


@dataclass(frozen=True)
class Effect:
    """The entry as a call left it, and how many copies of it had been delivered by then."""

    life: "Life"
    view: View
    copies: int


@dataclass
class Call:
    """One operation of a client."""

    name: str
    kind: str  # schedule, cancel, undo, reschedule, edit, release, clear, sweep, pause, resume
    ids: tuple[str, ...]  # none, of one that names the key, a tag, or a lane
    key: str
    conflict: str
    lane: str
    timeout_us: int
    began_us: int
    slept_us: int
    ended_us: int | None = None
    how: str = ""  # answered, unavailable, interrupted
    answers: list["Answer"] = field(default_factory=list)
    effects: dict[str, "Effect"] = field(default_factory=dict)
    seen: dict[str, set[str]] = field(default_factory=dict)  # places in which requests saw an id
    dues: set[tuple[str, int]] = field(default_factory=set)  # the due times that they found
    held: set[tuple[str, int]] = field(default_factory=set)  # entries found under the key
    left: set[str] = field(default_factory=set)  # ids found that held the key, and may run
    displaced: dict[str, "Effect"] = field(default_factory=dict)  # entries that gave way
    about: set[str] = field(default_factory=set)  # the ids and keys that its effects were about
    taking: dict[str, Any] = field(default_factory=dict)  # the delivery of each id
    taken: set[str] = field(default_factory=set)  # the ids that were entries before
    revoked: set[str] = field(default_factory=set)  # those of its ids revoked after a request
    told: dict[str, "Life"] = field(default_factory=dict)  # ids reported by progress, or before it
    hurries: bool = False  # an undo makes an overdue entry due now
    run_of: str = ""  # the id of the run that makes it, for that id
    goes_on: bool = False  # as a retry of that run
    delivery: str = ""  # that run's
    rule: str = ""  # the name of the rule that it is about
    plan: str = ""  # and the name of the plan that it sets
    rules_seen: set[RuleView | None] = field(default_factory=set)  # as its requests found it
    dumped: set[RuleView | None] = field(default_factory=set)  # as the dump found it that it loads
    keys_held: set[str] = field(default_factory=set)  # as the requests of a writer found them
    asked_to_turn: bool = False  # a step of Redis has answered what it made of the rule
    turned: bool = False  # it has changed the rule
    to_be_interrupted: bool = False
    unchanged: int = 0

    @property
    def by_key(self) -> bool:
        return bool(self.key) and not self.ids

    @property
    def asked(self) -> tuple[str, ...]:
        """The ids, or the key, that its answer is about."""
        return (key_of(self.key),) if self.by_key else self.ids

    def name_of(self, task_id: str) -> str:
        """The name in the entry that it writes under an id."""
        return str(self.taking[task_id].message if task_id in self.taking else self.name)

    @property
    def subjects(self) -> set[str]:
        """The ids, keys and lanes on which its order with other calls is checked."""
        key, lane = key_of(self.key), lane_of(self.lane)
        return {*self.asked, *([key] if self.key else []), *([lane] if self.lane else [])}

    def tell_no_change(self) -> bool:
        """Whether the history should note a request without effect; only a few times."""
        self.unchanged += 1
        return self.unchanged <= 3


def key_of(key: str) -> str:
    """A key among ids."""
    return f"key {key}"


def lane_of(lane: str) -> str:
    """A lane among ids and keys."""
    return f"lane {lane}"


def rule_of(name: str) -> str:
    """A rule among ids and keys."""
    return f"rule {name}"


@dataclass
class Life:
    """An entry, from the call that scheduled it to its end."""

    name: str
    task_id: str
    view: View
    copies: list[tuple[bool, Version]] = field(default_factory=list)  # whether they are marked
    copies_before: int = 0  # its copies when it was moved
    was_due: bool = False  # by Redis's clock, which may have been set back since
    changed_by: str = ""  # the last call that moved or cancelled it
    is_cancelled: bool = False
    came_ms: int = 0  # if it came by a rule
    sure: bool = False  # that call said DONE: no earlier copy exists, or will come

    def __str__(self) -> str:
        return f"{self.task_id} of {self.name}"

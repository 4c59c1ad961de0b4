"""The steps on recurring rules, and the rows that they keep; see ``lua/prelude/rules.lua``.

They need no library beside the core's, so a dump can take rules along where none is written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from hashlib import sha1
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from kombu.utils.json import loads

from ..core.clock import EPOCH, from_ms
from ..core.services import Services
from ..core.store import NewEntry
from ..core.store.calls import Shard
from ..core.store.entries import Entries
from ..core.store.keys import shard_of
from ..core.store.record import FORMAT, time_in
from ..core.tasks.changing import withdraw
from ..core.tasks.scheduled_task import ScheduledTask
from ..core.tasks.selection import select

TASK = "celery_delayq.write_rules"  # by this name it is in logs, events and Flower
READ = 100  # rules of one page of a listing
CLAIMED = 10  # rules of one claim
CLAIM_MS = 15_000  # for so long no other writer looks at them
MOST_RULES = 100_000
LONGEST_TROUBLE = 300  # characters
_ANY = 10**9  # rules
PAUSED, NEW = "p", "n"  # flags
_FORMAT = re.compile(r"\[([1-9]),")  # begins a plan
_SKIPS = re.compile(r"(?:[0-9]{13}:\S*(?: |$))*")

Claims = list[tuple[int, str, list[bytes]]]  # shard, by number; claim; rules that are skipped


@dataclass
class Said:
    """What this process has said with ``every``; it is not stored.

    Attributes:
        digests: Of the last rule that it said under each name.
        rows: The rows of those that are declared if this process turns out to be a worker.
        is_over: Whether it is a worker that is ready: what it says from now on is not declared.
    """

    digests: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    is_over: bool = False


_SAID: WeakKeyDictionary[Services, Said] = WeakKeyDictionary()
#: Whether this code is only looked at, as by `preflight`: then `every` notes rules and writes none.
ONLY_NOTED: ContextVar[bool] = ContextVar("celery_delayq_only_noted", default=False)


def said_of(services: Services) -> Said:
    """Return what this process has said with an app's ``every``."""
    return _SAID.setdefault(services, Said())


class RowEdit(NamedTuple):
    """A person's change of a rule's schedule.

    Attributes:
        timing: A text, the name of a zone, and a dialect, as of a plan.
        offset: In place of the row's.
        by: Who made it.
        at_ms: When.
    """

    timing: tuple[str, str, str]
    offset: str
    by: str
    at_ms: int

    @property
    def text(self) -> str:
        facts = {"timing": self.timing, "offset": self.offset, "by": self.by, "at": self.at_ms}
        return json.dumps(facts, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> RowEdit:
        """Read the text of a row.

        Raises:
            ValueError: another program wrote it.
        """
        try:
            found = json.loads(text)
            timing, zone, dialect = map(str, found["timing"])
            facts = int(found["offset"]), str(found["by"]), int(found["at"])
            from_ms(facts[2])
        except (KeyError, OverflowError, RecursionError, TypeError) as error:
            raise ValueError(str(error)) from error
        return cls((timing, zone, dialect), str(facts[0]), *facts[1:])


class Past(NamedTuple):
    """A revision of a rule, and which runs it may have had.

    Attributes:
        revision: Its number.
        began: Its slots came after this one.
        upto: Up to this slot, its runs were due before it ended.
        offset: By how much they were later than their slots.
        timing: As of a :class:`RowEdit`.
    """

    revision: int
    began: datetime
    upto: datetime
    offset: timedelta
    timing: tuple[str, str, str]


def _pasts_in(text: str) -> list[Past]:
    found = list[Past]()
    for revision, began, upto, offset, timing in json.loads(text):
        parts, zone, dialect = map(str, timing)
        slots = from_ms(int(began)), from_ms(int(upto))
        late = timedelta(milliseconds=int(offset))
        found.append(Past(int(revision), *slots, late, (parts, zone, dialect)))
    return found


class Waiting(NamedTuple):
    """A run that waits.

    Attributes:
        due: When it is due.
        kind: ``p``, it is paused; ``b``, it is behind another task; or ``s``.
        id: Its id.
    """

    due: datetime
    kind: str
    id: str


@dataclass(frozen=True)
class Stored:
    """A rule in the store.

    Attributes:
        name: Its name.
        shard: The number of its shard.
        row: Its row.
        revision: Raised by each change.
        last: Its last slot: none up to that is written any more.
        flags: ``p``, paused; ``c`` or ``r``, what it wrote is to be cleared up; ``n``, it has
            written nothing yet.
        trouble: Why its next run cannot be made, or empty.
        now: The time of its Redis when it was read.
    """

    name: str
    shard: int
    row: Mapping[str, Any]
    revision: int
    last: datetime
    flags: str
    trouble: str = ""
    now: datetime = field(default=EPOCH, compare=False)

    @classmethod
    def read(cls, found: Any, shard: int, now: datetime) -> Stored | None:
        """Read a row of ``rules.lua``; ``None``: another program wrote it."""
        try:
            row = json.loads(found.row)
            numbers, flags = (int(row["revision"]), from_ms(int(row["last"]))), row["flags"]
            [*_, text] = (row[name] for name in ("digest", "home", "plan", "by", "source"))
            if row.get("edit"):
                RowEdit.read(row["edit"])
            if not is_skipped(row.get("skipped", "")):
                return None
            _pasts_in(row.get("past", "[]"))
        except (KeyError, OverflowError, TypeError, ValueError):
            return None
        if not isinstance(flags, str) or not isinstance(text, str):
            return None
        trouble = found.trouble.decode(errors="replace").partition(" ")[2]
        return cls(found.name.decode(errors="replace"), shard, row, *numbers, flags, trouble, now)

    @property
    def digest(self) -> str:
        return str(self.row["digest"])

    @property
    def source(self) -> str:
        return str(self.row["source"])

    @property
    def offset(self) -> timedelta:
        """By how much its runs are later than their slots."""
        text = self.edit.offset if self.edit else self.row.get("offset", "0")
        return timedelta(milliseconds=time_in(text.encode()) or 0)

    @cached_property
    def edit(self) -> RowEdit | None:
        """A person's change of its schedule, which lies over the plan."""
        return RowEdit.read(self.row["edit"]) if self.row.get("edit") else None

    @property
    def began(self) -> datetime:
        """The slot after which its slots have its revision."""
        began = time_in(str(self.row.get("from", "")).encode())
        return from_ms(self.since_ms if began is None else began)

    @property
    def past(self) -> list[Past]:
        """Its latest revisions that may have had runs, newest first."""
        return _pasts_in(self.row.get("past", "[]"))

    @cached_property
    def skips(self) -> dict[datetime, str]:
        """Slots that a person skipped, each with the id of its run."""
        pairs = (skip.partition(":") for skip in self.row.get("skipped", "").split())
        return {from_ms(int(slot)): task_id for slot, _, task_id in pairs}

    @property
    def version(self) -> int:
        return int(self.row["version"])

    @property
    def is_declared(self) -> bool:
        """Whether a worker says it at each start."""
        return self.row.get("declared") == "1"

    @property
    def since_ms(self) -> int:
        """Since when its slots are its own: it was set then, or took over from beat."""
        return time_in(self.row.get("since", "").encode()) or 0

    @property
    def brought_ms(self) -> int:
        """When a dump brought it; 0 if none did."""
        return time_in(self.row.get("brought", "0").encode()) or 0

    @property
    def is_paused(self) -> bool:
        return PAUSED in self.flags

    @property
    def is_beats(self) -> bool:
        """Whether beat sends its entry, as an import found that no rule can be made of it."""
        return self.is_paused and "beat" in self.row

    @property
    def is_removed(self) -> bool:
        return "r" in self.flags

    @property
    def is_unclear(self) -> bool:
        """Whether it has to clear up what it wrote, before it writes anything."""
        return bool({"c", "r"} & {*self.flags})

    @property
    def newer(self) -> str:
        """Why only a later release can write its runs; empty if this one can."""
        return newer(str(self.row["plan"]))

    @property
    def signature(self) -> dict[str, Any]:
        """The fields of the signature that its runs are calls of.

        Raises:
            ValueError, TypeError, LookupError: this version cannot read it.
        """
        return signature_in(str(self.row["plan"]))

    @property
    def is_new(self) -> bool:
        """Whether it has written nothing since it was set or resumed."""
        return NEW in self.flags


@dataclass(frozen=True)
class Run:
    """A run to write.

    Attributes:
        slot, due: Its slot and due time, ms.
        entry: Its entry; ``None``: the slot is left out.
        why: Why it is left out.
    """

    slot: int
    due: int
    entry: NewEntry | None
    why: str = ""


def is_skipped(text: str) -> bool:
    """Whether a text can be the slots that a person skips, as in a row."""
    return _SKIPS.fullmatch(text) is not None


def newer(plan: str) -> str:
    """Return why only a later release can read a plan; empty if this one can."""
    found = _FORMAT.match(plan)
    if found is None or found[1] <= FORMAT:
        return ""
    return f"it has format {found[1]}, and this release reads formats up to {FORMAT}"


def signature_in(plan: str) -> dict[str, Any]:
    """Return the fields of the signature in a plan; see :attr:`Stored.signature`."""
    if why := newer(plan):
        raise ValueError(why)
    fields: dict[str, Any] = loads(json.loads(plan)[1])
    return fields


def tag_of(name: str) -> str:
    """Return the tag of a rule's runs."""
    return f"every:{name}"


def shard_for(entries: Entries, home: str) -> Shard:
    """Return the shard of a rule: that of its key, or else of its name."""
    shards = entries.unasked_shards
    return shards[shard_of(home, len(shards))]


def change(shard: Shard, name: str | bytes, what: str, given: str = "", most: int = 0) -> str:
    """Change a rule; return the answer of ``rule.lua``."""
    (answer,) = shard.calls.call("rule", called=name, what=what, given=given, most=most)
    return str(answer.decode())


def put(
    entries: Entries, what: str, name: str, row: Mapping[str, Any], *, has_moved: bool = False
) -> tuple[Shard, str]:
    """Set a rule, or load it; return its shard, and the answer of ``rule.lua``.

    One that *has_moved* from another shard is no new one, so it is set however many there are.
    """
    shard = shard_for(entries, row["home"])
    most = _ANY if has_moved else -(-MOST_RULES // len(entries.unasked_shards))
    return shard, change(shard, name, what, json.dumps(row), most)


def find(entries: Entries, name: str) -> Stored | None:
    """Return the rule of a name, or ``None``."""
    return next(iter(find_all(entries, name)), None)


def find_all(entries: Entries, name: str) -> list[Stored]:
    """Return the rows of a name, the one that counts first.

    There are several if two processes have given a rule other keys at once, on other shards.
    """
    found = [rule for shard in entries.shards for rule in named(shard, [name.encode()])]
    return sorted(found, key=lambda rule: (not rule.is_removed, rule.revision), reverse=True)


def named(shard: Shard, names: Sequence[bytes]) -> list[Stored]:
    """Return the rules of these names on a shard."""
    return _read(shard, shard.scripts.call("rules", cursor="", count=1, names=names))


def troubled(entries: Entries, count: int) -> list[Stored]:
    """Return some rules whose next run cannot be made, or that wait for a writer that reads them.

    Of each of both kinds, up to *count* of each shard.
    """
    answers = (
        (shard, shard.scripts.call("rules", cursor="trouble", count=count, names=[]))
        for shard in entries.shards
    )
    return [rule for shard, answer in answers for rule in _read(shard, answer)]


def each(entries: Entries) -> Iterator[Stored]:
    """Yield all rules, in no order; each at least once."""
    for found, _ in slices(entries):
        yield from found


def slices(
    entries: Entries, shard: int = 0, cursor: int = 0
) -> Iterator[tuple[list[Stored], tuple[int, int] | None]]:
    """Yield the same in slices, each with the shard and cursor at which to go on, if it has to."""
    shards = entries.shards
    while shard < len(shards):
        answer = shards[shard].scripts.call("rules", cursor=cursor, count=READ, names=[])
        found, cursor = _read(shards[shard], answer), int(answer.cursor)
        shard += not cursor
        yield found, (shard, cursor) if shard < len(shards) else None


def _read(shard: Shard, answer: Any) -> list[Stored]:
    now = from_ms(int(answer.now) // 1000)
    found = (Stored.read(row, shard.number, now) for row in answer.found)
    return [rule for rule in found if rule is not None]


def runs_of(
    entries: Entries, asked: Sequence[tuple[Stored, Sequence[str]]]
) -> list[tuple[list[Waiting], list[str]]]:
    """Return of each rule its runs that wait, and what became of those with some ids."""
    found: dict[int, tuple[list[Waiting], list[str]]] = {}
    by_shard: dict[int, list[int]] = {}
    for at, (rule, _) in enumerate(asked):
        by_shard.setdefault(rule.shard, []).append(at)
    for number, places in by_shard.items():
        for start in range(0, len(places), READ):
            some = places[start : start + READ]
            texts = [(asked[at][0].name, " ".join(asked[at][1])) for at in some]
            answer = entries.shards[number].scripts.call("runs", rules=[*chain(*texts)])
            found |= {at: _runs_in(row) for at, row in zip(some, answer.found, strict=True)}
    return [found[at] for at in range(len(asked))]


def _runs_in(row: Any) -> tuple[list[Waiting], list[str]]:
    parts = (run.split(":", 2) for run in row.waiting.decode().split())
    waiting = [Waiting(from_ms(int(due)), kind, task_id) for due, kind, task_id in parts]
    return waiting, row.fates.decode().split()


class Ahead(NamedTuple):
    """What a writer has to do on a shard.

    Attributes:
        now_us: Redis's time, us.
        look_ms: When to look next; -1: there are no rules.
        claim: The claim on the rules that are named, or empty.
        names: The rules at which to look by now.
        left: The rules of a claim that has ended, whose runs could not be made.
        writers: How many writers there are, if some are left.
    """

    now_us: int
    look_ms: float
    claim: str
    names: list[bytes]
    left: list[bytes]
    writers: int

    @property
    def rest(self) -> float:
        """After how many seconds to look next; infinity: there are no rules."""
        return math.inf if self.look_ms < 0 else max(0.0, self.look_ms / 1000 - self.now_us / 1e6)


def ahead(shard: Shard, over: str = "", skipped: Sequence[bytes] = ()) -> Ahead:
    """Return what a writer has to do, but for the rules *skipped*; give up its claim *over*."""
    return _ahead(shard, limit=1, lease=0, held="", over=over, skipped=skipped)


def now(shard: Shard) -> datetime:
    """Return the time by a shard's Redis."""
    return from_ms(ahead(shard).now_us // 1000)


def claim(shard: Shard, held: str = "", skipped: Sequence[bytes] = ()) -> Ahead:
    """Claim some of the rules to look at, but for those *skipped*; those of the claim *held* first.

    A claim lapses. If its process was killed, or is too slow, another one looks at the rules then.
    """
    options = {"held": held, "over": "", "skipped": skipped}
    return _ahead(shard, limit=CLAIMED, lease=CLAIM_MS, **options)


def _ahead(shard: Shard, **options: Any) -> Ahead:
    now_us, look_ms, claim, names, left, writers = shard.scripts.call("rules_ahead", **options)
    return Ahead(int(now_us), float(look_ms), claim.decode(), names, left, int(writers))


class Named(NamedTuple):
    """What workers have named.

    Attributes:
        now_ms: Redis's time.
        since_ms: Since when there were workers that name, without a gap.
        knows: Whether this worker has named something before.
        looks: Whether this worker is the one to look at all rules.
        sweeps: Whether it removes those that nobody has named for ten minutes.
        unknown: What the last worker that looked has found; empty: it is not known.
        found: What was named in ten minutes, and whether a living worker names it.
    """

    now_ms: int
    since_ms: int
    knows: bool
    looks: bool
    sweeps: bool
    unknown: dict[str, Any]
    found: list[tuple[dict[str, Any], bool]]

    @property
    def said(self) -> dict[str, set[str]]:
        """The digests of the rules that were named, by name."""
        return _digests(names for names, _ in self.found)

    @property
    def living(self) -> dict[str, set[str]]:
        """The same, of living workers only."""
        return _digests(names for names, is_living in self.found if is_living)

    @property
    def tasks(self) -> set[str]:
        """The tasks that living workers know."""
        return {task for names, is_living in self.found if is_living for task in names["tasks"]}


def _digests(some: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    digests: dict[str, set[str]] = {}
    for names in some:
        for name, digest in names["rules"].items():
            digests.setdefault(name, set()).add(digest)
    return digests


def name(
    entries: Entries,
    process: str = "",
    names: Mapping[str, Any] | None = None,
    *,
    unknown: Mapping[str, Any] | None = None,
    full: bool = True,
) -> Named:
    """Name the rules and tasks of a worker; without *names*, it has ended; or only read.

    Args:
        entries: The store's.
        process: The worker; empty: only read.
        names: The digests of its ``rules``, by name, and its ``tasks``.
        unknown: What it has found as it looked at all rules.
        full: Learn what others name, also if this worker has named these just before.
    """
    text = "" if names is None else json.dumps(names, sort_keys=True)
    digest = sha1(text.encode(), usedforsecurity=False).hexdigest() if text else ""
    found = "" if unknown is None else json.dumps(unknown)
    [shard, *_] = entries.unasked_shards
    answer = shard.scripts.call(
        "rules_named", process=process, digest=digest, names=text, unknown=found, full=int(full)
    )
    return Named(
        answer.now // 1000,
        answer.since,
        bool(answer.knows),
        answer.looks > 0,
        answer.looks > 1,
        json.loads(answer.unknown or "{}"),
        [(json.loads(each.names), each.living > 0) for each in answer.found],
    )


def fire(
    shard: Shard, rule: Stored, look_ms: float, runs: Sequence[Run], trouble: str = ""
) -> list[str]:
    """Write runs of a rule; return a word for each, or the one word ``changed``."""
    flat: list[object] = []
    for run in runs:
        flat += (run.slot, run.entry.task_id if run.entry else "", run.due)
        record = run.entry.record if run.entry else None
        flat += (record.header, record.labels + record.body) if record else (run.why, "")
        flat.append(record.template if record else "")
    answer = shard.calls.call(
        "fire",
        called=rule.name,
        revision=rule.revision,
        look=look_ms,
        trouble=trouble[:LONGEST_TROUBLE],
        runs=flat,
    )
    return str(answer[0].decode()).split(" ")


def clear(
    services: Services,
    shard: Shard,
    rule: Stored,
    is_own: Callable[[ScheduledTask], bool] = lambda _: False,
) -> None:
    """Cancel what a rule wrote before, but for runs that somebody moved or edited since.

    No undo of these is kept, as a resume or another change writes their slots again. A run that a
    dump brought has changed, too: *is_own* says whether it is as it was written.
    """
    delayq = services.app.delayq
    runs = select(delayq, tag=tag_of(rule.name))  # none that is written from now on
    # If another process has cleared up meanwhile, the rule writes again, and these are new runs.
    if not _is_as_read(shard, rule):
        return
    shards = len(services.entries.unasked_shards)
    skipped = {task_id: slot for slot, task_id in rule.skips.items()}
    for task in runs:
        # A user's own task may have this tag; and the rule another row on the shard of another key.
        is_elsewhere = task.key and shard_of(task.key, shards) != rule.shard
        if is_elsewhere or not is_run(task.id):
            continue
        # A run that was skipped, and brought back by an undo: it is written anew if need be.
        slot = skipped.get(task.id)
        is_back = slot is not None and task.due == slot + rule.offset
        if is_back or task.revision // 1000 == ms_of(task.created) or is_own(task):
            withdraw(services, task.id, if_revision=task.revision)
        if is_back and slot is not None:
            change(shard, rule.name, "forget", str(ms_of(slot)))
    if "to" in rule.row:
        # If it was placed meanwhile, it may have been removed there since.
        if not _is_as_read(shard, rule):
            return
        row = json.loads(rule.row["to"])
        # However many rules are there: this one is none more.
        change(shard_for(services.entries, row["home"]), rule.name, "place", rule.row["to"], _ANY)
    change(shard, rule.name, "cleared", str(rule.revision))


def _is_as_read(shard: Shard, rule: Stored) -> bool:
    found = named(shard, [rule.name.encode()])
    return any((now.revision, now.flags) == (rule.revision, rule.flags) for now in found)


def is_run(task_id: str) -> bool:
    """Whether an id is one that rules give, a UUID made of a name; a task has a random one."""
    with suppress(ValueError):
        return UUID(task_id).version == 5  # noqa: PLR2004 - RFC 9562, section 5.5
    return False


def ms_of(moment: datetime) -> int:
    """Return a moment's unix ms, rounded up: nothing is early."""
    return -((EPOCH - moment.astimezone(timezone.utc)) // timedelta(milliseconds=1))

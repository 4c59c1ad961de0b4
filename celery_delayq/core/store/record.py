r"""The record of an entry: its extras, its parts if it is new, its fields; and the entry as read.

Scripts assemble a record; this module writes three parts of it. An entry as it is read has what its
record says, and the facts that a script tells beside it.

    1L6:celery ...... 1767225600000 1767222000123456 ....... 0 ...... ...... T ............ ...
    || |       |      |             |                |       | |      |      | |            |
    || |       |      |             |                |       | |      |      | |     values
    || |       |      |             |                |       | |      |      | its name, 12 bytes
    || |       |      |             |                |       | |      |      shares a template (T),
    || |       |      |             |                |       | |      |      or is whole (I)
    || |       |      |             |                |       | |      queue it was sent with
    || |       |      |             |                |       | task
    || |       |      |             |                |       flags; extras stand at the end
    || |       |      |             |                last change, us, 7 bytes
    || |       |      |             when it was scheduled, us
    || |       |      due time, ms
    || |       insertion number, 6 bytes
    || destination: its length, ':', and it
    |bound for a list (L) or a relay through the broker (R)
    format version                                          (no blanks between the parts)

A change keeps the insertion number and the time of scheduling, and increases the last change. Two
states of an entry never have the same one, so an edit identifies by it the state that it read.

The flags are one printable character: ``0`` plus the sum of 1 (has a unique key), 2 (has tags), 4
(has a late policy), 8 (is to run now) and 16 (was released: its message has an ``eta``). A record
with one of the first three ends with its :class:`Extras`:

    key NUL policy NUL tag NUL \xff more NUL ... 0042  their length, in 4 digits
       \xff f3600000                     |             how long the key holds, if so
                                         of a later release; a change keeps it

Task and queue are the first 6 bytes of the SHA-1 of their names, so that a comparison of bytes can
select entries. The names take 20 bytes each, and more. Numbers for them would need a table that
every call reads, and that grows with each new name.

Of the 956 bytes of a no-op task's message some 150 differ between two calls of the same task. The
rest is a **template**, kept once and counted. This reduces a waiting task from 1,260 to 460 bytes
of Redis's memory, and makes delivery take half as long again (``tests/lab/benchmarks``,
move_profile).
A message that is sent for the first time, or large, or unusual, is kept whole.

The message ends just before its due time, so rescheduling never touches it. ``hand_over`` joins
messages in its script; other readers get the parts and join them here, at half of Redis's time.
``lua/prelude/record.lua`` and ``lua/prelude/extras.lua`` describe the same layout for the scripts;
the first says what every later format keeps.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, Union
from urllib.parse import unquote

from ..clock import from_ms
from ..errors import InvalidOption, UnreadableRecord
from .keys import checked_name

HAS_KEY, _HAS_TAGS, _HAS_POLICY = 1, 2, 4  # flags of the record
LENGTH_DIGITS = 4
MOST_TAGS = 16
MOST_ADDED = 5000  # bytes: as much room as the longest key and tags leave in the extras

Tags = Union[list[str], tuple[str, ...], set[str], frozenset[str]]
UNKNOWN_TAG = "delayq:unknown"  # of an entry that no worker knew; counts.lua counts them
HELD = b"\xff"  # in no key: they are UTF-8
UNTIL_FINISHED, WINDOW = "f", "w"


def hold_of(ms: int, *, until_finished: bool) -> str:
    """Return how a key holds, as :class:`Extras` has it."""
    return f"{UNTIL_FINISHED if until_finished else WINDOW}{ms}" if ms else ""


@dataclass(frozen=True)
class Extras:
    """The extras of an entry; :data:`DATA` says how others have them.

    An edit, an undo and a reshard keep all of them; so does a release, but for the late policy.

    Attributes:
        key: Its unique key, 1 to 255 bytes of text without NUL; or empty.
        tags: Its tags, at most 16, each within the same limits.
        grace_ms: How late it may leave; ``None``: however late.
        excused_ms: Since when that counts, if that is later than its due time: unix ms.
        hold: How the key holds, if longer than the entry waits: a letter and ms; see
            ``extras.lua``.
        others: What a later release added, each part beginning with :data:`HELD`.
    """

    key: str = ""
    tags: tuple[str, ...] = ()
    grace_ms: int | None = None
    excused_ms: int = 0
    hold: str = ""
    others: tuple[bytes, ...] = ()

    @property
    def unique_ms(self) -> int:
        """How long the key holds, at most or at least; 0: while the entry waits."""
        return int(self.hold[1:] or 0)

    @property
    def until_finished(self) -> bool:
        """Whether the key holds until the run has finished."""
        return self.hold.startswith(UNTIL_FINISHED)

    @property
    def additions(self) -> list[str]:
        """What a later release added, a character for each byte."""
        return [part[1:].decode("latin-1") for part in self.others]

    def data(self) -> dict[str, Any]:
        """Return the :data:`DATA` of the entry, as a dump's line has them."""
        return {name: getattr(self, name) for name in DATA} | {"tags": [*self.tags]}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Extras:
        """Return the extras with these :data:`DATA`."""
        own = {one.name: data[one.name] for one in fields(cls) if one.name in DATA}
        own["tags"] = tuple(data["tags"])
        own["hold"] = hold_of(data["unique_ms"], until_finished=data["until_finished"])
        own["others"] = tuple(HELD + text.encode("latin-1") for text in data["additions"])
        return cls(**own)

    @property
    def flags(self) -> int:
        has = HAS_KEY * bool(self.key) + _HAS_TAGS * bool(self.tags or self.others)
        return has + _HAS_POLICY * (self.grace_ms is not None)

    def text(self) -> bytes:
        """Return the extras as they end a record; empty, if there are none."""
        if not self.flags:
            return b""
        policy = "" if self.grace_ms is None else f"{self.grace_ms}:{self.excused_ms:013d}"
        key = self.key.encode() + (HELD + self.hold.encode() if self.hold else b"")
        parts = (key, *map(str.encode, (policy, *self.tags)), *self.others)
        text = b"".join(b"%s\0" % part for part in parts)
        return text + b"%0*d" % (LENGTH_DIGITS, len(text))

    @classmethod
    def ending(cls, record: bytes) -> Extras:
        """Read the output of :meth:`text` at the end of a record."""
        length = int(record[-LENGTH_DIGITS:])
        named, policy, *rest = record[-LENGTH_DIGITS - length : -LENGTH_DIGITS].split(b"\0")[:-1]
        key, _, hold = (part.decode(errors="replace") for part in named.partition(HELD))
        grace, _, excused = policy.partition(b":")
        others = tuple(part for part in rest if part.startswith(HELD))
        tags = tuple(part.decode(errors="replace") for part in rest if part not in others)
        return cls(key, tags, int(grace) if policy else None, int(excused or 0), hold, others)


_NO_EXTRAS = Extras()


class Type(NamedTuple):
    """The values of a field: a check, and the same in words."""

    is_right: Callable[[Any], bool]
    expected: str


class Datum(NamedTuple):
    """How a dump's line has a datum of :class:`Extras`, and who shows it.

    Attributes:
        type: The values that a load takes.
        default: The value of a line without it.
        is_shown: Whether a ``ScheduledTask`` has it, in a field of its name.
    """

    type: Type
    default: Any = None
    is_shown: bool = False


def whole_number(low: int, high: int) -> Type:
    """Return the type of the whole numbers from *low* to *high*."""

    def is_right(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Type(is_right, f"a whole number from {low} to {high}")


def _is_key(value: Any) -> bool:
    try:
        checked_name("key", value)
    except InvalidOption:
        return False
    return True


def _is_tags(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MOST_TAGS and all(map(_is_key, value))


_BYTES = re.compile(r"[\x01-\xff]*")  # a character for each; not NUL


def _is_additions(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    are_bytes = all(isinstance(text, str) and _BYTES.fullmatch(text) for text in value)
    return are_bytes and sum(map(len, value)) <= MOST_ADDED


KEY = Type(_is_key, "text of 1 to 255 bytes, without NUL")
FLAG = Type(lambda value: isinstance(value, bool), "true or false")
DATA = {
    "key": Datum(KEY, "", is_shown=True),
    "unique_ms": Datum(whole_number(0, 10**15), 0),
    "until_finished": Datum(FLAG, default=False),
    "tags": Datum(
        Type(_is_tags, f"1 to {MOST_TAGS} texts of 1 to 255 bytes, without NUL"), [], is_shown=True
    ),
    "grace_ms": Datum(whole_number(0, 10**15)),  # 0 differs from None, no grace period
    "excused_ms": Datum(whole_number(0, 10**13 - 1), 0),
    "additions": Datum(
        Type(_is_additions, f"texts of at most {MOST_ADDED} characters up to U+00FF, without NUL"),
        [],
    ),
}
SHOWN = tuple(name for name, datum in DATA.items() if datum.is_shown)

FORMAT = "1"  # the newest format that this release reads, and the one that it writes
NAME_BYTES = 12
LAST_MS = 253_402_214_400_000  # the latest expiry: 9999-12-31, a day that exists in each time zone
LINES = 10
NO_FLAGS = b"0"
_NEWER = "its record has format %s, and this release reads formats up to %s"
LABEL_BYTES = 6
# The start of each part, after the header; the insertion number comes first.
DUE, CREATED, CHANGED, FLAGS, TASK, QUEUE, FORM, MESSAGE = 6, 19, 35, 42, 43, 49, 55, 56
EVERYTHING = b"*" * (1 + LABEL_BYTES)  # the lane of all entries
DIFFERING = 6  # values between the lines, besides ids and due time
RUN_NOW = 8  # flag; the smaller ones are those of extras
RELEASED = 16  # flag


@dataclass(frozen=True)
class NewRecord:
    """The parts of a record that scheduling writes; the script adds number and times.

    Attributes:
        header: See :func:`header_for`.
        labels: See :func:`labels_for`.
        body: The rest, from the letter of its form.
        template: The text of the template that the body shares, if any.
    """

    header: bytes
    labels: bytes
    body: bytes
    template: bytes = b""

    @property
    def name(self) -> bytes | None:
        """The name of the template that the body shares, if any."""
        return self.body[1 : 1 + NAME_BYTES] if self.template else None

    @property
    def key(self) -> str:
        """Its unique key, or empty."""
        return Extras.ending(self.body).key if self.labels[0] & HAS_KEY else ""

    def with_extras(self, extras: Extras) -> NewRecord:
        """Return the same record with these extras; it must have none yet."""
        text = extras.text()
        labels = b"%c" % (NO_FLAGS[0] + extras.flags) + self.labels[1:]
        return replace(self, labels=labels, body=self.body + text) if text else self

    @property
    def size(self) -> int:
        """The bytes of the message, without the ids and times filled in later."""
        return len(self.body) + len(self.template)

    def message(self, task_id: str, due_ms: int) -> bytes:
        """Return the message of an entry that is made of this, and due then."""
        when, body = b"%013d" % due_ms, self.labels + self.body
        created, changed = b"0" * (CHANGED - CREATED), bytes(FLAGS - CHANGED)
        text = b"".join((self.header, bytes(DUE), when, created, changed, body))
        return Record(text, len(self.header)).message(task_id.encode(), self.template or None)


def header_for(kind: str, place: str) -> bytes:
    """Return the header of a new record; *kind* is ``"L"`` (a list's key) or ``"R"``."""
    where = place.encode()
    return b"%s%s%d:%s" % (FORMAT.encode(), kind.encode(), len(where), where)


@lru_cache(maxsize=256)
def labels_for(task: str, queue: str) -> bytes:
    """Return a record's flags, and the labels by which it can be selected.

    Args:
        task: The task's name; empty if it is not known.
        queue: The name of the queue that it was sent with.
    """
    return NO_FLAGS + label_of(task) + label_of(queue)


def label_of(name: str) -> bytes:
    """Return the label of a task's or queue's name, as records contain it."""
    return _sha1(name.encode(errors="surrogatepass"))[:LABEL_BYTES]


def lane_for(queue: str | None = None, task: str | None = None) -> bytes:
    """Return the lane for a pause: a queue's entries, a task's, or all."""
    if queue is None and task is None:
        return EVERYTHING
    kind, name = (b"t", task) if queue is None else (b"q", queue)
    return kind + label_of(name or "")


def lanes_of(labels: bytes) -> set[bytes]:
    """Return the lanes that an entry may be in, from the flags and labels of its record."""
    task, queue = labels[TASK - FLAGS : QUEUE - FLAGS], labels[QUEUE - FLAGS :]
    return {EVERYTHING, b"q" + queue, b"t" + task}


def whole(header: bytes, labels: bytes, message: str) -> NewRecord:
    """Return a record with a whole message; *message* is JSON up to the due time at its end."""
    return NewRecord(header, labels, b"I" + message.encode())


@lru_cache(maxsize=64)
def name_of(text: bytes) -> bytes:
    """Return the name of a template: a hash of it that scripts can compute too."""
    return _sha1(text)[:NAME_BYTES]


def _sha1(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).digest()


@dataclass(frozen=True)
class Template:
    """The common part of one task's messages, in :data:`LINES` lines, and its name.

    ``message_of`` in the prelude and :meth:`Record.message` put a message together from it.
    """

    text: bytes
    name: bytes

    @classmethod
    def of(cls, lines: list[str]) -> Template:
        text = "\n".join(lines).encode()
        return cls(text, name_of(text))

    def new_record(self, header: bytes, labels: bytes, differing: Iterable[str]) -> NewRecord:
        """Return a record that shares this template; *differing* belongs between the lines."""
        body = b"T" + self.name + "\n".join(differing).encode()
        return NewRecord(header, labels, body, self.text)


@dataclass(frozen=True)
class Record:
    """A record that a script returned, and checked as far as the letter of its form.

    Attributes:
        text: The whole record.
        header_end: Where its header ends and the fixed positions begin.
    """

    text: bytes
    header_end: int

    @classmethod
    def found(cls, text: bytes) -> Record:
        """Return a record that a script has checked, and told nothing of."""
        length, colon, _ = text[2:].partition(b":")
        return cls(text, 2 + len(length) + len(colon) + int(length))

    @property
    def destination(self) -> str:
        return self.text[self.text.index(b":", 2) + 1 : self.header_end].decode(errors="replace")

    @property
    def due_ms(self) -> int:
        return int(self._due)

    @property
    def created_us(self) -> int:
        return int(self._part(CREATED, CHANGED))

    @property
    def created_ms(self) -> int:
        return self.created_us // 1000

    @property
    def changed_us(self) -> int:
        """The time of its last change; no two states of an entry have the same."""
        return int.from_bytes(self._part(CHANGED, FLAGS), "big")

    @property
    def flags(self) -> int:
        return self.text[self.header_end + FLAGS] - NO_FLAGS[0]

    @property
    def extras(self) -> Extras:
        """Its key, tags and late policy."""
        return Extras.ending(self.text) if self.flags % RUN_NOW else _NO_EXTRAS

    @property
    def is_for_list(self) -> bool:
        """Whether it goes to a list in this Redis, not to a relay."""
        return self.text[1:2] == b"L"

    @property
    def expires_ms(self) -> int | None:
        """How many ms after its due time it expires, if its expiry is relative to that."""
        if self.name is None:
            return None
        _, _, expires, *_ = self._differing
        return int(expires) if expires.startswith((b"+", b"-")) else None

    @property
    def seen(self) -> bytes:
        """Identifies this state of the entry: insertion number and last change."""
        return self._part(0, DUE) + self._part(CHANGED, FLAGS)

    def with_message(
        self, new: NewRecord, extras: Extras | None = None, labels: bytes = b""
    ) -> NewRecord:
        """Return *new* with this record's flags, labels and extras; or with those given."""
        flags, text = self.flags, self.text[self._end :]
        if extras is not None:
            flags, text = flags - flags % RUN_NOW + extras.flags, extras.text()
        names = labels[1:] or self._part(TASK, FORM)
        return replace(new, labels=b"%c" % (NO_FLAGS[0] + flags) + names, body=new.body + text)

    def released(self, new: NewRecord) -> NewRecord:
        """Return *new* for immediate delivery, with this record's labels, key and tags."""
        # From now on, lateness is up to the worker.
        left = replace(self.extras, grace_ms=None)
        labels = b"%c" % (NO_FLAGS[0] + left.flags + RUN_NOW + RELEASED) + self._part(TASK, FORM)
        return replace(new, labels=labels, body=new.body + left.text())

    @property
    def labels(self) -> tuple[bytes, bytes]:
        """Labels of its task and its queue; see :func:`label_of`."""
        return self.task_label, self._part(QUEUE, FORM)

    @property
    def task_label(self) -> bytes:
        """Label of its task; see :func:`label_of`."""
        return self._part(TASK, QUEUE)

    @property
    def is_released(self) -> bool:
        """Whether its message has an ``eta``, and it is being delivered."""
        return bool(self.flags & RELEASED)

    @property
    def _end(self) -> int:
        """Where its message ends and its extras begin."""
        length = int(self.text[-LENGTH_DIGITS:]) + LENGTH_DIGITS if self.flags % RUN_NOW else 0
        return len(self.text) - length

    @property
    def name(self) -> bytes | None:
        """The name of the template that it shares, if any."""
        return self._part(MESSAGE, MESSAGE + NAME_BYTES) if self._shares else None

    def message(self, task_id: bytes, template: bytes | None) -> bytes:
        """Return the message as kombu would have sent it.

        Args:
            task_id: The task's id.
            template: The text of the template that it shares, if any.

        Raises:
            ValueError: the record has a newer format; or the template is missing or does not match
                its name, or the record does not fit it.
        """
        if self.text[:1].decode() > FORMAT:
            raise ValueError(_NEWER % (self.text[:1].decode(), FORMAT))
        if not self._shares:
            return b"%s%s}}" % (self.text[self.header_end + MESSAGE : self._end], self._due)
        if not template:
            raise ValueError("template is gone")
        if name_of(template) != self.name:
            raise ValueError("template is damaged")
        line, differing = template.split(b"\n"), self._differing
        if len(line) != LINES or len(differing) != DIFFERING:
            raise ValueError("record does not fit its template")
        root, parent, expires, args, kwargs, body = differing
        # Together with the id it is unique, so it is the delivery tag.
        created = self._part(CREATED, CHANGED)
        root = root or b'"%s"' % task_id
        # fmt: off
        return b"".join((
            line[0], task_id, line[1], task_id, created, line[2], body, line[3], task_id,
            line[4], root, line[5], parent, line[6], self._expiry(expires),
            line[7], args, line[8], kwargs, line[9], self._due, b"}}",
        ))
        # fmt: on

    def _expiry(self, expires: bytes) -> bytes:
        if not expires.startswith((b"+", b"-")):
            return expires
        # Relative to the due time, so it moves with it.
        if not expires[1:].isdigit():
            raise ValueError("record does not fit its template")
        moment = from_ms(max(0, min(self.due_ms + int(expires), LAST_MS)))
        return b'"%s"' % moment.isoformat(timespec="microseconds").encode()

    def shared_body(self) -> bytes:
        """Return the JSON text of its message's body, if it shares a template; else empty."""
        return self._differing[-1] if self._shares else b""

    @property
    def _due(self) -> bytes:
        return self._part(DUE, CREATED)

    @property
    def _shares(self) -> bool:
        """Whether it shares a template."""
        return self._part(FORM, MESSAGE) == b"T"

    @property
    def _differing(self) -> list[bytes]:
        """The values between the lines of the template that it shares."""
        start = self.header_end + MESSAGE + NAME_BYTES
        return self.text[start : self._end].split(b"\n", DIFFERING - 1)

    def _part(self, start: int, end: int) -> bytes:
        return self.text[self.header_end + start : self.header_end + end]


def time_in(score: float | bytes | str) -> int | None:
    """Return a time from a script in ms, at most the calendar's last; ``None`` for -1."""
    ms = float(score)
    return int(min(ms, LAST_MS)) if ms >= 0 else None


# States in the words of `peek.lua`, which users see as another one.
_STATES = {"LAPSED": "IN_FLIGHT", "UNREADABLE": "DEAD"}


_TIMES = "nsug"  # the letters of times, in ms

_NO_RECORD = Record(b"", 0)


class State(str, Enum):
    """The state of an entry."""

    __module__ = "celery_delayq"  # as pickles name it

    SCHEDULED = "SCHEDULED"
    PAUSED = "PAUSED"
    IN_FLIGHT = "IN_FLIGHT"
    DEAD = "DEAD"


@dataclass(frozen=True)
class Facts:
    """What a script tells of an entry beside its record; ``lua/prelude/targets.lua`` has the form.

    Attributes:
        word: Its state, in the script's words; or its place, see ``dump.lua``.
        header_end: Where the header of its record ends; 0 if that cannot be read.
        due_ms: Its due time, if told.
        attempts: How often it was sent, or may have been.
        refusals: How many of these were refused.
        is_uncertain: Whether it may have been delivered.
        next_try_ms: When it is tried again, if its last attempt was refused.
        since_ms: When it became a dead letter.
        paused_by: The pauses that apply, due or not: ``*`` (all), ``q`` (its queue), ``t``.
        behind: The id of the entry that holds its key, if it waits for that one; or empty.
        behind_until_ms: Until when that one holds it at the latest, if it has left.
        late_from_ms: When its grace period starts, if told.
        has_key: Whether it holds its key, if told.
        error: Its last error, if known; of a dead letter, why it is dead.
        why: Why its record cannot be read, if told.
    """

    word: str
    header_end: int = 0
    due_ms: int = 0
    attempts: int = 0
    refusals: int = 0
    is_uncertain: bool = False
    next_try_ms: int | None = None
    since_ms: int | None = None
    paused_by: str = ""
    behind: str = ""
    behind_until_ms: int | None = None
    late_from_ms: int | None = None
    has_key: bool = False
    error: str = ""
    why: str = ""

    @classmethod
    def of(cls, word: str, parts: Mapping[str, str]) -> Facts:
        """Return what a script's word says, and its parts, by the letters that name them."""
        times = {name: time_in(parts[name]) for name in _TIMES if name in parts}
        return cls(
            word,
            header_end=int(parts.get("h", 0)),
            due_ms=int(parts.get("d", 0)),
            attempts=int(parts.get("a", 0)),
            refusals=int(parts.get("r", 0)),
            is_uncertain="m" in parts,
            next_try_ms=times.get("n"),
            since_ms=times.get("s"),
            paused_by=parts.get("p", ""),
            behind=parts.get("b", ""),
            behind_until_ms=times.get("u"),
            late_from_ms=times.get("g"),
            has_key="k" in parts,
            error=parts.get("e", ""),
            why=parts.get("w", ""),
        )

    @property
    def state(self) -> State:
        """Its state, as users see it."""
        return State(_STATES.get(self.word, self.word))


def parts_of(word: bytes) -> tuple[str, dict[str, str]]:
    """Return what a word of an answer says, and its parts by the letters that name them."""
    said, *parts = word.decode(errors="replace").split(":")
    return said, {part[:1]: unquote(part[1:]) for part in parts}


@lru_cache(maxsize=256)
def facts_in(word: bytes) -> Facts:
    """Return what a word of an answer says of an entry: most words of a list are the same."""
    return Facts.of(*parts_of(word))


@dataclass(frozen=True)
class Entry:
    """An entry as read from the store.

    ``record``: :data:`NO_RECORD` if it cannot be read. ``cursor``: its place in a listing, if read
    in one.
    """

    task_id: str
    facts: Facts
    due_ms: int
    created_ms: int = 0
    message: bytes = b""
    changed_us: int = 0
    extras: Extras = _NO_EXTRAS
    record: Record = field(default=_NO_RECORD, repr=False, compare=False)
    cursor: str = field(default="", compare=False)

    @property
    def state(self) -> State:
        """Its state."""
        return self.facts.state


def entry_of(
    task_id: str, facts: Facts, record: Record, template: bytes | None, cursor: str = ""
) -> Entry:
    """Return an entry from its record and the facts about it.

    Raises:
        UnreadableRecord: the record cannot be read.
    """
    try:
        message = record.message(task_id.encode(), template)
        return entry_with(task_id, facts, record, message, cursor)
    except ValueError as error:
        raise UnreadableRecord(task_id, str(error)) from error


def entry_with(
    task_id: str, facts: Facts, record: Record, message: bytes = b"", cursor: str = ""
) -> Entry:
    """Return an entry from what a record has in each format, and its message, if it was read."""
    return Entry(
        task_id,
        facts,
        record.due_ms,
        record.created_ms,
        message,
        record.changed_us,
        record.extras,
        record,
        cursor,
    )

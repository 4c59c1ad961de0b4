"""The lines of a dump: the table of their fields, used to write, check and read them.

    {"kind": "dump", ...}         the format, and the store
    {"kind": "pause", ...}        a pause
    {"kind": "rule", ...}         a recurring rule, with its last slot
    {"kind": "task", ...}         an entry, in the order of insertion
    {"kind": "unreadable", ...}   an entry that this version cannot read, as stored
    {"kind": "end", ...}          how many entries came before it

No line depends on the stored format. A field with its default is left out, and gets the default
when the line is read. An unknown field is refused: it may have a meaning in a later version, which
would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from io import IOBase
from typing import Any, NamedTuple

from ...core.clock import MAX_DUE_MS
from ...core.errors import InvalidDump, InvalidOption
from ...core.message.outgoing import Route
from ...core.store import checked_id
from ...core.store.record import DATA, FLAG, KEY, LABEL_BYTES, LAST_MS, Type, whole_number
from ..rule_store import RowEdit, is_skipped

FORMAT = 1
DUMP, PAUSE, RULE = "dump", "pause", "rule"
TASK, UNREADABLE, END = "task", "unreadable", "end"
STATES = ("waiting", "paused", "refused", "behind", "in_flight", "dead")
NEEDED = object()  # in place of a default: every line must have the field

LONGEST_TEXT = 100_000  # characters of an error
LONGEST_ID = 4096  # characters of an id that may not be a task's
LONGEST_SKIPPED = 6000  # characters of the slots that a person skips
LONGEST_PLAN = 10_000_000  # characters of what a rule is
LONGEST_NAME = 512  # characters of the name of a queue or task
_MOST_COUNT = 10**9
_LONGEST_SHOWN = 100  # characters of a wrong value
_HASH_DIGITS = 2 * LABEL_BYTES
_HEX = set("0123456789abcdef")
_MESSAGE_TEXTS = ("body", "content-type", "content-encoding")

Line = dict[str, Any]
GivenLine = str | bytes | Mapping[str, Any]


class Field(NamedTuple):
    """A field of a line."""

    type: Type
    default: Any = None

    @property
    def needed(self) -> bool:
        return self.default is NEEDED


def _text(most: int) -> Type:
    return Type(
        lambda value: _is_unicode(value) and len(value) <= most,
        f"text of at most {most} characters",
    )


def _is_unicode(value: Any) -> bool:
    """Whether a value is text with a UTF-8 form: half of a surrogate pair has none."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def is_name(value: Any) -> bool:
    """Whether a value can be the name of a queue or task in a line; no name is empty."""
    return _is_unicode(value) and len(value) <= LONGEST_NAME


def _is_id(value: Any) -> bool:
    try:
        checked_id(value)
    except InvalidOption:
        return False
    return True


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and set(value) <= _HEX


def _is_edit(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    try:
        return not value or bool(RowEdit.read(value))
    except ValueError:
        return False


def _is_skipped(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_SKIPPED and is_skipped(value)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _HASH_DIGITS and set(value) <= _HEX


def _is_message(value: Any) -> bool:
    """Whether a value has the parts of a message as kombu writes them."""
    if not isinstance(value, dict):
        return False
    texts, parts = map(value.get, _MESSAGE_TEXTS), map(value.get, ("headers", "properties"))
    return all(isinstance(text, str) for text in texts) and all(
        isinstance(part, dict) for part in parts
    )


def _is_route(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if "exchange" not in value:
        queue = value.get("queue")
        return _is_unicode(value.get("list")) and (queue is None or _is_unicode(queue))
    try:
        Route.parse(json.dumps(value))
        names = [entity["name"] for entity in value["declare"]]
    except Exception:  # the line gives kombu's classes any values
        return False
    texts = (value["exchange"], value["routing_key"], *names)
    return all(map(_is_unicode, texts)) and isinstance(value["mandatory"], bool)


_ID = Type(_is_id, "text of 1 to 512 bytes")
_NAME = Type(is_name, f"a name of at most {LONGEST_NAME} characters")
_PAUSED = Type(lambda value: value != "" and is_name(value), _NAME.expected)
_HASH = Type(_is_hash, f"{_HASH_DIGITS} hexadecimal digits")
_STATE = Type(lambda value: value in STATES, "one of " + ", ".join(STATES))
_MESSAGE = Type(_is_message, "a message, with body, headers and properties")
_ROUTE = Type(_is_route, "a queue and a list, or an exchange and a routing key")
_ANYTHING = Type(lambda _: True, "anything")
_COUNT = whole_number(0, _MOST_COUNT)
_VERSION = whole_number(0, 10**12)
_TOTAL = Field(whole_number(0, 10**12), NEEDED)
_MOMENT = whole_number(0, LAST_MS)

FIELDS: dict[str, dict[str, Field]] = {
    DUMP: {
        "format": Field(whole_number(1, _MOST_COUNT), NEEDED),
        "made_by": Field(_text(100)),
        "schema": Field(_text(20)),
        "store": Field(_text(100)),
        "prefix": Field(_text(100)),
        "shards": Field(whole_number(1, 64)),
        "time_ms": Field(_MOMENT),
        "paused": Field(FLAG),
        "in_flight": Field(_COUNT),
        "owed": Field(_COUNT),
    },
    PAUSE: {
        "queue": Field(_PAUSED),
        "task": Field(_PAUSED),
        "late": Field(FLAG, default=False),
        "since_ms": Field(_MOMENT),
        "resumed": Field(FLAG, default=False),
    },
    RULE: {
        "name": Field(KEY, NEEDED),
        "digest": Field(Type(_is_digest, "hexadecimal digits"), NEEDED),
        "home": Field(KEY, NEEDED),
        "plan": Field(_text(LONGEST_PLAN), NEEDED),
        "offset_ms": Field(whole_number(0, 367 * 86_400_000), 0),
        "edit": Field(Type(_is_edit, "a change of its schedule, as JSON"), ""),
        "skipped": Field(Type(_is_skipped, "slots in ms, each with a colon and an id"), ""),
        "revision": Field(_MOMENT, NEEDED),
        "last_ms": Field(_MOMENT, NEEDED),
        "since_ms": Field(_MOMENT, NEEDED),
        "version": Field(_VERSION, 0),
        "source": Field(_text(100), ""),
        "by": Field(_text(300), ""),
        "app": Field(_text(1000), ""),
        "declared": Field(FLAG, default=False),
        "paused": Field(FLAG, default=False),
        "new": Field(FLAG, default=False),
        "unclear": Field(FLAG, default=False),
    },
    TASK: {
        "id": Field(_ID, NEEDED),
        "state": Field(_STATE, NEEDED),
        "due_ms": Field(whole_number(0, MAX_DUE_MS), NEEDED),
        "scheduled_us": Field(whole_number(0, 10**16 - 1), NEEDED),
        "task": Field(_NAME, ""),
        "task_hash": Field(_HASH, ""),
        "queue": Field(_NAME, ""),
        "queue_hash": Field(_HASH, ""),
        **{name: Field(datum.type, datum.default) for name, datum in DATA.items()},
        "holds_key": Field(FLAG, default=False),
        "expires_after_ms": Field(whole_number(-LAST_MS, LAST_MS)),
        "run_now": Field(FLAG, default=False),
        "released": Field(FLAG, default=False),
        "attempts": Field(_COUNT, 0),
        "refusals": Field(_COUNT, 0),
        "may_be_delivered": Field(FLAG, default=False),
        "next_try_ms": Field(_MOMENT, 0),
        "dead_since_ms": Field(_MOMENT, 0),
        "error": Field(_text(LONGEST_TEXT), ""),
        "route": Field(_ROUTE, NEEDED),
        "message": Field(_MESSAGE, NEEDED),
    },
    UNREADABLE: {
        "id": Field(_text(LONGEST_ID), NEEDED),
        "state": Field(_text(20)),
        "reason": Field(_text(LONGEST_TEXT), ""),
        "record": Field(_ANYTHING),
        "template": Field(_ANYTHING),
    },
    END: {
        "tasks": _TOTAL,
        "unreadable": _TOTAL,
    },
}
_DEFAULTS = {
    kind: {name: field.default for name, field in fields.items() if not field.needed}
    for kind, fields in FIELDS.items()
}


def line_of(kind: str, **facts: Any) -> Line:
    """Return a line with these fields, without those that have their default."""
    defaults = _DEFAULTS[kind]
    shown = {
        name: value
        for name, value in facts.items()
        if value is not None and (name not in defaults or value != defaults[name])
    }
    return {"kind": kind, **shown}


def text_of(line: Mapping[str, Any]) -> str:
    """Return a line as text: ASCII, without a line break."""
    return json.dumps(line, separators=(",", ":"))


def read(lines: Iterable[GivenLine]) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a dump with their numbers and all fields, each checked before.

    Raises:
        InvalidDump: it is no dump, is truncated, or has a damaged line.
    """
    counts = {TASK: 0, UNREADABLE: 0}
    number, kind = 0, ""
    for number, given in enumerate(lines, 1):
        if isinstance(given, (str, bytes)) and not given.strip():
            continue
        line = _parsed(number, given)
        fault = _misplaced(line, behind=kind) or fault_of(line) or _miscounted(line, counts)
        if fault:
            raise InvalidDump(number, fault)
        kind = line["kind"]
        if kind in counts:
            counts[kind] += 1
        yield number, {**_DEFAULTS[kind], **line}
    if kind != END:
        raise InvalidDump(number + 1)


def bounded(lines: Iterable[GivenLine], longest: int) -> Iterator[GivenLine]:
    """Yield the same lines; from a file, read at most *longest* characters of each.

    Raises:
        InvalidDump: a line is longer.
    """
    if not isinstance(lines, IOBase):
        yield from lines
        return
    number = 0
    while line := lines.readline(longest):
        number += 1
        if len(line) == longest and line[-1:] not in ("\n", b"\n"):
            raise InvalidDump(number, f"it has more than {longest} bytes; see delayq_max_message")
        yield line


def fault_of(line: Mapping[str, Any]) -> str:
    """Return the first fault in the fields of a line of a known kind; empty if there is none."""
    fields = FIELDS[line["kind"]]
    for name, value in line.items():
        if name != "kind" and (fault := fault_in(fields, name, value)):
            return fault
    missing = (name for name, field in fields.items() if field.needed and name not in line)
    return next(
        (f"it has no {name}; expected {fields[name].type.expected}" for name in missing), ""
    )


def fault_in(fields: Mapping[str, Field], name: str, value: Any) -> str:
    """Return the fault of one field; empty if there is none."""
    if name not in fields:
        return f"it has an unknown field {_shown(name)}"
    field = fields[name].type
    return "" if field.is_right(value) else _wrong(name, value, field.expected)


def _parsed(number: int, given: GivenLine) -> Line:
    if isinstance(given, Mapping):
        return dict(given)
    try:
        line = json.loads(given)
    except (TypeError, ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise InvalidDump(number, "it is no JSON object: it was cut or damaged")
    return line


def _misplaced(line: Line, *, behind: str) -> str:
    """Return why a line cannot come *behind* one of that kind; empty if it can."""
    kind = line.get("kind")
    if behind == END:
        return "it comes after the last line"
    if not behind and kind != DUMP:
        return "it is not the first line of a celery_delayq dump"
    if not isinstance(kind, str) or kind not in FIELDS or (kind == DUMP and behind):
        return _wrong("kind", kind, "task, pause, rule, unreadable or end")
    made, maker = line.get("format", FORMAT), line.get("made_by")
    # Before its fields are checked, as a later format may have others.
    if kind == DUMP and FIELDS[DUMP]["format"].type.is_right(made) and made > FORMAT:
        by = f"; it was made by {_shown(maker)}" if isinstance(maker, str) else ""
        return f"the dump has format {made}, and this version reads up to {FORMAT}{by}"
    return ""


def _miscounted(line: Line, came: Mapping[str, int]) -> str:
    if line["kind"] != END or (line["tasks"], line["unreadable"]) == (came[TASK], came[UNREADABLE]):
        return ""
    return (
        f"it counts {line['tasks']} tasks and {line['unreadable']} unreadable ones; {came[TASK]} "
        f"tasks and {came[UNREADABLE]} unreadable ones came before it"
    )


def _wrong(name: str, value: Any, expected: str) -> str:
    return f"{name} is {_shown(value)}; expected {expected}"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."

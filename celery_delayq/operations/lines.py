"""The lines of a dump: what each of them says, and what of that is checked when it is read.

    {"kind": "dump", ...}         what it is, and of which store
    {"kind": "pause", ...}        what is paused
    {"kind": "task", ...}         an entry, in the order of insertion
    {"kind": "unreadable", ...}   an entry that this version cannot read, as it stands in the store
    {"kind": "end", ...}          how many of them came before it

No line depends on how the store keeps an entry. A field that says nothing is left out, and one that
is not known is refused: a later version may mean something by it that would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import IOBase
from typing import Any, NamedTuple

from ..clock import MAX_DUE_MS
from ..errors import InvalidDump, InvalidOption
from ..message.dumped import LONGEST_NAME, is_message, is_name, is_route, is_unicode
from ..store import checked_id, checked_name
from ..store.record import LABEL_BYTES, LAST_MS

FORMAT = 1
DUMP, PAUSE, TASK, UNREADABLE, END = "dump", "pause", "task", "unreadable", "end"
STATES = ("waiting", "paused", "refused", "in_flight", "dead")

_MOST_TAGS = 16
_MOST_US = 10**16 - 1
_MOST_COUNT = 10**9
LONGEST_TEXT = 100_000  # characters of an error
LONGEST_ID = 4096  # characters of what may be no id of a task's
_LONGEST_SHOWN = 100  # of a value that is wrong
_HEX = set("0123456789abcdef")
_HASH_DIGITS = 2 * LABEL_BYTES


class Field(NamedTuple):
    """What a field has to be."""

    is_right: Callable[[Any], bool]
    expected: str
    needed: bool = False


def _whole(low: int, high: int, *, needed: bool = False) -> Field:
    def is_right(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Field(is_right, f"a whole number from {low} to {high}", needed)


def _text(most: int, *, needed: bool = False) -> Field:
    return Field(
        lambda value: is_unicode(value) and len(value) <= most,
        f"text of at most {most} characters",
        needed,
    )


def _passes(check: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def is_right(value: Any) -> bool:
        try:
            check(value)
        except InvalidOption:
            return False
        return True

    return is_right


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _HASH_DIGITS and set(value) <= _HEX


def _is_tags(value: Any) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_TAGS:
        return False
    return all(map(_passes(lambda one: checked_name("tag", one)), value))


_ID = Field(_passes(checked_id), "text of 1 to 512 bytes", needed=True)
_KEY = Field(_passes(lambda one: checked_name("key", one)), "text of 1 to 255 bytes, without NUL")
_TAGS = Field(_is_tags, "1 to 16 texts of 1 to 255 bytes, without NUL")
_FLAG = Field(lambda value: isinstance(value, bool), "true or false")
_NAME = Field(is_name, f"a name of at most {LONGEST_NAME} characters")
_ANY_NAME = Field(lambda value: value == "" or is_name(value), _NAME.expected)
_HASH = Field(_is_hash, f"{_HASH_DIGITS} hexadecimal digits")
_STATE = Field(lambda value: value in STATES, "one of " + ", ".join(STATES), needed=True)
_MESSAGE = Field(is_message, "a message, with body, headers and properties", needed=True)
_ROUTE = Field(is_route, "a queue and a list, or an exchange and a routing key", needed=True)
_ANYTHING = Field(lambda _: True, "anything")

FIELDS: dict[str, dict[str, Field]] = {
    DUMP: {
        "format": _whole(1, _MOST_COUNT, needed=True),
        "made_by": _text(100),
        "schema": _text(20),
        "store": _text(100),
        "prefix": _text(100),
        "shards": _whole(1, 64),
        "time_ms": _whole(0, LAST_MS),
        "paused": _FLAG,
        "in_flight": _whole(0, _MOST_COUNT),
        "owed": _whole(0, _MOST_COUNT),
    },
    PAUSE: {
        "queue": _NAME,
        "task": _NAME,
        "late": _FLAG,
        "since_ms": _whole(0, LAST_MS),
        "resumed": _FLAG,
    },
    TASK: {
        "id": _ID,
        "state": _STATE,
        "due_ms": _whole(0, MAX_DUE_MS, needed=True),
        "scheduled_us": _whole(0, _MOST_US, needed=True),
        "task": _ANY_NAME,
        "task_hash": _HASH,
        "queue": _ANY_NAME,
        "queue_hash": _HASH,
        "key": _KEY,
        "holds_key": _FLAG,
        "tags": _TAGS,
        "grace_ms": _whole(0, 10**15),
        "excused_ms": _whole(0, 10**13 - 1),
        "expires_after_ms": _whole(-LAST_MS, LAST_MS),
        "run_now": _FLAG,
        "released": _FLAG,
        "attempts": _whole(0, _MOST_COUNT),
        "refusals": _whole(0, _MOST_COUNT),
        "may_be_delivered": _FLAG,
        "next_try_ms": _whole(0, LAST_MS),
        "dead_since_ms": _whole(0, LAST_MS),
        "error": _text(LONGEST_TEXT),
        "route": _ROUTE,
        "message": _MESSAGE,
    },
    UNREADABLE: {
        "id": _text(LONGEST_ID, needed=True),
        "state": _text(20),
        "reason": _text(LONGEST_TEXT),
        "record": _ANYTHING,
        "template": _ANYTHING,
    },
    END: {
        "tasks": _whole(0, 10**12, needed=True),
        "unreadable": _whole(0, 10**12, needed=True),
    },
}


def text_of(line: Mapping[str, Any]) -> str:
    """A line as text: ASCII, without a line break."""
    return json.dumps(line, separators=(",", ":"))


Line = dict[str, Any]
Given = str | bytes | Mapping[str, Any]


def read(lines: Iterable[Given]) -> Iterator[tuple[int, Line]]:
    """The lines of a dump, checked one by one while one iterates, with their numbers.

    Raises:
        InvalidDump: it is none, was cut, or has a line that is damaged.
    """
    counts = {TASK: 0, UNREADABLE: 0}
    number, kind = 0, ""
    for number, given in enumerate(lines, 1):
        if isinstance(given, (str, bytes)) and not given.strip():
            continue
        if kind == END:
            raise InvalidDump(number, "it stands behind the last one")
        line = _parsed(number, given)
        kind = _checked(number, line, is_first=not kind)
        if kind in counts:
            counts[kind] += 1
        if kind == END:
            _check_counts(number, line, counts)
        yield number, line
    if kind != END:
        raise InvalidDump(number + 1)


def bounded(lines: Iterable[Given], longest: int) -> Iterator[Given]:
    """The same lines; of a file, none is read that has more than *longest* characters.

    Raises:
        InvalidDump: one has.
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


def _parsed(number: int, given: Given) -> Line:
    if isinstance(given, Mapping):
        return dict(given)
    try:
        line = json.loads(given)
    except (TypeError, ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise InvalidDump(number, "it is no JSON object: it was cut or damaged")
    return line


def _checked(number: int, line: Line, *, is_first: bool) -> str:
    kind = line.get("kind")
    if is_first and kind != DUMP:
        raise InvalidDump(number, "it is not the first line of a dump of celery_delayq's")
    if not isinstance(kind, str) or kind not in FIELDS or (kind == DUMP and not is_first):
        raise InvalidDump(number, _wrong("kind", kind, "task, pause, unreadable or end"))
    if kind == DUMP:
        _check_format(number, line)
    fault = fault_of(line)
    if fault is not None:
        raise InvalidDump(number, fault)
    return kind


def fault_of(line: Mapping[str, Any]) -> str | None:
    """What is wrong with the fields of a line of a known kind; ``None``: nothing."""
    fields = FIELDS[line["kind"]]
    for name, value in line.items():
        field = fields.get(name)
        if field is None and name != "kind":
            return f"it has a field {_shown(name)}, which is not known"
        if field is not None and not field.is_right(value):
            return _wrong(name, value, field.expected)
    for name, field in fields.items():
        if field.needed and name not in line:
            return f"it has no {name}; expected {field.expected}"
    return None


def _check_format(number: int, line: Line) -> None:
    made = line.get("format")
    if isinstance(made, int) and not isinstance(made, bool) and made > FORMAT:
        maker = line.get("made_by")
        by = f"; it was made by {_shown(maker)}" if isinstance(maker, str) else ""
        raise InvalidDump(
            number, f"the dump has format {made}, and this version reads up to {FORMAT}{by}"
        )


def _check_counts(number: int, line: Line, counts: Mapping[str, int]) -> None:
    said = {TASK: line["tasks"], UNREADABLE: line["unreadable"]}
    if said != counts:
        came = f"{counts[TASK]} tasks and {counts[UNREADABLE]} unreadable ones came before it"
        raise InvalidDump(
            number, f"it says {said[TASK]} tasks and {said[UNREADABLE]} unreadable ones; {came}"
        )


def _wrong(name: str, value: Any, expected: str) -> str:
    return f"{name} is {_shown(value)}; expected {expected}"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."

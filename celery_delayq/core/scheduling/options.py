"""This package's options of a call, and the options of the entry that they make.

options of a call --> own_options --+--> entry_options_of --> EntryOptions --> the entry
the task's own ---------------------+
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict

from .. import clock
from ..clock import DelayInput
from ..errors import InvalidDueTime, InvalidOption
from ..message.headers import CAPTURE_HEADER, ONCE_HEADER, Hold
from ..store import NewEntry, plain_text
from ..store.record import MOST_TAGS, Extras, Tags, hold_of

PREFIX = "delayq_"
_NEAR = "delay"  # an unknown option that begins like this is a mistyped one of this package
OPTION = "delayq_request"
PART = "delayq_part"  # of a part of a canvas: what keeps its message instead of sending it
AT, AFTER = "delayq_at", "delayq_after"
LASTING = (ONCE_HEADER, CAPTURE_HEADER)  # options that travel on, as headers
KEY, CONFLICT, MAX_WAIT = "delayq_key", "delayq_conflict", "delayq_max_wait"
TAGS, LATE, GRACE = "delayq_tags", "delayq_late", "delayq_grace"
UNTIL, FOR = "delayq_unique_until", "delayq_unique_for"
NAMES = (KEY, CONFLICT, MAX_WAIT, TAGS, LATE, GRACE, UNTIL, FOR)
_ALL = (AT, AFTER, *LASTING, *NAMES)

REJECT, DEBOUNCE, RUN, SKIP = "reject", "debounce", "run", "skip"
DELIVERED, FINISHED = "delivered", "finished"
AN_HOUR = 3600
POLICIES = (REJECT, "keep", "replace", "earliest", "latest", DEBOUNCE)

LONGEST = 255  # bytes of a key, or of a tag

Conflict = Literal["reject", "keep", "replace", "earliest", "latest", "debounce"]
Late = Literal["run", "skip"]
UniqueUntil = Literal["delivered", "finished"]

_TEXT = f"text of 1 to {LONGEST} bytes without NUL"
_TAGS = f"a list of at most {MOST_TAGS} tags, each {_TEXT}"
_SPAN = f"seconds, or a timedelta, of {{:g}} to {clock.MAX_DUE_MS // 1000} seconds"


class TaskOptions(TypedDict, total=False):
    """The options of a scheduled task; ``None`` is as if you did not pass it.

    Attributes:
        key: A unique key: text of 1 to 255 bytes, without NUL. At most one task waits under a key.
            The key is free again once that task is delivered, cancelled or dead; or later, if
            *unique_until* or *unique_for* say so.
        conflict: The action if a task with the same key or id is already waiting. ``reject`` (the
            default): refuse the new task. ``keep``: keep the waiting task. ``replace``: replace it.
            ``earliest``, ``latest``: keep the one that is due first, or last. ``debounce``: like
            ``replace``, limited by *max_wait*.
        max_wait: With ``debounce``: how long repeated calls can put off the task, counted from the
            first one. Seconds, or a timedelta; by default without limit.
        tags: Up to 16 texts to select tasks by; each with the limits of a key.
        late: ``skip``: drop the task if it is more than *grace* overdue. ``run`` (the default): run
            it, however late.
        grace: The grace period of ``skip``: seconds, or a timedelta.
        unique_until: When the key is free: once the task is ``delivered`` (the default); or
            ``finished``: has run, retries included. Not for a canvas.
        unique_for: Seconds, or a timedelta. With ``finished``: the longest that the key is held
            after the delivery, and after the start of each run; an hour by default. Alone: the key
            is held at least so long after scheduling.
    """

    key: str | None
    conflict: Conflict | None
    max_wait: DelayInput | None
    tags: Tags | None
    late: Late | None
    grace: DelayInput | None
    unique_until: UniqueUntil | None
    unique_for: DelayInput | None


@dataclass(frozen=True)
class EntryOptions:
    """The extras of an entry, and the policy if another entry has its id or key.

    ``conflict``: as the store takes it; empty: the new entry is refused.
    ``run``: the delivery whose run it goes on with; see :class:`NewEntry`.
    """

    extras: Extras = field(default_factory=Extras)
    conflict: str = ""
    run: str = ""

    def of(self, new: NewEntry) -> NewEntry:
        """Return *new* with these options."""
        if self is PLAIN:
            return new
        record = new.record.with_extras(self.extras)
        return replace(new, record=record, conflict=self.conflict, run=self.run)

    def holding(self, hold: Hold | None) -> EntryOptions:
        """Return the options of an entry that continues a run, and takes its key along."""
        if hold is None or self.extras.key not in ("", hold.key):
            return self
        held = hold_of(hold.ms, until_finished=True)
        extras = replace(self.extras, key=hold.key, hold=held)
        return replace(self, extras=extras, run=hold.delivery)


PLAIN = EntryOptions()


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return this package's options among those of a call; none of them is ``None``.

    Raises:
        InvalidOption: an option does not exist.
    """
    stamps = options.get("stamped_headers") or ()  # the user's own, which travel as options
    given = {
        name: value
        for name, value in options.items()
        if name.startswith(_NEAR) and name != PART and value is not None and name not in stamps
    }
    for name, value in given.items():
        if name != OPTION and name not in _ALL:
            *others, last = _ALL
            expected = f"no such option; there are {', '.join(others)} and {last}"
            raise InvalidOption(name, value, expected)
    return given


def options_of_entry(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call that :func:`entry_options_of` takes."""
    stamps = options.get("stamped_headers") or ()
    return {
        name: options[name]
        for name in NAMES
        if options.get(name) is not None and name not in stamps
    }


def as_options(given: TaskOptions) -> dict[str, Any]:
    """Return the given ones, by the names that a call uses.

    Raises:
        TypeError: an option does not exist.
    """
    for name in given.keys() - TaskOptions.__annotations__.keys():
        *others, last = TaskOptions.__annotations__
        raise TypeError(f"no option {name!r}; there are {', '.join(others)} and {last}")
    return {PREFIX + name: value for name, value in given.items() if value is not None}


def entry_options_of(given: Mapping[str, Any], task: Any = None) -> EntryOptions:
    """Return the options of the entry of one call.

    Args:
        given: The options of the call, by name; none of them ``None``.
        task: The task, if it is known; its attributes are the defaults.

    Raises:
        InvalidOption: an option is invalid, or needs another one that is missing.
    """
    chosen = _with_defaults(given, task)
    if not chosen:
        return PLAIN
    conflict, late = chosen.get(CONFLICT, REJECT), chosen.get(LATE, RUN)
    if conflict not in POLICIES:
        raise InvalidOption(CONFLICT, conflict, f"one of {', '.join(POLICIES)}")
    if late not in (RUN, SKIP):
        raise InvalidOption(LATE, late, f"{RUN} or {SKIP}")
    if MAX_WAIT in chosen and conflict != DEBOUNCE:
        raise InvalidOption(MAX_WAIT, chosen[MAX_WAIT], f"{CONFLICT}={DEBOUNCE!r} beside it")
    if (GRACE in chosen) != (late == SKIP):
        both = f"{LATE}={SKIP!r} and {GRACE} together"
        raise InvalidOption(*((GRACE, chosen[GRACE]) if GRACE in chosen else (LATE, late)), both)
    made = Extras(
        key=_text(KEY, chosen[KEY], _TEXT) if KEY in chosen else "",
        tags=_tags(chosen.get(TAGS, ())),
        grace_ms=_span_ms(GRACE, chosen[GRACE]) if GRACE in chosen else None,
        hold=_hold(chosen, given),
    )
    wait = f" {_span_ms(MAX_WAIT, chosen[MAX_WAIT])}" if MAX_WAIT in chosen else ""
    return EntryOptions(made, "" if conflict == REJECT else conflict + wait)


def _hold(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return how long the key holds, as :class:`Extras` has it."""
    until, seconds = chosen.get(UNTIL, DELIVERED), chosen.get(FOR)
    if until not in (DELIVERED, FINISHED):
        raise InvalidOption(UNTIL, until, f"{DELIVERED} or {FINISHED}")
    ms = 0 if seconds is None else _span_ms(FOR, seconds, least=1)
    if KEY not in chosen:
        for name in (UNTIL, FOR):
            if name in given:
                raise InvalidOption(name, given[name], f"{KEY} beside it")
        return ""
    if until == FINISHED:
        return hold_of(ms or AN_HOUR * 1000, until_finished=True)
    return hold_of(ms, until_finished=False)


def _with_defaults(given: Mapping[str, Any], task: Any) -> dict[str, Any]:
    own = {name: getattr(task, name, None) for name in NAMES}
    if own[KEY] is not None:
        raise InvalidOption(KEY, own[KEY], "a key in each call; a task's would be that of them all")
    chosen = {name: value for name, value in own.items() if value is not None}
    chosen.update(given)
    # If the call brings its own policy, the task's details of its policy do not apply.
    if CONFLICT in given and MAX_WAIT not in given and given[CONFLICT] != DEBOUNCE:
        chosen.pop(MAX_WAIT, None)
    if LATE in given and GRACE not in given and given[LATE] != SKIP:
        chosen.pop(GRACE, None)
    if UNTIL in given and FOR not in given:
        chosen.pop(FOR, None)
    return chosen


def _text(name: str, value: Any, expected: str, shown: Any = None) -> str:
    if isinstance(value, str) and "\0" not in value:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            size = 0
        if 0 < size <= LONGEST:
            return plain_text(value)
    raise InvalidOption(name, value if shown is None else shown, expected)


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidOption(TAGS, value, f"a list of tags, like [{value[:LONGEST]!r}]")
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidOption(TAGS, value, _TAGS)
    tags = tuple(dict.fromkeys(_text(TAGS, tag, _TAGS, value) for tag in value))
    if len(tags) > MOST_TAGS:
        raise InvalidOption(TAGS, value, _TAGS)
    return tags


def _span_ms(name: str, value: Any, least: int = 0) -> int:
    try:
        ms = clock.by(value).ms
    except InvalidDueTime:
        ms = -1
    if ms < least or (isinstance(value, timedelta) and value < timedelta(0)):
        raise InvalidOption(name, value, _SPAN.format(least / 1000))
    return ms

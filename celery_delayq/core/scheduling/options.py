"""Our options of a call: each declared once, here; checks, errors and docs read these lines.

options of a call --> own_options --+--> entry_options_of --> EntryOptions --> the entry
the task's own ---------------------+

``TaskOptions`` has those of an entry, ``OPTIONS`` all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

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

REJECT, DEBOUNCE, RUN, SKIP = "reject", "debounce", "run", "skip"
DELIVERED, FINISHED = "delivered", "finished"
_AN_HOUR = 3600

LONGEST = 255  # bytes of a key, or of a tag

Conflict = Literal["reject", "keep", "replace", "earliest", "latest", "debounce"]
Late = Literal["run", "skip"]
UniqueUntil = Literal["delivered", "finished"]
POLICIES, _LATE_POLICIES, _ENDS = map(get_args, (Conflict, Late, UniqueUntil))


@dataclass(frozen=True)
class Option:
    """One option: ``delayq_<name>`` of a call, ``<name>`` of ``schedule``.

    Attributes:
        says: What it does, for the docs.
        expected: What a valid value is, for errors.
        read: Returns a value as the entry has it; ``None`` if it is not valid. (A due time, which
            has errors of its own, is read by ``clock``.)
        of_tasks: Whether a task's attribute may hold for all of its calls.
    """

    says: str
    expected: str = ""
    read: Callable[[Any], Any] = lambda value: value
    of_tasks: bool = True


def value_of(name: str, given: Mapping[str, Any], default: Any = None) -> Any:
    """Return the value of an option, as the entry has it.

    Args:
        name: The option.
        given: Options of a call, by name.
        default: The value if it is not among them.

    Raises:
        InvalidOption: it is invalid.
    """
    if name not in given:
        return default
    value = OPTIONS[name].read(given[name])
    if value is None:
        raise InvalidOption(name, given[name], OPTIONS[name].expected)
    return value


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    if isinstance(value, str) and "\0" not in value:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            size = 0
        if 0 < size <= LONGEST:
            return plain_text(value)
    return None


def _tags(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        raise InvalidOption(TAGS, value, f"a list of tags, like [{value[:LONGEST]!r}]")
    if not isinstance(value, (list, tuple, set, frozenset)):
        return None
    tags = dict.fromkeys(map(_text, value))
    return None if None in tags or len(tags) > MOST_TAGS else (*filter(None, tags),)


def _one_of(words: Sequence[str]) -> Callable[[Any], str | None]:
    return lambda value: value if value in words else None


def _span(least: int = 0) -> Callable[[Any], int | None]:
    """Return how a span becomes milliseconds; *least* at least."""

    def read(value: Any) -> int | None:
        try:
            ms = clock.by(value).ms
        except InvalidDueTime:
            return None
        below = ms < least or (isinstance(value, timedelta) and value < timedelta(0))
        return None if below else ms

    return read


_TEXT = f"text of 1 to {LONGEST} bytes without NUL"
_SPAN = f"seconds, or a timedelta, of {{:g}} to {clock.MAX_DUE_MS // 1000} seconds"


class TaskOptions(TypedDict, total=False):
    """The options of a scheduled task; ``None`` is as if you did not pass it."""

    key: Annotated[
        str | None,
        Option(
            "A unique key: text of 1 to 255 bytes, without NUL. At most [one task "
            "waits](../guide/keys.md) under it.",
            _TEXT,
            _text,
            of_tasks=False,
        ),
    ]
    conflict: Annotated[
        Conflict | None,
        Option(
            "The action if a task with the same key or id is already waiting. `reject` (the "
            "default): refuse the new task. `keep`: keep the waiting task. `replace`: replace it. "
            "`earliest`, `latest`: keep the one that is due first, or last. `debounce`: like "
            "`replace`, limited by `max_wait`. [Which of two tasks "
            "stays](../guide/keys.md).",
            f"one of {', '.join(POLICIES)}",
            _one_of(POLICIES),
        ),
    ]
    max_wait: Annotated[
        DelayInput | None,
        Option(
            "With `debounce`: how long repeated calls can defer the task, counted from the first "
            "one. Seconds, or a timedelta; by default without limit.",
            _SPAN.format(0),
            _span(),
        ),
    ]
    tags: Annotated[
        Tags | None,
        Option(
            "Up to 16 texts to select tasks by; each with the limits of a key.",
            f"a list of at most {MOST_TAGS} tags, each {_TEXT}",
            _tags,
        ),
    ]
    late: Annotated[
        Late | None,
        Option(
            "`skip`: drop the task if it is more than `grace` overdue. `run` (the default): run "
            "it, however late.",
            " or ".join(_LATE_POLICIES),
            _one_of(_LATE_POLICIES),
        ),
    ]
    grace: Annotated[
        DelayInput | None,
        Option("The grace period of `skip`: seconds, or a timedelta.", _SPAN.format(0), _span()),
    ]
    unique_until: Annotated[
        UniqueUntil | None,
        Option(
            "When the key is free: once the task is `delivered` (the default); or `finished`: has "
            "run, retries included. Not for a canvas. [How long a key "
            "holds](../guide/keys.md#one-task-runs).",
            " or ".join(_ENDS),
            _one_of(_ENDS),
        ),
    ]
    unique_for: Annotated[
        DelayInput | None,
        Option(
            "Seconds, or a timedelta. With `finished`: the longest that the key is held after the "
            "delivery, and after the start of each run; an hour by default. Alone: the key is held "
            "at least so long after scheduling.",
            _SPAN.format(0.001),
            _span(least=1),
        ),
    ]


# By the names that a call uses, in the order in which an error lists them.
OPTIONS: Mapping[str, Option] = {
    AT: Option(
        "The [due time](../guide/times.md): a datetime, Unix time in seconds, or ISO 8601 text.",
        of_tasks=False,
    ),
    AFTER: Option("The due time, from now: seconds, or a timedelta.", of_tasks=False),
    ONCE_HEADER: Option(
        "Whether workers drop [duplicates](../concepts/duplicates.md); before the setting.",
        "true or false",
        _truth,
        of_tasks=False,
    ),
    CAPTURE_HEADER: Option("`False` leaves an `eta` to Celery.", "true or false", _truth),
    **{
        PREFIX + name: hint.__metadata__[0]
        for name, hint in get_type_hints(TaskOptions, include_extras=True).items()
    },
}
NAMES = tuple(PREFIX + name for name in TaskOptions.__annotations__)


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
        return replace(
            new,
            record=new.record.with_extras(self.extras),
            conflict=self.conflict,
            run=self.run,
        )

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
        if name != OPTION and name not in OPTIONS:
            *others, last = OPTIONS
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
    if not given:
        return {}
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
    conflict, late = value_of(CONFLICT, chosen, REJECT), value_of(LATE, chosen, RUN)
    if MAX_WAIT in chosen and conflict != DEBOUNCE:
        raise InvalidOption(MAX_WAIT, chosen[MAX_WAIT], f"{CONFLICT}={DEBOUNCE!r} beside it")
    if (GRACE in chosen) != (late == SKIP):
        both = f"{LATE}={SKIP!r} and {GRACE} together"
        raise InvalidOption(*((GRACE, chosen[GRACE]) if GRACE in chosen else (LATE, late)), both)
    made = Extras(
        key=value_of(KEY, chosen, ""),
        tags=value_of(TAGS, chosen, ()),
        grace_ms=value_of(GRACE, chosen),
        hold=_hold(chosen, given),
    )
    wait = f" {value_of(MAX_WAIT, chosen)}" if MAX_WAIT in chosen else ""
    return EntryOptions(made, "" if conflict == REJECT else conflict + wait)


def _hold(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return how long the key holds, as :class:`Extras` has it."""
    until, ms = value_of(UNTIL, chosen, DELIVERED), value_of(FOR, chosen, 0)
    if KEY not in chosen:
        for name in (UNTIL, FOR):
            if name in given:
                raise InvalidOption(name, given[name], f"{KEY} beside it")
        return ""
    if until == FINISHED:
        return hold_of(ms or _AN_HOUR * 1000, until_finished=True)
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

"""What can go wrong, one class each; the class builds the sentence, the caller passes facts.

DelayQError
├── NoDelayQ
│   └── SwitchedOff
├── NoLeaf
├── NotScheduled
├── CallRejected
├── InvalidDueTime            (ValueError)
│   └── NotADueTime           (TypeError as well)
├── InvalidOption             (ValueError)
│   ├── NotATask              (TypeError as well)
│   └── InvalidSetting
│       └── UnknownSetting
├── AlreadyScheduled          (ValueError)
│   ├── InFlight
│   └── AlreadyTaken
├── ItemsRefused
├── MessageTooLarge           (ValueError)
├── PutOffTooOften
├── UnreadableRecord
├── InvalidDump               (ValueError)
├── NotLoaded                 (in what ``load`` refused)
├── LibraryChanged
├── CannotIsolate             (of ``contrib.testing``)
├── EndlessTasks              (of ``contrib.testing``)
├── BrokerDown                (of ``hand_over``; scanners wait, and go on)
└── StoreError
    ├── StoreDiffers
    ├── StoreFull
    └── StoreUnavailable      (kombu.exceptions.OperationalError)
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, cast

from kombu.exceptions import OperationalError

SHOWN = 500  # characters of a value that somebody gave


class DelayQError(Exception):
    """Base of every error that this package raises itself.

    ``args`` are the facts, and the sentence is made of them when it is asked for: so an error is
    the same one after the journey from a pool's process, or through a result backend.

    ``so_far``: of a ``schedule_many`` that this ended, what is scheduled already. The slice that it
    met is scheduled whole, or not at all. Of a selection, the count of what was done.
    """

    so_far: Any = None

    def __str__(self) -> str:
        # One line of plain text, whatever an id, a name or a server's words are made of.
        return plain(self.sentence())

    def sentence(self) -> str:
        """What is wrong, what was seen, what to do."""
        return super().__str__()


def plain(text: object) -> str:
    """Text for one row: what could move a cursor or begin a line is shown by its escape."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


def _shown(value: object) -> str:
    # Several times that exclude one another come by their names.
    named = value.items() if type(value) is dict else ()
    inside = ", ".join(f"{name!r}: {_told(one)}" for name, one in named)
    text = f"{{{inside}}}" if inside else _told(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _told(value: object) -> str:
    """A time as people write it; anything else as Python does. A class of its own knows best."""
    if type(value) in (datetime, date):
        return cast(date, value).isoformat()
    return _span(value) if type(value) is timedelta else repr(value)


def _span(value: timedelta) -> str:
    """A span in words, such as ``1 day 2 hours``."""
    left, parts = abs(value), []
    for unit in ("day", "hour", "minute"):
        count, left = divmod(left, timedelta(**{f"{unit}s": 1}))
        if count:
            parts.append(f"{count} {unit}" + "s" * (count > 1))
    if left or not parts:
        text = f"{left.total_seconds():f}".rstrip("0").rstrip(".")
        parts.append(f"{text} second" + "s" * (text != "1"))
    return "minus " * (value < timedelta(0)) + " ".join(parts)


class NoDelayQ(DelayQError):
    """The app has no ``DelayQ``."""

    def __init__(self, app: str) -> None:
        super().__init__(app)
        self.app = app

    def sentence(self) -> str:
        return f"the app {self.app!r} has no DelayQ; make one with DelayQ(app)"


class SwitchedOff(NoDelayQ):
    """The app's configuration has ``delayq_enabled = False``."""

    def sentence(self) -> str:
        return f"the DelayQ of the app {self.app!r} is switched off by delayq_enabled = False"


class NoLeaf(DelayQError):
    """A call needs a part of this package that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def sentence(self) -> str:
        return f"this celery_delayq has no {self.name!r}: it is not in celery_delayq/leaves.py"


class NotScheduled(DelayQError):
    """A task was sent at once instead of being scheduled."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def sentence(self) -> str:
        return f"task {self.task_id!r} was sent, not scheduled: its apply_async drops options"


class CallRejected(DelayQError):
    """The task's own ``apply_async`` rejected an item of a bulk."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task

    def sentence(self) -> str:
        return (
            f"the call was rejected: the apply_async of task {self.task!r} sent nothing and "
            "returned no id"
        )


class InvalidDueTime(DelayQError, ValueError):
    """The value is no possible due time."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(value, expected)
        self.value = value
        self.expected = expected

    def sentence(self) -> str:
        return f"{_shown(self.value)} is not a due time; expected {self.expected}"


class NotADueTime(InvalidDueTime, TypeError):
    """The value's type is no time at all."""


class InvalidOption(DelayQError, ValueError):
    """An option of a call or of the app is invalid."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name = name
        self.value = value
        self.expected = expected

    def sentence(self) -> str:
        return f"{self.name} is {_shown(self.value)}; expected {self.expected}"


class NotATask(InvalidOption, TypeError):
    """The object to schedule is no task, and no signature that this call accepts."""


class InvalidSetting(InvalidOption):
    """A setting outside its range."""


class UnknownSetting(InvalidSetting):
    """A setting that does not exist."""

    def __init__(self, name: str, nearest: str) -> None:
        DelayQError.__init__(self, name, nearest)
        self.name = name
        self.nearest = nearest

    def sentence(self) -> str:
        return f"there is no setting {self.name}; did you mean {self.nearest}?"


class AlreadyScheduled(DelayQError, ValueError):
    """A task with this id, or with this unique key, is scheduled, and has not left yet.

    ``holder``: the id of the task that has the key; empty where it is the id that is taken.
    """

    def __init__(self, task_id: str, holder: str = "") -> None:
        super().__init__(task_id, holder)
        self.task_id = task_id
        self.holder = holder

    def sentence(self) -> str:
        if self.holder:
            return (
                f"task {self.holder!r} is already scheduled under this key; cancel it first, or "
                "say by delayq_conflict which of the two shall stay"
            )
        return (
            f"task {self.task_id!r} is already scheduled; cancel it first, pass another task_id, "
            "or say by delayq_conflict which of the two shall stay"
        )


class InFlight(AlreadyScheduled):
    """A task with this id is being published this moment, so it cannot be replaced."""

    def sentence(self) -> str:
        return f"task {self.task_id!r} is being published this moment; try again shortly"


class AlreadyTaken(AlreadyScheduled):
    """Its message became an entry at an earlier delivery.

    That one waits, was cancelled, or has left since.
    """

    def sentence(self) -> str:
        return f"task {self.task_id!r} was scheduled when this message was delivered before"


class ItemsRefused(DelayQError):
    """Some items of a bulk were not scheduled; ``raise_for_refused`` raises it.

    ``so_far`` is the bulk, which knows why each was refused.
    """

    def __init__(self, count: int, of: int, place: int, why: str) -> None:
        super().__init__(count, of, place, why)
        self.count = count
        self.of = of
        self.place = place
        self.why = why

    def sentence(self) -> str:
        return (
            f"{self.count} of {self.of} items were refused; the first is number {self.place}: "
            f"{self.why}"
        )


class MessageTooLarge(DelayQError, ValueError):
    """The message has more bytes than ``delayq_max_message`` allows."""

    def __init__(self, task_id: str, size: int, most: int) -> None:
        super().__init__(task_id, size, most)
        self.task_id = task_id
        self.size = size
        self.most = most

    def sentence(self) -> str:
        return (
            f"the message of task {self.task_id!r} has {self.size} bytes; delayq_max_message is "
            f"{self.most}; pass a reference to the data, or raise the setting"
        )


class PutOffTooOften(DelayQError):
    """An eager task, for which no time passes, has put itself off again and again."""

    def __init__(self, task: str, times: int) -> None:
        super().__init__(task, times)
        self.task = task
        self.times = times

    def sentence(self) -> str:
        return (
            f"task {self.task!r} was put off {self.times} times in a row; it runs eagerly, where "
            "no time passes: let what it waits for be there"
        )


class UnreadableRecord(DelayQError):
    """This version cannot read the entry's record; it is left as it is."""

    def __init__(self, task_id: str, why: str) -> None:
        super().__init__(task_id, why)
        self.task_id = task_id
        self.why = why

    def sentence(self) -> str:
        return f"the record of task {self.task_id!r} cannot be read: {self.why}"


class InvalidDump(DelayQError, ValueError):
    """The input of ``load`` is no dump, was cut, or has a damaged line.

    ``line``: the number of the line, from 1; of a dump that was cut, that of the first one that is
    missing. ``why``: what is wrong with it; empty where it is missing.
    """

    def __init__(self, line: int, why: str = "") -> None:
        super().__init__(line, why)
        self.line = line
        self.why = why

    def sentence(self) -> str:
        if self.why:
            return f"line {self.line} of the dump: {self.why}"
        if self.line == 1:
            return "the dump is empty: it was cut"
        return f"the dump ends after line {self.line - 1}, before its closing line: it was cut"


class NotLoaded(DelayQError):
    """This app and its store cannot take a task of a dump."""

    def __init__(self, task_id: str, why: str) -> None:
        super().__init__(task_id, why)
        self.task_id = task_id
        self.why = why

    def sentence(self) -> str:
        return f"task {self.task_id!r} was not loaded: {self.why}"


class LibraryChanged(DelayQError):
    """An installed library lacks a name that messages, or a test's isolation, need."""

    def __init__(
        self,
        problems: list[str],
        installed: dict[str, str],
        tried: dict[str, tuple[str, str]],
    ) -> None:
        super().__init__(problems, installed, tried)
        self.problems = problems
        self.installed = installed
        self.tried = tried

    def sentence(self) -> str:
        installed = ", ".join(f"{name} {version}" for name, version in self.installed.items())
        tried = ", ".join(f"{name} {old} to {new}" for name, (old, new) in self.tried.items())
        return (
            f"{'; '.join(self.problems)}: installed are {installed}; celery_delayq was tried with "
            f"{tried}; install one of these, or a later celery_delayq"
        )


class CannotIsolate(DelayQError):
    """A test cannot have an app, a store or a worker for itself."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def sentence(self) -> str:
        return self.why


class EndlessTasks(DelayQError):
    """A test has run many tasks, and more are due: perhaps one sends itself again at once."""

    def __init__(self, limit: int, last: str) -> None:
        super().__init__(limit, last)
        self.limit = limit
        self.last = last

    def sentence(self) -> str:
        return (
            f"run_due() ran {self.limit} tasks, the last of them {self.last}, and more are due: "
            "does one send itself again at once? If not, give it a higher limit"
        )


class BrokerDown(DelayQError):
    """The broker cannot be reached; no entry is to blame.

    ``sent``: how many tasks it took before.
    """

    def __init__(self, why: str, sent: int = 0) -> None:
        super().__init__(why, sent)
        self.why = why
        self.sent = sent

    def sentence(self) -> str:
        return f"the broker cannot be reached: {self.why}"


class StoreError(DelayQError):
    """A step of the store failed. Raised as such: Redis refused it, and said why."""

    def __init__(self, step: str, why: str) -> None:
        super().__init__(step, why)
        self.step = step
        self.why = why

    def sentence(self) -> str:
        return f"{self.step.replace('_', ' ')} failed: {self.why}"


class StoreDiffers(StoreError):
    """The processes that share a store do not agree on its layout, shards or broker."""

    def __init__(self, name: str, theirs: str, ours: str) -> None:
        DelayQError.__init__(self, name, theirs, ours)
        self.step = "join"
        self.name = name
        self.theirs = theirs
        self.ours = ours
        self.why = (
            f"the store has {name} {theirs!r}, this process {ours!r}; give it a delayq_prefix of "
            "its own, or make all processes agree"
        )

    def sentence(self) -> str:
        return self.why


class StoreFull(StoreError):
    """Redis is at ``maxmemory``; free memory to schedule new tasks."""


class StoreUnavailable(StoreError, OperationalError):
    """Redis could not be reached, or did not answer in time.

    Also an ``OperationalError`` of kombu, because that is what ``apply_async`` raises
    when its broker is away, and what callers therefore catch.

    ``may_have_run``: whether the step may have been taken. If so, and it was a call that changes
    something, it was taken before this was raised, or never will be.
    """

    def __init__(self, step: str, why: str, may_have_run: bool = True) -> None:
        DelayQError.__init__(self, step, why, may_have_run)
        self.step = step
        self.why = why
        self.may_have_run = may_have_run

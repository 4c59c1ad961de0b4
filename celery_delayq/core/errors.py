"""The errors of the package; each class makes its message from the values that it gets.

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
│   ├── KeyHeld
│   ├── AlreadyDead
│   ├── InFlight
│   └── AlreadyTaken
├── ItemsRefused
├── MessageTooLarge           (ValueError)
├── PutOffTooOften
├── UnreadableRecord
├── InvalidDump               (ValueError)
├── NotLoaded                 (in the ``refused`` of a ``load``)
├── NotUndone
├── RulesRemain               (of ``release``)
├── LibraryChanged
├── CannotIsolate             (of ``contrib.testing``)
├── EndlessTasks              (of ``contrib.testing``)
├── StoreForbidden            (of ``contrib.testing``)
├── BrokerDown                (of ``hand_over``; scanners wait and retry)
└── StoreError
    ├── StoreDiffers
    ├── StoreFull
    └── StoreUnavailable      (kombu.exceptions.OperationalError)
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from kombu.exceptions import OperationalError

from .text import plain, shown

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):  # noqa: D103 - in `typing` since Python 3.11
        return lambda kind: kind


@dataclass_transform(eq_default=False)
class DelayQError(Exception):
    """Base of every error that this package raises itself.

    A class declares its values: annotated attributes, in the order of its arguments. ``args`` are
    the values, and ``str()`` makes the message from them. So an error that was pickled by a pool
    process, or stored in a result backend, has the same message. A class that declares none takes a
    message, as any exception does.

    ``so_far``: the items that a ``schedule_many`` scheduled before this ended it; the slice in
    which it failed is scheduled whole or not at all. For a selection, the count of tasks done.
    """

    so_far: Any = None
    _values: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._values = (*dict.fromkeys((*cls._values, *cls.__annotations__)),)

    def __init__(self, *values: Any, **named: Any) -> None:
        if not self._values:
            super().__init__(*values, **named)
            return
        given = {**dict(zip(self._values, values, strict=False)), **named}
        missing = [name for name in self._values if name not in given]
        given.update((name, getattr(self, name)) for name in missing if hasattr(self, name))
        if len(values) > len(self._values) or given.keys() != {*self._values}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._values)}")
        super().__init__(*map(given.get, self._values))
        vars(self).update(given)

    def __str__(self) -> str:
        # One line of plain text, whatever an id, a name or a server's error contains.
        return plain(self.sentence())

    def sentence(self) -> str:
        """Return the message: the event, its value, and the remedy."""
        return super().__str__()


class NoDelayQ(DelayQError):
    """The app has no ``DelayQ``."""

    app: str

    def sentence(self) -> str:
        return f"the app {self.app!r} has no DelayQ; make one with DelayQ(app)"


class SwitchedOff(NoDelayQ):
    """The app's configuration has ``delayq_enabled = False``."""

    def sentence(self) -> str:
        return f"the DelayQ of the app {self.app!r} is switched off by delayq_enabled = False"


class NoLeaf(DelayQError):
    """A call needs an optional part of this package that is not installed."""

    name: str

    def sentence(self) -> str:
        return f"this celery_delayq has no {self.name!r}: it is not in celery_delayq/core/leaves.py"


class NotScheduled(DelayQError):
    """A task was sent at once instead of being scheduled."""

    task_id: str

    def sentence(self) -> str:
        return f"task {self.task_id!r} was sent, not scheduled: its apply_async drops options"


class CallRejected(DelayQError):
    """The task's own ``apply_async`` rejected an item of a bulk."""

    task: str

    def sentence(self) -> str:
        return (
            f"the call was rejected: the apply_async of task {self.task!r} sent nothing and "
            "returned no id"
        )


class InvalidDueTime(DelayQError, ValueError):
    """The value cannot be a due time."""

    value: object
    expected: str

    def sentence(self) -> str:
        return f"{shown(self.value)} is not a due time; expected {self.expected}"


class NotADueTime(InvalidDueTime, TypeError):
    """The value's type is not one of a time."""


class InvalidOption(DelayQError, ValueError):
    """An option of a call or of the app is invalid."""

    name: str
    value: object
    expected: str

    def sentence(self) -> str:
        return f"{self.name} is {shown(self.value)}; expected {self.expected}"


class NotATask(InvalidOption, TypeError):
    """The object to schedule is neither a task nor a signature that this call accepts."""


class InvalidSetting(InvalidOption):
    """A setting outside its range."""


class UnknownSetting(InvalidSetting):
    """A setting that does not exist."""

    def __init__(self, name: str, nearest: str) -> None:
        Exception.__init__(self, name, nearest)
        self.name = name
        self.nearest = nearest

    def sentence(self) -> str:
        return f"there is no setting {self.name}; did you mean {self.nearest}?"


class AlreadyScheduled(DelayQError, ValueError):
    """A task with this id or unique key is scheduled and has not been delivered yet.

    ``holder``: the id of the task that has the key; empty if the id is taken.
    """

    task_id: str
    holder: str = ""

    def sentence(self) -> str:
        if self.holder:
            return (
                f"task {self.holder!r} is already scheduled under this key; cancel it first, or "
                "set delayq_conflict to choose which one stays"
            )
        return (
            f"task {self.task_id!r} is already scheduled; cancel it first, pass another task_id, "
            "or set delayq_conflict to choose which one stays"
        )


class KeyHeld(AlreadyScheduled):
    """A task that no longer waits, as it was delivered or skipped, still holds this unique key.

    ``until``: when the key is free at the latest; ``None`` if its task is being published.
    """

    until: datetime | None = None

    def sentence(self) -> str:
        until = self.until and f" until {self.until.isoformat(' ', 'seconds')} at the latest"
        return (
            f"task {self.holder!r} no longer waits, but still holds this key{until or ''}; pass "
            "conflict='replace' to wait behind it, or another key; delayq.free(key=...) frees it"
        )


class AlreadyDead(AlreadyScheduled):
    """A task with this id is dead: it could not be delivered, and is kept until someone looks."""

    def sentence(self) -> str:
        return (
            f"task {self.task_id!r} is dead, as it could not be delivered; retry it with "
            f"delayq.retry({self.task_id!r}), remove it with delayq.remove({self.task_id!r}), or "
            "pass another task_id"
        )


class InFlight(AlreadyScheduled):
    """A task with this id is being published right now, so it cannot be replaced."""

    def sentence(self) -> str:
        return f"task {self.task_id!r} is being published this moment; try again shortly"


class AlreadyTaken(AlreadyScheduled):
    """Its message was scheduled at an earlier delivery.

    That task waits, or was cancelled or delivered since.
    """

    def sentence(self) -> str:
        return f"task {self.task_id!r} was scheduled when this message was delivered before"


class ItemsRefused(DelayQError):
    """Some items of a bulk were not scheduled; ``raise_for_refused`` raises it.

    ``so_far`` is the bulk, which has the reason for each.
    """

    count: int
    of: int
    place: int
    why: str

    def sentence(self) -> str:
        return (
            f"{self.count} of {self.of} items were refused; the first is number {self.place}: "
            f"{self.why}"
        )


class MessageTooLarge(DelayQError, ValueError):
    """The message has more bytes than ``delayq_max_message`` allows."""

    task_id: str
    size: int
    most: int

    def sentence(self) -> str:
        return (
            f"the message of task {self.task_id!r} has {self.size} bytes; delayq_max_message is "
            f"{self.most}; pass a reference to the data, or raise the setting"
        )


class PutOffTooOften(DelayQError):
    """An eager task, for which no time passes, has deferred itself too many times in a row."""

    task: str
    times: int

    def sentence(self) -> str:
        return (
            f"task {self.task!r} was put off {self.times} times in a row; eagerly no time "
            "passes, so provide what it waits for before the call"
        )


class UnreadableRecord(DelayQError):
    """The entry's record is damaged, or has the format of a later release; it stays as it is."""

    task_id: str
    why: str

    def sentence(self) -> str:
        return f"the record of task {self.task_id!r} cannot be read: {self.why}"


class InvalidDump(DelayQError, ValueError):
    """The input of ``load`` is no dump, is truncated, or has a damaged line.

    ``line``: the number of the line, from 1; of a truncated dump, of the first missing line.
    ``why``: the fault; empty if the line is missing.
    """

    line: int
    why: str = ""

    def sentence(self) -> str:
        if self.why:
            return f"line {self.line} of the dump: {self.why}"
        if self.line == 1:
            return "the dump is empty: it was cut"
        return f"the dump ends after line {self.line - 1}, before its closing line: it was cut"


class NotLoaded(DelayQError):
    """This app and its store cannot take a task of a dump."""

    task_id: str
    why: str

    def sentence(self) -> str:
        return f"task {self.task_id!r} was not loaded: {self.why}"


_NOT_UNDONE = {
    "unknown": "no cancel of it is kept; see delayq_undo",
    "waits": "it waits already",
    "taken": "another task has its id",
    "held": "the task {} has its unique key now",
    "left": "a task with its id has left the store since",
    "overdue": "its due time, {}, is over; run it now instead",
    "revoked": "its id was sent to the workers, which would drop it",
    "changed": "it was moved or changed since",
    "gone": "it was delivered or cancelled since, or is being delivered",
}


class NotUndone(DelayQError):
    """A task that was cancelled or moved cannot be brought back.

    ``reason``: ``unknown``, ``waits``, ``taken``, ``held``, ``left``, ``overdue`` or ``revoked``;
    of a move ``changed``, ``gone`` or ``overdue``.
    ``detail``: the holder of its key, or its due time.
    ``change``: ``cancel``, or ``move``.
    """

    task_id: str
    reason: str
    detail: str = ""
    change: str = "cancel"

    def sentence(self) -> str:
        why = _NOT_UNDONE[self.reason].format(self.detail)
        return f"the {self.change} of task {self.task_id!r} cannot be undone: {why}"


class RulesRemain(DelayQError):
    """Tasks cannot be released, as recurring rules have written them and go on to write more.

    ``count``: how many.
    """

    count: int

    def sentence(self) -> str:
        are = "is a run" if self.count == 1 else "are runs"
        return (
            f"{self.count:,} of these tasks {are} of recurring rules, which go on to write more; "
            "if beat is to send them, start beat, and then: celery -A proj delayq rules remove "
            "--all"
        )


class LibraryChanged(DelayQError):
    """An installed library lacks a name that messages, or a test's isolation, need."""

    problems: list[str]
    installed: dict[str, str]
    tried: dict[str, tuple[str, str]]

    def sentence(self) -> str:
        installed = ", ".join(f"{name} {version}" for name, version in self.installed.items())
        tried = ", ".join(f"{name} {old} to {new}" for name, (old, new) in self.tried.items())
        return (
            f"{'; '.join(self.problems)}: installed are {installed}; celery_delayq was tried with "
            f"{tried}; install one of these, or a later celery_delayq"
        )


class CannotIsolate(DelayQError):
    """A test cannot get an app, a store or a worker of its own."""

    why: str

    def sentence(self) -> str:
        return self.why


class EndlessTasks(DelayQError):
    """A test ran many tasks, and more are due: perhaps a task sends itself again at once."""

    limit: int
    last: str

    def sentence(self) -> str:
        return (
            f"run_due() ran {self.limit} tasks, the last of them {self.last}, and more are due: "
            "does one send itself again at once? If not, give it a higher limit"
        )


class StoreForbidden(DelayQError):
    """A test that forgot the fixture would reach a store, and ``delayq_forbid_store`` is set."""

    store: str
    prefix: str

    def sentence(self) -> str:
        return (
            f"a test would reach the store {self.store} (prefix {self.prefix}), which pytest's "
            "option delayq_forbid_store forbids: request the fixture delayq, or use isolated(app)"
        )


class BrokerDown(DelayQError):
    """The broker cannot be reached; this does not count as a failure of any task.

    ``sent``: how many tasks the broker accepted before.
    """

    why: str
    sent: int = 0

    def sentence(self) -> str:
        return f"the broker cannot be reached: {self.why}"


class StoreError(DelayQError):
    """A step of the store failed. Raised itself if Redis refused it, with Redis's reason.

    ``may_have_run``: whether the step may have run. Redis does not undo a script in which it
    refuses a command, for lack of a right. ``task_id``: the id of the task that one call was to
    schedule; or empty.
    """

    step: str
    why: str
    # These are no arguments, as they have no annotation.
    may_have_run = True
    task_id = ""

    def sentence(self) -> str:
        return f"{self.step.replace('_', ' ')} failed: {self.why}"


class StoreDiffers(StoreError):
    """The processes that share a store do not agree on its layout, shards or broker."""

    may_have_run = False

    def __init__(self, name: str, theirs: str, ours: str) -> None:
        Exception.__init__(self, name, theirs, ours)
        self.step = "join"
        self.name = name
        self.theirs = theirs
        self.ours = ours
        advice = "give it a delayq_prefix of its own, or make all processes agree"
        if name == "delayq_shards":
            advice = f"set it to {theirs}, or run: celery -A proj delayq reshard {ours}"
        if name == "broker":
            advice = (
                "give it a delayq_prefix of its own, or the broker_url of the others; if the "
                "broker has moved, dump the waiting tasks, and load them under another prefix"
            )
        self.found = f"the store has {name} {theirs!r}, this process {ours!r}"
        self.advice = advice
        self.why = f"{self.found}; {advice}"

    def sentence(self) -> str:
        return self.why


class StoreFull(StoreError):
    """Redis is at ``maxmemory``; free memory to schedule new tasks."""

    may_have_run = False


class StoreUnavailable(StoreError, OperationalError):
    """Redis could not be reached, or did not answer in time.

    Also an ``OperationalError`` of kombu, because that is what ``apply_async`` raises
    when its broker is away, and what callers therefore catch.

    ``may_have_run``: if true, and the step changes something, it ran before this was raised, or
    never will.
    """

    may_have_run: bool = True

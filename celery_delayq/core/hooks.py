"""The author of a change of tasks, and the functions that hear of it.

    with acting("ann@support"):   --> a context variable --> the name of each call --> its event
        delayq.cancel(id)                                --> Hooks --> the leaf events: signals, log

A change of many tasks has a name too, which its calls carry in the same way: so each step can count
itself in the change's line of the history, and a cancel is kept under that name for an undo.

This makes no audit trail: a program that reaches Redis can change tasks without a name.

Hooks are functions to call when something happens to tasks, so the modules that take steps do not
need Celery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, Union

from .errors import InvalidOption
from .text import logger_of, plain
from .threads import survive

logger = logger_of(__name__)

LONGEST = 64  # bytes of a name
_EXPECTED = f"text of 1 to {LONGEST} bytes, all of them printable"

#: A name, or what returns one when it is needed.
Name = Union[str, Callable[[], str]]
Step = TypeVar("Step")

_name: ContextVar[Name] = ContextVar("celery_delayq.acting", default="")
_bulk: ContextVar[str] = ContextVar("celery_delayq.bulk", default="")


@contextmanager
def acting(name: str) -> Iterator[None]:
    """Name the person or program that makes the changes within a ``with`` block.

    It holds in this thread or task of asyncio, and in what that starts with its context.

    Args:
        name: 1 to 64 bytes of printable text.

    Raises:
        InvalidOption: *name* is none.
    """
    if not isinstance(name, str) or not name.isprintable() or not 0 < _size(name) <= LONGEST:
        raise InvalidOption("name", name, _EXPECTED)
    with acting_as(name):
        yield


@contextmanager
def acting_as(name: Name) -> Iterator[None]:
    """Do the same with a name that another program made, as far as it fits; or with what has it."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def actor() -> str:
    """Return the name of the author; empty without one."""
    name = _name.get()
    if not name:
        return ""
    return fitting(name if isinstance(name, str) else name())


@contextmanager
def part_of(bulk: str) -> Iterator[None]:
    """Let each call within a ``with`` block be a step of the change of many tasks named *bulk*."""
    token = _bulk.set(bulk)
    try:
        yield
    finally:
        _bulk.reset(token)


def steps_of(bulk: str, steps: Iterator[Step]) -> Iterator[Step]:
    """Yield from *steps*, each taken as a part of *bulk*; what the caller does between is none."""
    while True:
        with part_of(bulk):
            step = next(steps, None)
        if step is None:
            return
        yield step


def author() -> bytes:
    """Return who makes a call, and after a NUL the change of many of which it is a step, if any."""
    bulk = _bulk.get()
    return actor().encode(errors="replace") + (f"\0{bulk}".encode() if bulk else b"")


def by() -> str:
    """Return the same for a log line: ``" by ann"``."""
    name = actor()
    return f" by {name}" if name else ""


def fitting(name: str) -> str:
    """Return a name with unprintable characters escaped, cut to :data:`LONGEST` bytes."""
    text = plain(name)
    if _size(text) <= LONGEST:
        return text
    return text.encode()[: LONGEST - 3].decode(errors="ignore") + "\u2026"


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


Hook = Callable[..., object]
Ears = tuple[Callable[[], object], ...]  # each is true while a listener is connected

IDS, LATENESS = 1, 2  # the details that a hand-over can return, as bits


# Each is checked by a function of its own.
_ASKED = ("hears_messages", "hears_handed_over", "hears_left")


def _nobody(*_: object) -> None:
    """Do nothing, for a hook that is not set."""


def _never() -> bool:
    return False


def _always() -> bool:
    return True


def _guarded(hook: Hook) -> Hook:
    """Return *hook*, made to log its exceptions, because the step is already done."""

    def guarded(*facts: Any) -> None:
        try:
            hook(*facts)
        except Exception:
            logger.exception("a hook failed; the step before it is done")
        except BaseException as error:
            survive(hook, error)

    return hook if hook is _nobody else guarded


@dataclass(eq=False)
class Hooks:
    """The functions to call when something happens to tasks, and their arguments.

    A hook is called after the step, in the same thread. Its exceptions are logged.

    Attributes:
        scheduled: A list of each ``NewEntry`` that was scheduled and its due time in ms.
        unreplicated: How many tasks were scheduled but are not known to be on as many replicas as
            required.
        unscheduled: How many tasks were not scheduled because the store was full, away, or refused
            them, and the name of the error.
        rescheduled: The task id and the due time in ms.
        edited: The task id.
        cancelled: A list of ``Cancelled``, the entries that a step removed.
        undone: A list of the id and the due time in ms of each task whose cancel was undone.
        missed: ``"cancel"``, ``"reschedule"`` or ``"edit"``, and the ``Outcome``, of a call for one
            task that changed nothing.
        gave_way: As ``cancelled``, for tasks whose id is known but that were not scheduled, as
            another task was kept.
        skipped: The id of a task that was too late, and why.
        slots_omitted: How many slots of a recurring rule got no run, and why: ``held``, its key
            was; ``missed``, nobody scanned; or ``declined``, its task's own ``apply_async`` made no
            message.
        rules_changed: No arguments: a rule was set or resumed, or may have been, in a process with
            a scanner.
        handed_over: A list of the ids of tasks that were delivered to their queues.
        left: ``"direct"`` or ``"relay"``, and by how many seconds each delivered task was late.
        refused: ``"direct"`` or ``"relay"``, and how many tasks will be tried again.
        uncertain: How many tasks were published without an answer.
        reclaimed: A list of the ids whose lease ran out.
        broker_down: No arguments: the broker took nothing, or nothing more.
        dead: The task id and the reason.
        restarted: The new name of a scanner whose thread had ended.
        called: The name of a script and the seconds that its call took, failed or not.
        differs: The ``StoreDiffers`` with which the store refused this process.
        hears_scheduled: ``scheduled`` is called only while one of these is true. Without any, it is
            always called.
        hears_cancelled: The same for ``cancelled``, after a call for one task.
        hears_messages: Whether ``cancelled`` needs messages now; it costs reading them.
        hears_handed_over: Whether ``handed_over`` does anything now; it costs the ids.
        hears_left: Whether ``left`` does anything now; it costs the times.
        hears_calls: Whether ``called`` does anything; it costs reading the clock twice.
    """

    scheduled: Hook = _nobody
    unreplicated: Hook = _nobody
    unscheduled: Hook = _nobody
    rescheduled: Hook = _nobody
    edited: Hook = _nobody
    cancelled: Hook = _nobody
    undone: Hook = _nobody
    missed: Hook = _nobody
    gave_way: Hook = _nobody
    skipped: Hook = _nobody
    slots_omitted: Hook = _nobody
    rules_changed: Hook = _nobody
    handed_over: Hook = _nobody
    left: Hook = _nobody
    refused: Hook = _nobody
    uncertain: Hook = _nobody
    reclaimed: Hook = _nobody
    broker_down: Hook = _nobody
    dead: Hook = _nobody
    restarted: Hook = _nobody
    called: Hook = _nobody
    differs: Hook = _nobody
    hears_scheduled: Ears = ()
    hears_cancelled: Ears = ()
    hears_messages: Callable[[], object] = _never
    hears_handed_over: Callable[[], bool] = _never
    hears_left: Callable[[], bool] = _never
    hears_calls: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        for name in _told():
            setattr(self, name, _guarded(getattr(self, name)))
        if self.scheduled is not _nobody:
            self.hears_scheduled = self.hears_scheduled or (_always,)
        if self.cancelled is not _nobody:
            self.hears_cancelled = self.hears_cancelled or (_always,)
        self.hears_calls = self.called is not _nobody

    @property
    def wants(self) -> int:
        """The details that a hand-over must return now, as a sum of bits."""
        return IDS * self.hears_handed_over() + LATENESS * self.hears_left()

    def add(self, others: Hooks) -> None:
        """Call *others* as well from now on, in every thread that uses these hooks."""
        for name in _told():
            mine, theirs = getattr(self, name), getattr(others, name)
            if theirs is not _nobody:
                setattr(self, name, theirs if mine is _nobody else _both(mine, theirs))
        self.hears_scheduled += others.hears_scheduled
        self.hears_cancelled += others.hears_cancelled
        self.hears_calls = self.called is not _nobody
        for name in _ASKED:
            mine, theirs = getattr(self, name), getattr(others, name)
            if theirs is not _never:
                setattr(self, name, theirs if mine is _never else _either(mine, theirs))


def _told() -> list[str]:
    return [hook.name for hook in fields(Hooks) if not hook.name.startswith("hears_")]


def _both(hook: Hook, other: Hook) -> Hook:
    def both(*facts: Any) -> None:
        hook(*facts)
        other(*facts)

    return both


def _either(question: Callable[[], object], other: Callable[[], object]) -> Callable[[], bool]:
    return lambda: bool(question() or other())

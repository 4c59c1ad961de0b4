"""A task as read from the store, and what names one.

an entry, and its queue's name --> ScheduledTask --> its facts, as ``show`` and ``--json`` have them
a result, an id, a ScheduledTask, a key --> the target, as the store takes it

First the task, then its facts, then what names one, with the checks of operations on one task.
"""

# No postponed annotations: pydantic would look their names up in the module that pickles name.

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, wraps
from inspect import signature
from typing import Any, ClassVar, TypeVar, Union, cast
from uuid import UUID

from celery import Celery
from celery.app.task import Task
from celery.result import AsyncResult, GroupResult
from celery.utils.saferepr import saferepr
from kombu.utils.json import loads

from .. import clock
from ..clock import EPOCH, from_ms
from ..errors import InvalidOption, NotATask
from ..message.body import body_of, data_of, is_celery_s, shown
from ..message.headers import LAUNCH, UNKNOWN_HEADER, put_offs_in, unknown_in
from ..store import Entry, State, keys, lane_in_words
from ..store.changes import REVISION_BYTES
from ..store.record import SHOWN

_MAX_SHOWN = 1024  # characters of arguments to show, as in Celery's logs


@dataclass(frozen=True)
class ScheduledTask:
    """One entry of the store.

    Attributes:
        task: The task's name; for a canvas, its kind and first task: ``chain(shop.add, ...)``.
            Empty for a protocol 1 pickle, which hides the name in its body.
        queue: Its queue, as selections and pauses use it: the one that it was sent with, or the
            routing key if no queue was given; if the name is unknown, its destination.
        key: Its unique key, or empty.
        tags: Its tags.
        reason: Why it is dead, or why its message cannot be read.
        attempts: How often it was sent, or may have been.
        error: The last error of a refused or dead task; why no worker could run it, of one that
            they put back.
        next_try: When a refused task is retried.
        dead_since: When it became dead.
        paused_by: The pauses that apply to it, whether it is due or not: ``everything``, ``queue
            mail``, ``task shop.remind``.
        changed: When it was scheduled or last changed.
        revision: The same time in us, unique to each version of a task. Pass it as ``if_revision``.
        cursor: Its position in a list; pass it to ``tasks`` to continue after this task.
        priority: Its priority, as the broker defines it; 0 if it was not given.
        behind: The id of the task that holds its key, if it waits until that one has finished; or
            empty. Meanwhile it is neither overdue nor late.
        behind_until: When that task holds its key at the latest; ``None`` if it still waits itself.
        put_offs: How often it has deferred itself, by ``raise self.defer(…)``.
    """

    __module__ = "celery_delayq"  # as pickles name it

    id: str
    task: str
    queue: str
    due: datetime
    created: datetime
    state: State
    reason: str = ""
    attempts: int = 0
    error: str = ""
    next_try: datetime | None = None
    dead_since: datetime | None = None
    changed: datetime = clock.EPOCH
    revision: int = 0
    key: str = ""
    tags: tuple[str, ...] = ()
    paused_by: tuple[str, ...] = ()
    cursor: str = field(default="", compare=False)
    priority: int = 0
    put_offs: int = 0
    behind: str = ""
    behind_until: datetime | None = None

    # No fields: ``dataclasses.asdict`` and FastAPI show these.
    _envelope: ClassVar[dict[str, Any]] = {}
    _app: ClassVar[Celery | None] = None

    def __getstate__(self) -> dict[str, Any]:
        # A pickled app has its settings, and so the passwords of its URLs.
        return {name: value for name, value in vars(self).items() if name != "_app"}

    @classmethod
    def of(cls, entry: Entry, app: Celery, queue: str) -> "ScheduledTask":
        """Read an entry; if its message is not a valid Celery message, ``reason`` says so.

        Args:
            entry: The entry.
            app: The app that reads it.
            queue: The name of its queue; the entry has only a hash of it.
        """
        facts, state = entry.facts, entry.facts.state
        reason = facts.error if state is State.DEAD else ""
        task, envelope, priority, put_offs, unknown = "", {}, 0, 0, {}
        try:
            envelope = _envelope_of(entry.message)
            task, put_offs = envelope["headers"].get("task", ""), put_offs_in(envelope["headers"])
            if UNKNOWN_HEADER in envelope["headers"]:
                unknown = unknown_in(envelope["headers"])
            priority = envelope["properties"].get("priority", 0)
            _ = envelope["properties"]["delivery_info"]["routing_key"]  # all of kombu's have one
        except Exception as error:  # invalid JSON fails in many ways, also with RecursionError
            task, envelope = "", {}
            why = f"its message cannot be read: {error!r}"
            reason = f"{reason}; {why}" if reason else why
        made = cls(
            id=entry.task_id,
            task=task,
            queue=queue,
            due=from_ms(entry.due_ms),
            created=from_ms(entry.created_ms),
            state=state,
            reason=reason,
            attempts=facts.attempts,
            error=facts.error or unknown.get("why", ""),
            next_try=None if facts.next_try_ms is None else from_ms(facts.next_try_ms),
            dead_since=None if facts.since_ms is None else from_ms(facts.since_ms),
            changed=from_ms(entry.changed_us // 1000),
            revision=entry.changed_us,
            **{name: getattr(entry.extras, name) for name in SHOWN},
            cursor=entry.cursor,
            priority=priority if isinstance(priority, int) else 0,
            put_offs=put_offs,
            behind=facts.behind,
            behind_until=from_ms(facts.behind_until_ms) if facts.behind_until_ms else None,
        )
        # Frozen keeps out users only.
        own = vars(made)
        own.update(_envelope=envelope, _app=app)
        if made.is_canvas:
            own["task"] = made.argsrepr or task
        elif not task and envelope:
            # Protocol 1 keeps the task's name with its arguments.
            own["task"] = made._data["task"]
        own["paused_by"] = made._paused_by(facts.paused_by)
        return made

    def _paused_by(self, letters: str) -> tuple[str, ...]:
        """Return the pauses that apply to it, in words."""
        task = LAUNCH if self.is_canvas else self.task
        lanes = {"*": (None, None), "q": (self.queue, None), "t": (None, task)}
        return tuple(lane_in_words(*lanes[letter]) for letter in letters)

    def facts(self) -> dict[str, Any]:
        """Return what ``--json`` prints of it, as JSON values; times are ISO 8601 in UTC.

        ``args`` is a list, and ``kwargs`` a dictionary. If they are hidden or cannot be JSON, they
        are ``None``, and ``argsrepr`` and ``kwargsrepr`` have the texts that logs show. Rare facts,
        such as ``key`` or ``error``, are left out if they are empty. Nothing is unpickled.
        """
        return json_facts_of(self)

    @property
    def is_canvas(self) -> bool:
        """Whether it is a canvas (such as a chain, group or chord), held as one entry."""
        return bool(self._envelope.get("headers", {}).get("task") == LAUNCH)

    @property
    def headers(self) -> dict[str, Any]:
        """The headers of its message."""
        return {**self._envelope.get("headers", {})}

    @property
    def host(self) -> str:
        """The process that scheduled it, as Celery names it: ``gen123@host``."""
        origin = self._envelope.get("headers", {}).get("origin")
        return origin if isinstance(origin, str) else ""

    @property
    def args(self) -> tuple[Any, ...] | None:
        """The positional arguments, even if ``argsrepr`` hides them from logs.

        ``None`` if they cannot be read, are larger than 32 MB, or use a serializer that is not in
        the app's ``accept_content``: a list must not unpickle messages that the app would refuse.
        """
        args: tuple[Any, ...] | None = self._call["args"]
        return args

    @property
    def kwargs(self) -> dict[str, Any] | None:
        """The keyword arguments; ``None`` as for :attr:`args`."""
        kwargs: dict[str, Any] | None = self._call["kwargs"]
        return kwargs

    @property
    def argsrepr(self) -> str | None:
        """The positional arguments as Celery's logs show them.

        A call's ``argsrepr="***"`` hides them here as well.
        """
        return self._shown("argsrepr", "args")

    @property
    def kwargsrepr(self) -> str | None:
        """The keyword arguments, as :attr:`argsrepr`."""
        return self._shown("kwargsrepr", "kwargs")

    def shown_arguments(self) -> tuple[list[Any] | None, dict[str, Any] | None]:
        """Return the args and kwargs that may be shown, as values; ``None`` for hidden ones.

        It unpickles nothing. Arguments with the caller's own ``argsrepr`` or ``kwargsrepr`` are
        hidden, and so are the contents of a canvas.
        """
        args, kwargs = self._data["args"], self._data["kwargs"]
        if self.is_canvas or not self._is_told("argsrepr", args):
            args = None
        if self.is_canvas or not self._is_told("kwargsrepr", kwargs):
            kwargs = None
        return None if args is None else list(args), kwargs

    def _is_told(self, header: str, value: Any) -> bool:
        """Return whether logs show the value itself, not a text that the caller set."""
        given = self._envelope.get("headers", {}).get(header)
        if not isinstance(given, str) or given == repr(value):
            return True
        # A copy has no app, and so shows less.
        return self._app is not None and is_celery_s(
            given, shown(self._app, value, value)[header == "kwargsrepr"]
        )

    @property
    def ignores_result(self) -> bool:
        """Whether it was called with ``ignore_result``, so no backend keeps its result."""
        return bool(self._envelope.get("headers", {}).get("ignore_result"))

    def _shown(self, header: str, name: str) -> str | None:
        given = self._envelope.get("headers", {}).get(header)
        if isinstance(given, str):
            return given
        # Protocol 1 does not have these headers.
        value = self._data[name]
        return None if value is None else saferepr(value, _MAX_SHOWN)

    @cached_property
    def _call(self) -> dict[str, Any]:
        return _parts_of(body_of(self._envelope, self._app and self._app.conf.accept_content))

    @cached_property
    def _data(self) -> dict[str, Any]:
        """The same, but only if it can be read as plain data."""
        return _parts_of(data_of(self._envelope, self._app and self._app.conf.accept_content))


def _envelope_of(message: bytes) -> dict[str, Any]:
    """Return a message as kombu reads it; its hook for its own types takes a third longer."""
    found: dict[str, Any] = (
        loads(message) if b"__type__" in message else json.loads(message.decode())
    )
    return found


def _parts_of(body: Any) -> dict[str, Any]:
    """Return task, args and kwargs of a message's body; protocol 2 has no task there."""
    if not isinstance(body, dict):
        parts = body if isinstance(body, (list, tuple)) else ()
        body = dict(zip(("args", "kwargs"), parts, strict=False))
    args, kwargs = body.get("args"), body.get("kwargs")
    return {
        "task": body.get("task", ""),
        "args": tuple(args) if isinstance(args, (list, tuple)) else None,
        "kwargs": kwargs if isinstance(kwargs, dict) else None,
    }


def facts_of(task: ScheduledTask) -> dict[str, Any]:
    """Return the facts about a task, with arguments as text; rare facts only if it has them."""
    # The times of an unreadable task are unknown.
    is_read = task.created != EPOCH
    facts = {
        "id": task.id,
        "task": task.task,
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "queue": task.queue,
        "due": task.due if is_read else None,
        "created": task.created if is_read else None,
        "changed": task.changed if is_read else None,
        "revision": task.revision,
        "host": task.host,
        "state": task.state.value,
    }
    more = {
        "key": task.key,
        "behind": task.behind,
        "behind_until": task.behind_until,
        "tags": list(task.tags),
        "priority": task.priority,
        "put_offs": task.put_offs,
        "reason": task.reason,
        "error": "" if task.reason else task.error,
        "attempts": task.attempts,
        "next_try": task.next_try,
        "dead_since": task.dead_since,
        "paused_by": list(task.paused_by),
        "cursor": task.cursor,
    }
    return {**facts, **{name: value for name, value in more.items() if value}}


def json_facts_of(task: ScheduledTask) -> dict[str, Any]:
    """Return the same as JSON values; see ``ScheduledTask.facts``."""
    facts = facts_of(task)
    for name, value in zip(("args", "kwargs"), task.shown_arguments(), strict=True):
        text, facts[name] = facts[name], _in_json(value)
        if facts[name] is None:
            facts[f"{name}repr"] = text
    values: dict[str, Any] = json.loads(line_of_json(facts))
    return values


def line_of_json(facts: Any) -> str:
    """Return plain values as a line of JSON; times as text, with their offset."""
    return json.dumps(facts, default=_plain, allow_nan=False)


def _in_json(value: Any) -> Any:
    """Return *value* as JSON values; ``None`` if it has none."""
    try:
        return json.loads(line_of_json(value))
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> str:
    """Return the text of a type that JSON lacks, but Celery's own JSON supports."""
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(value)


#: A value that identifies a task: an id, a result, or what ``tasks`` and ``get`` return.
Named = Union[str, UUID, "AsyncResult[Any]", GroupResult, ScheduledTask]

_EXPECTED = "text of 1 to 512 bytes, a UUID, a result or a ScheduledTask"

# The arguments of `select`, and those that its operations do not have.
_PICKS = {"tag", "task", "queue", "state", "after_due", "before_due", "all"}
_OF_ONE = {"delayq", "task_id", "key", "revoke", "if_revision"}

Operation = TypeVar("Operation", bound=Callable[..., Any])


def of_one_task(operation: Operation) -> Operation:
    """Make an operation on one task name the right call if it gets a filter such as ``tag=``."""
    name, given_to = operation.__name__, signature(operation)
    unknown, others = _PICKS - given_to.parameters.keys(), given_to.parameters.keys() - _OF_ONE
    is_of_many = given_to.return_annotation == "Outcome"  # what reads is for one task only
    does = f".{name}({'...' if others else ''})" if is_of_many else ""

    @wraps(operation)
    def call(*args: Any, **given: Any) -> Any:
        for wrong in unknown & given.keys():
            many = f"select({wrong}={given[wrong]!r}){does}"
            expected = f"a task's id or key, as {name} is for one task; for many, use {many}"
            raise NotATask(wrong, given[wrong], expected)
        return operation(*args, **given)

    return cast(Operation, call)


def checked_revision(given: int | None) -> int | None:
    """Return the revision that a task must have, if there is one.

    Raises:
        InvalidOption: it is not a task's revision.
    """
    if given is None or (type(given) is int and 0 <= given < 256**REVISION_BYTES):
        return given
    raise InvalidOption("if_revision", given, "the revision of a task that you read")


def target_of(task_id: Named | None = None, key: str | None = None) -> bytes:
    """Return the target for the store; pass either an id or a key.

    Raises:
        InvalidOption: none or both are given, or the id or key is invalid.
    """
    if task_id is not None and key is not None:
        raise InvalidOption("key", key, "a task's id or a key, not both")
    if key is not None:
        return keys.target_of_key(keys.checked_name("key", key))
    return keys.target_of(id_of(task_id))


def id_of(given: Any) -> str:
    """Return the id of the task that *given* identifies.

    Raises:
        InvalidOption: it does not identify a task.
    """
    if isinstance(given, (AsyncResult, GroupResult, ScheduledTask)):
        given = given.id
    if isinstance(given, UUID):
        given = str(given)
    if not isinstance(given, str):
        raise InvalidOption("task_id", given, _EXPECTED + _hint(given))
    return keys.checked_id(given)


def _hint(given: Any) -> str:
    if isinstance(given, Task):
        return "; for all calls of a task, use select(task=...)"
    if isinstance(given, (list, tuple, set, frozenset)):
        return "; pass one at a time, or use select(...)"
    return "; pass its .id" if isinstance(getattr(given, "id", None), str) else ""

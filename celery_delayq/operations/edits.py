"""The edit of a waiting task: its arguments, task, priority, expiry, queue, key or tags.

read the entry --> Draft, its message --changed by the Edit--> replace it, if it is unchanged
      ^                                                                |
      +------------------------- changed meanwhile --------------------+

A changed message is serialised, compressed and encoded as it was. A priority means another list, a
queue the route that Celery gives a call with it. The rest stays the same: id, headers, links.

After a deploy, a waiting task may have a name or arguments that the new code does not take. So its
task may be given another name, also where it is linked to another task or part of a canvas; and a
function may make its arguments anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import kombu.serialization
from celery import Celery
from celery.exceptions import QueueNotFound
from kombu import Exchange
from kombu.common import Broadcast
from kombu.entity import maybe_delivery_mode
from kombu.transport import virtual
from kombu.utils.json import loads

from ..core import clock
from ..core.clock import from_ms
from ..core.errors import (
    InvalidOption,
    MessageTooLarge,
    NotATask,
    StoreError,
    StoreUnavailable,
    UnreadableRecord,
)
from ..core.leaves import leaf
from ..core.message.body import body_of, encode_into, is_celery_s, renamed, shown, signatures_in
from ..core.message.broker import Broker
from ..core.message.headers import EXPIRES_HEADER, LAUNCH, warn_of_expiry
from ..core.message.outgoing import OutgoingMessage, dumps, header_of, list_key, record_of
from ..core.services import HasServices, Services
from ..core.store import Entry, Outcome, checked_name
from ..core.store.changes import Move, Rewrite
from ..core.store.keys import shard_of
from ..core.store.record import (
    LAST_MS,
    MOST_TAGS,
    NO_FLAGS,
    UNKNOWN_TAG,
    Extras,
    NewRecord,
    Record,
    Tags,
    header_for,
    label_of,
)
from ..core.tasks.scheduled_task import Named, checked_revision, of_one_task, target_of


class Draft:
    """A message as read from the store.

    Args:
        text: The message.
        record: The record that has it.
        app: The app.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is no Celery message.
    """

    def __init__(self, text: bytes, record: Record, app: Celery) -> None:
        self._message = loads(text)
        self._record = record
        self._app = app
        self._headers: dict[str, Any] = self._message["headers"]
        self._properties: dict[str, Any] = self._message["properties"]
        self._body = body_of(self._message, app.conf.accept_content)
        self._has_changed_body = False
        self._kind = "L" if record.is_for_list else "R"
        self._destination = record.destination
        self._labels = b""  # the record's own
        if record.expires_ms is not None:
            self._headers[EXPIRES_HEADER] = record.expires_ms

    @property
    def is_readable(self) -> bool:
        """Whether its arguments may and can be decoded."""
        return isinstance(self._body, dict if self.is_v1 else (list, tuple))

    @property
    def is_canvas(self) -> bool:
        return self._headers.get("task") == LAUNCH

    @property
    def is_v1(self) -> bool:
        """Whether it uses protocol 1, which has the call in the body."""
        return "task" not in self._headers

    @property
    def task(self) -> str:
        """The task's name."""
        name: str = (self._body if self.is_v1 else self._headers)["task"]
        return name

    @property
    def serializer(self) -> str | None:
        """The serializer of its arguments, if it is known here."""
        name: str | None = kombu.serialization.registry.type_to_name.get(
            self._message["content-type"]
        )
        return name

    @property
    def arguments(self) -> tuple[Any, Any]:
        """Positional and keyword arguments of a readable message."""
        if self.is_v1:
            return self._body["args"], self._body["kwargs"]
        args, kwargs, *_ = self._body
        return args, kwargs

    def set_arguments(self, args: Any, kwargs: Any) -> None:
        """Replace the arguments; a text that the caller set for logs stays."""
        old, new = shown(self._app, *self.arguments), shown(self._app, args, kwargs)
        for name, was, says in zip(("argsrepr", "kwargsrepr"), old, new, strict=True):
            if name in self._headers and is_celery_s(self._headers[name], was):
                self._headers[name] = says
        if self.is_v1:
            self._body.update(args=args, kwargs=kwargs)
        else:
            self._body = (args, kwargs, *self._body[2:])
        self._has_changed_body = True

    def rename(self, to: str | Mapping[str, str]) -> bool:
        """Give its task another name; return whether it has another one now.

        Args:
            to: The new name; or new names by old ones, for its links and parts too.
        """
        own = to if isinstance(to, str) else to.get(self.task, self.task)
        is_renamed = own != self.task
        if is_renamed:
            (self._body if self.is_v1 else self._headers)["task"] = own
            self._has_changed_body |= self.is_v1
            self._labels = NO_FLAGS + label_of(own) + self._record.labels[1]
        if isinstance(to, str):
            return is_renamed
        has_links = renamed(self._body, to)
        if self.is_canvas:
            accept = self._app.conf.accept_content
            has_links |= leaf("canvas").renamed(self.arguments[0], to, accept)
            text = self._headers.get("argsrepr")
            if isinstance(text, str):
                self._headers["argsrepr"] = _NAMES.sub(lambda name: to.get(name[0], name[0]), text)
        self._has_changed_body |= has_links
        return is_renamed or has_links

    @property
    def as_shown(self) -> str:
        """The call, as logs show it, with what is linked to it: ``shop.add (1,) {}, shop.log``."""
        args, kwargs = self._headers.get("argsrepr"), self._headers.get("kwargsrepr")
        if not isinstance(args, str) or not isinstance(kwargs, str):
            args, kwargs = shown(self._app, *self.arguments) if self.is_readable else ("?", "?")
        linked = [str(part["task"]) for part in signatures_in(self._body)]
        if self.is_canvas:
            messages = map(loads, leaf("canvas").messages_of(self._body))
            linked += [str(message["headers"].get("task")) for message in messages]
        call = args if self.is_canvas else f"{self.task} {args} {kwargs}"
        return ", ".join([call, *linked])

    def set_expiry(self, moment: datetime | None, after_due_ms: int | None = None) -> None:
        """Set when it expires, or ``None``; *after_due_ms*: how long after the due time."""
        text = None if moment is None else moment.isoformat()
        self._headers.pop(EXPIRES_HEADER, None)
        if self.is_v1:
            self._body["expires"] = text
            self._has_changed_body = True
            return
        self._headers["expires"] = text
        if after_due_ms is not None:
            self._headers[EXPIRES_HEADER] = after_due_ms

    @property
    def expires(self) -> str | None:
        """The time when it expires, as Celery reads it."""
        text: str | None = (self._body if self.is_v1 else self._headers).get("expires")
        return text

    def set_eta(self, moment: datetime) -> None:
        """Set the ``eta`` until which a worker holds it, as in plain Celery."""
        (self._body if self.is_v1 else self._headers)["eta"] = moment.isoformat()
        self._has_changed_body |= self.is_v1

    def set_priority(self, priority: int | None, options: Mapping[str, Any]) -> None:
        """Set the priority, and the list for it; *options* are the broker's."""
        channel = virtual.Channel
        self._properties["priority"] = channel.default_priority if priority is None else priority
        key = list_key(self._properties["delivery_info"]["routing_key"], priority, options)
        if self._kind == "L":
            self._destination = options.get("global_keyprefix", "") + key
            return
        route = loads(self._destination)
        if route["list"] is not None:
            self._destination = dumps({**route, "list": key})

    def set_queue(self, name: str, broker: Broker, *, direct: bool, prefix: str) -> None:
        """Route it anew, as Celery routes a call with this queue; after any other change.

        Args:
            name: The queue's name.
            broker: The app's broker.
            direct: Whether the store is in the broker's Redis.
            prefix: The store's prefix.

        Raises:
            InvalidOption: the app has no such queue, and may not make it; or its list would be a
                key of the store.
        """
        amqp = self._app.amqp
        args, kwargs = self.arguments if self.is_readable else ((), {})
        try:
            routed = amqp.router.route({"queue": name}, self.task, args, kwargs)
        except QueueNotFound:
            raise InvalidOption("queue", name, "a queue of the app, see task_queues") from None
        queue, exchange, key = (routed.get(part) for part in ("queue", "exchange", "routing_key"))
        # From here on as in Celery's `send_task_message`.
        kind = getattr(queue.exchange, "type", "direct")
        if not (exchange and key) and kind == "direct":
            exchange, key = "", queue.name
        elif exchange is None:
            exchange = queue.exchange.name or amqp.default_exchange
            key = key or queue.routing_key or self._app.conf.task_default_routing_key
        declare = [] if isinstance(queue, Broadcast) else [queue]
        if isinstance(exchange, Exchange):
            exchange, declare = exchange.name, [exchange, *declare]
        mode = getattr(queue.exchange, "delivery_mode", None)
        mode = mode or self._app.conf.task_default_delivery_mode
        self._properties["delivery_mode"] = maybe_delivery_mode(mode)
        self._properties["delivery_info"] = {"exchange": exchange, "routing_key": key}
        message = OutgoingMessage(self._message, exchange, key, declare, self._body, dumps)
        header = header_of(message, broker, amqp.queues, direct=direct, prefix=prefix)
        self._kind, self._labels = header[1:2].decode(), message.labels
        self._destination = header.partition(b":")[2].decode()

    def new_record(self, extras: Extras | None = None) -> NewRecord:
        """Return the changed record, with other extras, if given.

        Raises:
            kombu.exceptions.EncodeError: the serializer cannot encode the arguments.
        """
        share = self._record.name is not None or EXPIRES_HEADER in self._headers
        new = self._new_record(share=share)
        return self._record.with_message(new, extras, self._labels)

    def released(self) -> NewRecord:
        """Return the record for delivery at once; no template, as each has its own ``eta``."""
        return self._record.released(self._new_record(share=False))

    def _new_record(self, *, share: bool) -> NewRecord:
        if self._has_changed_body:
            encode_into(self._message, self._body)
        header = header_for(self._kind, self._destination)
        return record_of(self._message, header, b"", share=share)


_NAMES = re.compile(r"[^\s(),]+")  # in a canvas's text for logs


class _Kept:
    """Marks an argument that was not given, as ``None`` has its own meaning."""

    def __repr__(self) -> str:
        return "as it is"


KEPT: Any = _Kept()
CANVAS = "a task; cancel a canvas and schedule it again"

_MAX_PRIORITY = 255

_PRIORITY = f"a whole number from 0 to {_MAX_PRIORITY}, or None"
_EXPIRES = "seconds after the due time, a timedelta, a time as text or datetime, or None"
_TAGS = f"a list of at most {MOST_TAGS} tags"
_TOO_MANY = f"at most {MOST_TAGS} tags of a task; {{}} would have {{}}"
_SHARD = "a key of the task's own shard; cancel the task, and schedule it again under this one"
_NAME = "a task's name, or new names by old ones"
_KNOWN = "a task that this app has; call it where the code is that has it"
_CHANGE = "a function of (args, kwargs) that returns the new ones, or None; without args and kwargs"
_MADE = "{} has to return (args, kwargs), or None for arguments that stay; it returned {!r}"
_READABLE = "a task whose arguments this app accepts, see accept_content"


@dataclass(frozen=True)
class Edit:
    """The new values of an edit; :data:`KEPT` leaves a value as it is.

    Raises:
        InvalidOption: no value is given, or an invalid one.
    """

    args: Any = KEPT
    kwargs: Any = KEPT
    priority: Any = KEPT
    expires: Any = KEPT
    queue: Any = KEPT
    key: Any = KEPT
    add_tags: Any = ()
    remove_tags: Any = ()
    task: Any = KEPT
    change: Any = KEPT

    def __post_init__(self) -> None:
        if not (self.has_message or self.key is not KEPT or self.add_tags or self.remove_tags):
            names = ", ".join(field.name for field in fields(self))
            raise InvalidOption("edit", None, f"one of {names}")
        self._check_place()
        if self.args is not KEPT and not isinstance(self.args, (list, tuple)):
            raise InvalidOption("args", self.args, "a list or a tuple")
        if self.kwargs is not KEPT and not isinstance(self.kwargs, Mapping):
            raise InvalidOption("kwargs", self.kwargs, "a mapping")
        if self.priority is not KEPT and self.priority is not None:
            whole = isinstance(self.priority, int) and not isinstance(self.priority, bool)
            if not whole or not 0 <= self.priority <= _MAX_PRIORITY:
                raise InvalidOption("priority", self.priority, _PRIORITY)
        if isinstance(self.expires, bool):
            raise InvalidOption("expires", self.expires, _EXPIRES)
        self._check_move()

    def _check_move(self) -> None:
        if self.task is not KEPT:
            pairs = self.task.items() if isinstance(self.task, Mapping) else [("", self.task)]
            names = [name for pair in pairs for name in pair]
            are_texts = all(isinstance(name, str) for name in names)
            if not names or not are_texts or "" in names[1::2] or LAUNCH in names:
                raise InvalidOption("task", self.task, _NAME)
        if self.change is not KEPT and not (callable(self.change) and not self.has_values):
            raise InvalidOption("change", self.change, _CHANGE)

    def check_names(self, services: Services) -> None:
        """Check the new names of tasks.

        Raises:
            InvalidOption: this app has no such task.
        """
        if self.task is KEPT:
            return
        for name in [self.task] if isinstance(self.task, str) else self.task.values():
            if name not in services.app.tasks:
                services.import_tasks()
            if name not in services.app.tasks:
                raise InvalidOption("task", name, _KNOWN)

    def _check_place(self) -> None:
        if self.queue is not KEPT and (not isinstance(self.queue, str) or not self.queue):
            raise InvalidOption("queue", self.queue, "a queue's name")
        if self.key is not KEPT and self.key is not None:
            checked_name("key", self.key)
        for name in ("add_tags", "remove_tags"):
            tags = getattr(self, name)
            if not isinstance(tags, (list, tuple, set, frozenset)):
                raise InvalidOption(name, tags, _TAGS)
            object.__setattr__(self, name, tuple(checked_name(name, tag) for tag in tags))

    @property
    def has_values(self) -> bool:
        """Whether it has arguments that are the same for all."""
        return self.args is not KEPT or self.kwargs is not KEPT

    @property
    def has_arguments(self) -> bool:
        return self.has_values or self.change is not KEPT

    @property
    def moves_along(self) -> bool:
        """Whether it fits tasks to other code, which a single one may refuse."""
        return self.task is not KEPT or self.change is not KEPT

    @property
    def suits_canvases(self) -> bool:
        """Whether it changes of a message only the names of tasks, which parts have too."""
        own = self.has_arguments or any(
            other is not KEPT for other in (self.priority, self.expires, self.queue)
        )
        return isinstance(self.task, Mapping) and not own

    @property
    def has_message(self) -> bool:
        """Whether it changes the message, and not only the key or tags."""
        others = (self.priority, self.expires, self.queue, self.task)
        return self.has_arguments or any(other is not KEPT for other in others)

    def extras(self, entry: Entry) -> Extras:
        """Return the extras of the edited entry.

        Raises:
            InvalidOption: it would have too many tags.
        """
        old = entry.extras
        kept = [tag for tag in (*old.tags, *self.add_tags) if tag not in self.remove_tags]
        tags = tuple(dict.fromkeys(kept))
        if len(tags) > MOST_TAGS:
            raise InvalidOption(
                "add_tags", list(self.add_tags), _TOO_MANY.format(entry.task_id, len(tags))
            )
        if self.key is KEPT or self.key == old.key:
            return replace(old, tags=tags)
        return replace(old, tags=tags, key=self.key or "", hold=old.hold if self.key else "")


class Edited(NamedTuple):
    """What an edit makes of an entry.

    Attributes:
        record: The new record.
        expires: Its expiry, if the edit sets one.
        before, after: The call, as logs show it, if the edit fits it to other code.
    """

    record: NewRecord
    expires: str = ""
    before: str = ""
    after: str = ""


def edited(services: Services, entry: Entry, changes: Edit) -> Edited | None:
    """Return what an edit makes of an entry; ``None`` if it has nothing to change there."""
    extras, shards = changes.extras(entry), len(services.entries.shards)
    if extras.key != entry.extras.key:
        place = shard_of(entry.extras.key or entry.task_id, shards)
        if shard_of(extras.key or entry.task_id, shards) != place:
            raise InvalidOption("key", changes.key, _SHARD)
    draft = _draft_of(services, entry, changes)
    before = draft.as_shown if changes.moves_along else ""
    is_changed = _call_anew(services, draft, changes)
    if changes.moves_along and not is_changed:
        return None
    if changes.expires is not KEPT:
        _set_expiry(services, entry, draft, changes.expires)
    if changes.priority is not KEPT:
        draft.set_priority(changes.priority, services.broker.options)
    if changes.queue is not KEPT:
        direct, prefix = services.store_is_broker, services.settings.prefix
        draft.set_queue(changes.queue, services.broker, direct=direct, prefix=prefix)
    new = draft.new_record(extras)
    most = services.settings.max_message
    if new.size > most:
        raise MessageTooLarge(entry.task_id, new.size, most)
    expires = "" if changes.expires is KEPT else draft.expires or ""
    return Edited(new, expires, before, draft.as_shown if changes.moves_along else "")


def _call_anew(services: Services, draft: Draft, changes: Edit) -> bool:
    """Set the task and its arguments; return whether an edit changes them."""
    is_renamed = changes.task is not KEPT and draft.rename(changes.task)
    if changes.has_arguments:
        return _set_arguments(services, draft, changes) or is_renamed
    if is_renamed and draft.is_readable:
        _checked(services, draft, *draft.arguments)
    return is_renamed


def _draft_of(services: Services, entry: Entry, changes: Edit) -> Draft:
    try:
        draft = Draft(entry.message, entry.record, services.app)
    except Exception as error:  # invalid JSON fails in many ways
        raise UnreadableRecord(entry.task_id, f"its message cannot be read: {error!r}") from error
    if draft.is_canvas and changes.has_message and not changes.suits_canvases:
        raise NotATask("task_id", entry.task_id, CANVAS)
    # Protocol 1 has its name in the body, by which it is routed.
    v1_s = (changes.expires, changes.queue, changes.task) if draft.is_v1 else ()
    in_body = changes.has_arguments or any(part is not KEPT for part in v1_s)
    in_body |= isinstance(changes.task, Mapping)
    if in_body and not draft.is_readable:
        raise InvalidOption("task_id", entry.task_id, _READABLE)
    return draft


def _set_arguments(services: Services, draft: Draft, changes: Edit) -> bool:
    args, kwargs = draft.arguments
    if changes.change is not KEPT:
        made = made_anew(changes.change, args, kwargs)
        if made is None:
            return False
        args, kwargs = made
    args = args if changes.args is KEPT else changes.args
    kwargs = kwargs if changes.kwargs is KEPT else dict(changes.kwargs)
    draft.set_arguments(*_checked(services, draft, args, kwargs))
    return True


def made_anew(change: Callable[[Any, Any], Any], args: Any, kwargs: Any) -> Any:
    """Return what a function makes of arguments; ``None`` if they stay.

    Raises:
        TypeError: it returns something else.
    """
    made = change(args, kwargs)
    if made is None:
        return None
    try:
        new_args, new_kwargs = made
    except (TypeError, ValueError):
        raise TypeError(_MADE.format(change, made)) from None
    if not isinstance(new_args, (list, tuple)) or not isinstance(new_kwargs, Mapping):
        raise TypeError(_MADE.format(change, made))
    return tuple(new_args), dict(new_kwargs)


def _checked(services: Services, draft: Draft, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments as ``apply_async`` would send them.

    Raises:
        TypeError: they do not fit the task, if this process knows it.
    """
    if draft.task not in services.app.tasks:
        services.import_tasks()
    task = services.app.tasks.get(draft.task)
    # A class-based task without a function has no `__header__`.
    fits = getattr(task, "__header__", None)
    if task is not None and fits is not None and task.typing:
        fits(*args, **kwargs)
    dump = getattr(task, "_dump_pydantic_arguments", None)
    if dump is None or draft.serializer == "pickle":
        return args, kwargs
    dumped: tuple[Any, Any] = dump(args, kwargs)
    return dumped


def _set_expiry(services: Services, entry: Entry, draft: Draft, expires: Any) -> None:
    if expires is None:
        draft.set_expiry(None)
    elif isinstance(expires, (datetime, str)):
        draft.set_expiry(from_ms(clock.at(expires, services.timezone).ms))
    else:
        after_ms = _milliseconds(expires)
        draft.set_expiry(from_ms(max(0, min(entry.due_ms + after_ms, LAST_MS))), after_ms)


def _milliseconds(expires: Any) -> int:
    if isinstance(expires, timedelta):
        expires = expires.total_seconds()
    if not isinstance(expires, (int, float)) or not math.isfinite(expires):
        raise InvalidOption("expires", expires, _EXPIRES)
    return round(max(-LAST_MS, min(expires * 1000, LAST_MS)))


@of_one_task
def edit(
    delayq: HasServices,
    task_id: Named | None = None,
    *,
    key: str | None = KEPT,
    args: Sequence[Any] = KEPT,
    kwargs: Mapping[str, Any] = KEPT,
    priority: int | None = KEPT,
    expires: float | timedelta | datetime | str | None = KEPT,
    queue: str = KEPT,
    add_tags: Tags = (),
    remove_tags: Tags = (),
    task: str | Mapping[str, str] = KEPT,
    change: Callable[[Any, Any], tuple[Sequence[Any], Mapping[str, Any]] | None] = KEPT,
    if_revision: int | None = None,
) -> Outcome:
    """Change the arguments, task, priority, expiry, queue, key or tags of a scheduled task.

    Everything else stays as it is: the message keeps its serializer, compression, headers and
    links. It is only routed again if you pass a queue, and Celery sends no signal.

    Args:
        task_id: The result of scheduling, a task that you read, or an id (text or UUID).
        key: Beside *task_id*, its new unique key; ``None``: it has none from now on. The key holds
            as long as the one before, or while the task waits. Without *task_id*, the key that
            names the task.
        args: All positional arguments. An ``argsrepr`` that the caller set stays.
        kwargs: All keyword arguments.
        priority: 0 to 255, as the broker defines it; ``None``: the broker's default.
        expires: Seconds after the due time, or a timedelta; a time, as a datetime or ISO 8601
            text, if naive in the app's time zone; ``None``: never.
        queue: The name of the queue to send it to, as for ``apply_async``; your ``task_routes``
            apply.
        add_tags: Tags that it gets; it then has up to 16.
        remove_tags: Tags that it loses, if it has them.
        task: The name of another task of this app. Or new names by old ones: then also the tasks
            in its links, and the parts of a canvas, get their new names.
        change: A function of its arguments, ``change(args, kwargs)``, that returns the new ones, a
            pair; ``None`` if they stay. It may be called again, if the task changes meanwhile.
        if_revision: Edit the task only if this is still its ``revision``.

    Returns:
        ``Outcome.DONE``, the only true one; or why not. ``UNCHANGED``: it has another revision, or
        *task* and *change* have nothing to change in it.

    Raises:
        InvalidOption: no value is given, or an invalid one; the task's current arguments cannot
            be read; it is a canvas (``NotATask``), of which only key, tags and names can change;
            the queue or the new task does not exist; or the new key belongs to another of several
            shards.
        AlreadyScheduled: another task waits under the new key; nothing was changed. ``KeyHeld``:
            it has left, and still holds the key.
        TypeError: the arguments do not fit the task.
        MessageTooLarge: the new message is larger than ``delayq_max_message``.
    """
    named = key if task_id is None and key is not KEPT else None
    new_key = KEPT if task_id is None else key
    services = delayq.services
    changes = Edit(
        args, kwargs, priority, expires, queue, new_key, add_tags, remove_tags, task, change
    )
    changes.check_names(services)
    who = target_of(task_id, named)
    outcome = _edit(services, who, changes, checked_revision(if_revision))
    if outcome not in (Outcome.DONE, Outcome.UNCERTAIN):
        services.hooks.missed("edit", outcome)
    return outcome


def hurry(services: Services, entry: Entry, changes: Edit) -> None:
    """Make an edited task due, if it waits for workers to try again; a pause still holds it."""
    if UNKNOWN_TAG in entry.extras.tags and changes.has_message:
        with suppress(StoreError):  # it is edited, and comes again within the hour
            services.entries.change(target_of(entry.task_id), Move(only="earlier"))


def _edit(services: Services, who: bytes, changes: Edit, if_revision: int | None) -> Outcome:
    until = clock.monotonic() + services.settings.timeout
    while True:
        entry = services.entries.find(who)
        if if_revision is not None and entry and entry.changed_us != if_revision:
            return Outcome.UNCHANGED
        made = None if entry is None else edited(services, entry, changes)
        if entry is None:
            # The step itself decides: the task may have left the store, or may just be arriving.
            what = Rewrite(None, NewRecord(b"", b"", b""))
        elif made is None:
            return Outcome.UNCHANGED
        else:
            what = Rewrite(entry.record, made.record)
        outcome, _ = services.entries.change(who, what)
        if entry is not None and made and outcome in (Outcome.DONE, Outcome.UNCERTAIN):
            services.hooks.edited(entry.task_id)
            hurry(services, entry, changes)
            warn_of_expiry([(entry.task_id, entry.due_ms, made.expires)])
        if outcome is not Outcome.UNCHANGED or if_revision is not None:
            return outcome
        if clock.monotonic() >= until:
            raise StoreUnavailable("edit", "other processes keep changing the same task", False)

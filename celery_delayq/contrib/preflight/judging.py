"""Judges calls by the code of this process: would a worker of it run them?

    message --> its call ------------------> registered? --> do its arguments bind? --> faults
            --> links, chain, chord's body --^
            --> parts of a canvas: messages

Celery passes results on: a part of a chain gets one argument more than it has, unless it is
immutable; so does a callback, and a chord's body. An errback gets the task's id, or three arguments
if it takes these; which, each release of Celery finds in its own way, so either is enough.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import celery.app.base
from celery import Celery
from celery.app.trace import task_has_custom
from kombu.exceptions import ContentDisallowed
from kombu.utils.json import loads

from ...core.leaves import leaf
from ...core.message.body import decoder_of
from ...core.message.headers import LAUNCH
from ...core.store import label_of

# Where a call was found.
TASK, RULE, CANVAS, LINK = "task", "rule", "canvas", "link"
# What is wrong with it.
UNREGISTERED, ARGUMENTS, CONTENT = "unregistered", "arguments", "content"
UNDECODABLE, UNREADABLE, QUEUE = "undecodable", "unreadable", "queue"

LONGEST = 300  # characters of a text in a row
_LONGEST_SHAPE = 1000  # characters of the names in a shape that is kept
_ERRBACK = -1  # in place of how many arguments a call gets beside its own
_MAPS = {"celery.map": False, "celery.starmap": True, "celery.chunks": True}  # is each item many?
# Of a message without links, as Celery writes it.
PLAIN = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class Fault(NamedTuple):
    """What is wrong with a call.

    Attributes:
        task: The task's name.
        reason: One of the words above.
        where: Where the call was found, as a word above.
        why: What Celery would say, or the decoder; the row has that of one call.
    """

    task: str
    reason: str
    where: str
    why: str = ""


class Call(NamedTuple):
    """A call, as far as its values do not matter.

    Attributes:
        task: The task's name.
        size: How many positional arguments it has.
        names: The names of the others.
        where: Where it was found.
        given: How many arguments Celery puts before its own.
    """

    task: str
    size: int
    names: tuple[str, ...]
    where: str
    given: int = 0


Faults = frozenset[Fault]
FINE: Faults = frozenset()


class Judge:
    """Judges calls by an app's tasks, each shape once.

    Args:
        app: The app; its modules are imported.
        most: How many shapes to keep. Others are judged each time, which only takes longer.
        read: The labels of the queues that living workers read; ``None`` if these are not known.
    """

    def __init__(self, app: Celery, most: int, read: Container[bytes] | None = None) -> None:
        self.read = read
        self._accept = app.conf.accept_content
        self._tasks, self._most = app.tasks, most
        self._known: dict[Call, Faults] = {}

    def call(self, call: Call) -> Faults:
        """Return what is wrong with a call."""
        found = self._known.get(call)
        if found is None:
            found = self._judged(call)
            if self.may_keep(call.names):
                if len(self._known) >= self._most:
                    self._known.clear()
                self._known[call] = found
        return found

    @staticmethod
    def may_keep(names: Iterable[Any]) -> bool:
        """Whether a shape with these names is small enough to keep."""
        return sum(len(str(name)) for name in names) < _LONGEST_SHAPE

    def _judged(self, call: Call) -> Faults:
        task = self._tasks.get(call.task)
        if task is None:
            return frozenset([Fault(call.task, UNREGISTERED, call.where)])
        check, why = _check_of(task), ""
        for given in (1, 3) if call.given == _ERRBACK else (call.given,):
            try:
                if check is not None:
                    check(*(None,) * (given + call.size), **dict.fromkeys(call.names))
            except TypeError as error:
                why = why or str(error)[:LONGEST]
            else:
                return FINE
        return frozenset([Fault(call.task, ARGUMENTS, call.where, why)])

    def message(self, text: bytes, where: str = TASK) -> Faults:
        """Return what is wrong with a message, its links, and if it is a canvas, with its parts."""
        try:
            envelope = loads(text)
            name = str(envelope["headers"].get("task", ""))
        except Exception as error:  # invalid JSON fails in many ways
            return frozenset([Fault("", UNDECODABLE, where, _said(error))])
        payload, faults = self._decoded(envelope, name, where)
        faults = faults or self.payload(name, payload, where)
        return faults | self._unread(envelope, name) if where == CANVAS else faults

    def _unread(self, envelope: Mapping[str, Any], name: str) -> Faults:
        """Return the fault of a part's queue that no living worker reads."""
        info = envelope["properties"].get("delivery_info") or {}
        queue = info.get("routing_key")
        if self.read is None or not isinstance(queue, str) or info.get("exchange"):
            return FINE
        if label_of(queue) in self.read:
            return FINE
        return frozenset([Fault(name, QUEUE, CANVAS, queue[:LONGEST])])

    def _decoded(self, envelope: Mapping[str, Any], name: str, where: str) -> tuple[Any, Faults]:
        decode, faults = self.decoder(envelope, name, where)
        try:
            return None if faults else decode(envelope["body"]), faults
        except Exception as error:  # each serializer has its own
            return None, self.undecodable(name, where, error)

    def decoder(
        self, envelope: Mapping[str, Any], name: str, where: str = TASK
    ) -> tuple[Callable[[Any], Any], Faults]:
        """Return what decodes a message's body; or why that may not, or cannot, be decoded."""
        try:
            return decoder_of(envelope, self._accept), FINE
        except ContentDisallowed:
            why = str(envelope["content-type"])
            return _nothing, self._with_name(name, CONTENT, where, why)
        except Exception as error:  # another program may have written anything
            return _nothing, self.undecodable(name, where, error)

    def undecodable(self, name: str, where: str, why: object) -> Faults:
        """Return the fault of a body that cannot be decoded, and that of its task."""
        return self._with_name(name, UNDECODABLE, where, _said(why))

    def _with_name(self, name: str, reason: str, where: str, why: str) -> Faults:
        fault = Fault(name, reason, where, why[:LONGEST])
        if name and name not in self._tasks:
            return frozenset([fault, Fault(name, UNREGISTERED, where)])
        return frozenset([fault])

    def payload(self, name: str, payload: Any, where: str = TASK) -> Faults:
        """Return what is wrong with a decoded body; *name* is empty in protocol 1."""
        try:
            if isinstance(payload, dict):  # protocol 1
                name, args, kwargs = payload["task"], payload["args"], payload["kwargs"]
                embed = payload
            else:
                args, kwargs, embed = payload
            calls = [Call(str(name), len(_list(args)), (*map(str, dict(kwargs)),), where)]
            calls += _mapped(str(name), kwargs, where)
            calls += _embedded(embed or {}, CANVAS if where == CANVAS else LINK)
            messages = self._parts(str(name), payload)
        except Exception as error:  # another program may have written anything
            return self.undecodable(str(name), where, error)
        found = FINE.union(*map(self.call, calls))
        for message in messages:
            found |= self.message(message, CANVAS)
        return found

    def _parts(self, name: str, payload: Any) -> list[bytes]:
        if name != LAUNCH or name not in self._tasks:  # without its leaf it is unregistered
            return []
        messages: list[bytes] = leaf("canvas").messages_of(payload)
        return messages

    def signature(self, signature: Any) -> Faults:
        """Return what is wrong with a rule's signature."""
        try:
            calls = [*_calls(signature, 0, RULE)]
        except Exception as error:
            return self.undecodable("", RULE, error)
        return FINE.union(*map(self.call, calls))


def _nothing(body: Any) -> None:  # noqa: ARG001 - in place of a decoder
    return None


def _said(error: object) -> str:
    text = str(error)
    return (f"{type(error).__name__}: {text}" if isinstance(error, Exception) else text)[:LONGEST]


def _check_of(task: Any) -> Callable[..., Any] | None:
    """Return what raises ``TypeError`` if a worker's call of a task would; ``None``: nothing does.

    This is Celery's own check of a call, which needs the function of a task. Celery checks no call
    of a task with ``typing=False``; of a class without a function, a worker calls ``run``. Around a
    function of models, it puts one that takes any arguments and binds them itself.
    """
    made = getattr(task, "__wrapped__", None)
    if getattr(getattr(made, "__func__", made), "__globals__", {}) is vars(celery.app.base):
        return inspect.signature(made).bind  # type: ignore[arg-type]
    if not task.typing:
        return None
    header: Callable[..., Any] | None = getattr(task, "__header__", None)
    if header is None and not task_has_custom(task, "__call__"):
        return inspect.signature(task.run).bind
    return header


def _embedded(embed: Mapping[str, Any], where: str) -> Iterator[Call]:
    """Yield the calls that follow a message's own: callbacks, errbacks, its chain and its chord."""
    for part in (*_list(embed.get("callbacks")), *_list(embed.get("chain"))):
        yield from _calls(part, 1, where)
    for part in _list(embed.get("chord")):
        yield from _calls(part, 1, where)
    for part in _list(embed.get("errbacks")):
        yield from _calls(part, _ERRBACK, where)


def _calls(part: Any, given: int, where: str) -> Iterator[Call]:
    """Yield the calls of a signature.

    Args:
        part: The signature.
        given: How many arguments it gets beside its own.
        where: Where it was found.
    """
    kind, name = part.get("subtask_type") or "", str(part["task"])
    args, kwargs, options = (part.get(what) or () for what in ("args", "kwargs", "options"))
    kwargs, options = dict(kwargs), dict(options)
    inside = 1 if given == _ERRBACK else given + len(args)
    if kind == "chain":
        for at, each in enumerate(_list(kwargs["tasks"])):
            yield from _calls(each, 1 if at else inside, where)
    elif kind in ("group", "chord"):
        for each in _list(kwargs["tasks" if kind == "group" else "header"]):
            yield from _calls(each, inside, where)
        for each in _list(kwargs.get("body")):
            yield from _calls(each, 1, where)
    else:
        given = 0 if part.get("immutable") else given
        yield Call(name, len(args), (*map(str, kwargs),), where, given)
        yield from _mapped(name, kwargs, where)
    after = LINK if where == RULE else where
    # The last task of a chain in a chord's header carries the chord's body.
    for each in (*_list(options.get("link")), *_list(options.get("chord"))):
        yield from _calls(each, 1, after)
    for each in _list(options.get("link_error")):
        yield from _calls(each, _ERRBACK, after)


def _mapped(name: str, kwargs: Mapping[str, Any], where: str) -> list[Call]:
    """Return the calls that Celery's map, starmap or chunks makes of one task."""
    if name not in _MAPS:
        return []
    task, items = str(kwargs["task"]["task"]), kwargs["it"]
    where = CANVAS if where == TASK else where
    counts = {len(item) for item in items} if _MAPS[name] else {1}
    return [Call(task, count, (), where) for count in sorted(counts)]


def _list(value: Any) -> list[Any]:
    """Return the parts of something that may be none, one signature, or many."""
    if not value:
        return []
    if isinstance(value, Mapping):
        return [value]
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"a {type(value).__name__} in place of a list")
    return [*value]

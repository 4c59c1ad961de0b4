"""Keeps what Celery does to apply a canvas: the messages it sends, what it tells the backend.

    canvas.apply_async() --> a message of a first part --+--> kept as JSON
                         --> a call of the backend ------+

So route, headers, serializers, lineage and ids are Celery's own, made where the caller is: task
classes with an ``apply_async`` of their own, routers, signals and tracers meet each message there.
The calls of the backend are about chords. They are made when the canvas is due, as a chord's
counter expires a day after that. Calls of the backend and parts for the store come first: if one of
the two is away, the launch has sent nothing, and sends no part again when it is tried again.

A step is one of these:

    message   the message and its route, as the store keeps them for a relay; ``time`` and
              ``terms``, if the part has a delay of its own, which begins at the launch
    backend   the method's name, and its arguments

One that has failed is ``tried``: it may have been done all the same.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from celery.canvas import Signature
from kombu.serialization import dumps as serialize

from ...core.clock import When, at, celery_time
from ...core.message.headers import EXPIRES_HEADER, give_identity, warn_of_chord
from ...core.message.outgoing import dumps, recorded, relay_route
from ...core.scheduling.intercept import Interceptor, Request
from ...core.services import Services

_COUNTDOWN = "delayq_countdown_ms"  # a header, until the message is kept
_ROUTE = ("queue", "exchange", "routing_key", "exchange_type", "priority")
_OF_CHORDS = ("apply_chord", "set_chord_size")

Step = dict[str, Any]


@dataclass
class Kept:
    """What Celery did to apply one canvas.

    Attributes:
        due: When the canvas is due.
        steps: What it did, messages to the broker last.
        route: Options that send a task to where the first message goes.
        serializer: The first message's.
    """

    services: Services
    due: datetime
    steps: list[Step] = field(default_factory=list)
    route: dict[str, Any] = field(default_factory=dict)
    serializer: str | None = None

    # Celery copies the options of signatures, with this among them.
    def __copy__(self) -> Kept:
        return self

    def __deepcopy__(self, _: object) -> Kept:
        return self

    def of(self, apply_async: Callable[[], Any], **_: Any) -> Any:
        """Call ``apply_async()``, without options, keep what it does, and return its result."""
        _wrap(self.services.app.backend)
        token = _under_way.set(self)
        try:
            result = apply_async()
        finally:
            _under_way.reset(token)
        self.steps.sort(key=_is_for_broker)
        for step in self.steps:
            body = step.get("body")
            if isinstance(body, Signature):  # in the messages it has the same serializer
                step["body"] = packed(_plain(body), self.serializer)
        return result

    def note(self, headers: dict[str, Any], given: Mapping[str, Any]) -> None:
        """Note what of a call counts from the launch."""
        for name, header in (("expires", EXPIRES_HEADER), ("countdown", _COUNTDOWN)):
            seconds = given.get(name)
            if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
                headers[header] = round(seconds * 1000)

    def keeper(
        self,
        interceptor: Interceptor,
        request: Request | None,
        message: Any,
        options: Mapping[str, Any],
    ) -> _Keeper:
        """Return the producer that keeps one message."""
        if self.serializer is None:
            self.route = _route_of(options)
            self.serializer = options.get("serializer") or self.services.app.conf.task_serializer
        step: Step = {"id": message.properties["correlation_id"], "sent": message.sent_event}
        after_ms, eta = message.headers.pop(_COUNTDOWN, None), message.headers.get("eta")
        when = (
            request.when
            if request is not None
            else at(celery_time(eta), timezone.utc)
            if eta
            else None
        )
        if when is not None:
            step["time"] = ["after", after_ms] if after_ms else [when.mode, when.ms]
            message.headers["eta"] = None
            seconds = When(*step["time"]).seconds_from(self.due)
            warn_of_chord(self.services.app, message, seconds, interceptor.warned_chords)
        if request is not None:
            step["terms"] = terms = asdict(request.entry_options)
            others = request.entry_options.extras.others
            terms["extras"]["others"] = [part.decode("latin-1") for part in others]
        return _Keeper(self, interceptor, step)

    def ask_backend(self, name: str, method: Callable[..., Any], *args: Any, **more: Any) -> None:
        """Keep one call of the result backend."""
        if name == "set_chord_size":
            self.steps.append({"backend": name, "args": list(args)})
            return
        # A backend that cannot do chords refuses the call, as it does without a due time.
        method.__self__.ensure_chords_allowed()  # type: ignore[attr-defined]
        (group_id, results), body = args
        tuples = [result.as_tuple() for result in results]
        self.steps.append({"backend": name, "args": [group_id, tuples], "body": body, "more": more})


@dataclass(frozen=True)
class _Keeper:
    """A producer for Celery's sender that keeps one message."""

    kept: Kept
    interceptor: Interceptor
    step: Step

    def publish(self, body: Any, **options: Any) -> None:
        services = self.kept.services
        message = recorded(self.interceptor.producer, body, **options)
        if self.interceptor.is_for_amqp:
            give_identity(message.message["properties"])
        route = relay_route(message, services.app.amqp.queues)
        if self.step["sent"]:
            names = [getattr(entity, "name", "") for entity in message.declare]
            self.step["sent"].update(
                queue=names[0] if names else None,
                exchange=message.exchange,
                routing_key=message.routing_key,
            )
        self.kept.steps.append({**self.step, "message": dumps(message.message), "route": route})


_under_way: ContextVar[Kept | None] = ContextVar("celery_delayq_canvas", default=None)


def _is_for_broker(step: Step) -> bool:
    return "message" in step and "terms" not in step


def _wrap(backend: Any) -> None:
    """Let a backend's calls about chords be kept; a second call changes nothing."""
    for name in _OF_CHORDS:
        method = getattr(backend, name)
        if not isinstance(method, _Watched):
            setattr(backend, name, _Watched(name, method))


@dataclass(frozen=True)
class _Watched:
    """A backend's method; in a call that applies a canvas, it is only kept."""

    name: str
    method: Callable[..., Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        kept = _under_way.get()
        if kept is None:
            return self.method(*args, **options)
        return kept.ask_backend(self.name, self.method, *args, **options)


class Aside:
    """The task of a part: what its ``apply_async`` applies beside the part is not kept."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def apply_async(self, *args: Any, **options: Any) -> Any:
        token = _under_way.set(None)
        try:
            return self._task.apply_async(*args, **options)
        finally:
            _under_way.reset(token)


def _route_of(options: Mapping[str, Any]) -> dict[str, Any]:
    queue, exchange = options.get("queue"), options.get("exchange")
    kinds = {getattr(used, "type", None) for used in (exchange, getattr(queue, "exchange", None))}
    # Each worker that listens would launch the canvas.
    if "fanout" in {*kinds, options.get("exchange_type")}:
        return {}
    return {name: options[name] for name in _ROUTE if options.get(name) is not None}


def _plain(value: Any) -> Any:
    """*value* with dicts in place of signatures.

    A serializer may misread a signature: a group has a signature's keys, but the length of its
    tasks.
    """
    if isinstance(value, Signature) or type(value) is dict:
        return {key: _plain(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(part) for part in value)
    return value


def packed(value: Any, serializer: str | None) -> list[str]:
    """Return a value as a step has it: content type, encoding, and the bytes as base64."""
    content_type, encoding, data = serialize(value, serializer=serializer)
    raw = data.encode() if isinstance(data, str) else data
    return [content_type, encoding, b64encode(raw).decode()]

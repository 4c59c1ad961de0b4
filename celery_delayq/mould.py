"""The message of one task for many arguments: made once by Celery, and from then on filled in.

Most of what a call of ``apply_async`` does comes out the same for every call of one task:
options, routing, headers, the record's template. A bulk lets Celery make its first message. Where
nothing on the way looks at a single task's arguments or id, the others are that message with their
own id, arguments and body in the places where the record's template is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from celery.app.routes import MapRoute
from celery.canvas import Signature
from celery.signals import after_task_publish, before_task_publish, task_sent
from celery.utils.saferepr import saferepr

from .message import DIFFERING, LARGE, Captured, dumps
from .record import Draft, Template

# What of the options of a call belongs to its arguments, or looks at them.
_OF_ARGUMENTS = {"argsrepr", "kwargsrepr", "router"}
_SIGNALS = (before_task_publish, after_task_publish, task_sent)
# Where Celery defines what a backend does at a call; neither cares which of many calls it is.
_BACKENDS = ("celery.backends.base", "celery.backends.redis", "celery.backends.rpc")


@dataclass(frozen=True)
class Mould:
    """What the messages of a task have in common, and how to make of arguments what differs."""

    destination: bytes
    template: Template
    fixed: tuple[str, str, str]
    embed: Any
    encode: Callable[[Any], str]
    describe: tuple[Callable[[Any], str], Callable[[Any], str]]

    @classmethod
    def of(
        cls, app: Any, signature: Signature, message: Captured, destination: bytes
    ) -> Mould | None:
        """The mould of a message; ``None`` where it would not give that message, byte for byte."""
        lines, differing = message.shareable()
        if not lines:
            return None
        root, parent, expires, *_ = differing
        # One item may be the root of the workflow that all are part of; the others are not theirs.
        has_root = app.current_worker_task is not None or signature.options.get("root_id")
        if has_root and not root:
            return None
        args, kwargs, embed = message.payload
        mould = cls(
            destination,
            Template.of(lines),
            (root, parent, expires),
            embed,
            message.encode,
            _describers(app),
        )
        same = mould.draft(args, kwargs) == message.draft(destination, share=True)
        return mould if same else None

    def draft(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Draft | None:
        """The record for these arguments; ``None`` where it should not share a template.

        Raises:
            kombu.exceptions.EncodeError: the serializer cannot take the arguments.
        """
        body = self.encode((args, kwargs, self.embed))
        if len(body) > LARGE:
            return None
        of_args, of_kwargs = self.describe
        texts = (of_args(args), of_kwargs(kwargs) if kwargs else "{}", body)
        return self.template.draft(self.destination, (*self.fixed, *map(dumps, texts)))


def is_plain(app: Any, signature: Signature, task: Any) -> bool:
    """Whether nothing between the call and the message looks at one task's arguments or id.

    Args:
        app: The app that sends.
        signature: What is called.
        task: Its task, or ``None`` if only the name is known.
    """
    return (
        _is_plain_signature(signature)
        and _is_plain_app(app)
        and (task is None or _is_plain_task(task))
        and not any(signal.receivers for signal in _SIGNALS)
    )


def _is_plain_signature(signature: Signature) -> bool:
    options = signature.options
    return (
        type(signature) is Signature
        and _is_celerys(signature.apply_async, "celery.canvas")
        and not options.keys() & _OF_ARGUMENTS
        and not (options.get("headers") or {}).keys() & DIFFERING
    )


def _is_plain_app(app: Any) -> bool:
    router = app.amqp.router
    return (
        _is_celerys(app.send_task, "celery.app.base")
        and _is_celerys(app.backend.on_task_call, *_BACKENDS)
        and _is_celerys(router.route, "celery.app.routes")
        # A route may be any callable; those made of a mapping look at the task's name only.
        and all(type(route) is MapRoute for route in router.routes)
    )


def _is_plain_task(task: Any) -> bool:
    return (
        _is_celerys(task.apply_async, "celery.app.task")
        and _is_celerys(task.shadow_name, "celery.app.task")
        and getattr(task, "_dump_pydantic_arguments", None) is None
    )


def _is_celerys(method: Any, *modules: str) -> bool:
    """Whether one of Celery's *modules* defines a method: not overridden, patched or wrapped."""
    if not isinstance(method, MethodType) or type(method.__func__) is not FunctionType:
        return False
    return method.__func__.__globals__["__name__"] in modules


def _describers(app: Any) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    # Celery 5.7 has a setting for the depth; before, it was saferepr's default.
    levels = app.conf.get("task_repr_maxlevels")
    deep = {} if levels is None else {"maxlevels": levels}
    amqp = app.amqp
    return (
        partial(saferepr, maxlen=amqp.argsrepr_maxsize, **deep),
        partial(saferepr, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )

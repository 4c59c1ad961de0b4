"""A bulk's message: made once by Celery, and from then on filled in.

Most of what a call of ``apply_async`` does comes out the same for every item of a bulk: options,
routing, headers, the record's template. So Celery makes the first message. Where nothing on the way
looks at a single task's arguments or id, the others are that message with their own id, arguments
and body in the places where the record's template is open. Only a bulk does this: of single calls
Celery makes every message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from celery.app.defaults import DEFAULTS
from celery.app.routes import MapRoute
from celery.canvas import Signature
from celery.signals import after_task_publish, before_task_publish, task_sent
from celery.utils.saferepr import saferepr

from ..clock import When
from ..message.outgoing import DIFFERING, LARGE, Captured, has_plain_id, quoted
from ..store import New
from ..store.record import Draft, Template
from .request import Ready

# What of the options of a call belongs to its arguments, or looks at them.
_OF_ARGUMENTS = {"argsrepr", "kwargsrepr", "router"}
_SIGNALS = (before_task_publish, after_task_publish, task_sent)
_SIMPLE = {bool, int, float, type(None)}
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
    policy: dict[str, Any]

    @classmethod
    def of(
        cls,
        app: Any,
        message: Captured,
        destination: bytes,
        policy: dict[str, Any],
        *,
        rooted: bool = False,
    ) -> Mould | None:
        """The mould of a message; ``None`` where it would not give that message, byte for byte.

        *rooted*: the message is part of a workflow, whose root stays the same.
        """
        lines, differing = message.shareable()
        if not lines:
            return None
        root, parent, expires, *_ = differing
        # One may be the root of the workflow that all are part of; the others are not theirs.
        if rooted and not root:
            return None
        args, kwargs, embed = message.payload
        mould = cls(
            destination,
            Template.of(lines),
            (root, parent, expires),
            embed,
            message.encode,
            _describers(app),
            policy,
        )
        same = mould.draft(args, kwargs) == message.draft(destination, share=True)
        return mould if same else None

    def new(self, task: Any, args: Any, kwargs: Any, when: When, task_id: str) -> New | None:
        """An entry for these arguments; ``None`` where Celery has to make it.

        Raises:
            TypeError: the arguments do not fit *task* (``None`` if only its name is known).
            kombu.exceptions.EncodeError: as :meth:`draft`.
        """
        if not has_plain_id(task_id):
            return None
        # A task that is a class without a function has none.
        fits = getattr(task, "__header__", None)
        if fits is not None and task.typing:
            fits(*args, **kwargs)
        draft = self.draft(args, kwargs)
        return New(task_id, when, draft) if draft else None

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
        return self.template.draft(self.destination, (*self.fixed, *map(quoted, texts)))


def mould_of(app: Any, ready: Ready, *, rooted: bool = False) -> Mould | None:
    """The mould of what the sender made ready, where there is one."""
    return Mould.of(app, ready.message, ready.destination, ready.policy, rooted=rooted)


def is_plain(app: Any, task: Any, signature: Signature | None = None) -> bool:
    """Whether nothing between the call and the message looks at one task's arguments or id.

    Args:
        app: The app that sends.
        task: The task, or ``None`` if only its name is known.
        signature: What is called, if it is not the task itself.
    """
    return (
        (signature is None or _is_plain_signature(signature))
        and (task is None or _is_plain_task(task))
        and _is_plain_app(app)
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
        app.amqp.is_celerys_own
        and _is_celerys(app.send_task, "celery.app.base")
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
    # Celery 5.7 has a setting for the depth; before, it was saferepr's default whatever one set.
    depth = "task_repr_maxlevels"
    deep = {"maxlevels": app.conf[depth]} if depth in DEFAULTS else {}
    amqp = app.amqp
    return (
        partial(_described, maxlen=amqp.argsrepr_maxsize, **deep),
        partial(_described, maxlen=amqp.kwargsrepr_maxsize, **deep),
    )


def _described(values: Any, maxlen: int, **deep: int) -> str:
    """What saferepr says of arguments, a fifth of a bulk's time; repr where it says the same."""
    if type(values) is tuple and all(map(_is_simple, values)):
        text = repr(values)
        if len(text) < maxlen // 2:
            return text
    described: str = saferepr(values, maxlen=maxlen, **deep)
    return described


def _is_simple(value: Any) -> bool:
    if type(value) is not str:
        return type(value) in _SIMPLE
    # saferepr leaves a backslash alone, and knows one kind of quotation mark.
    return value.isprintable() and "'" not in value and "\\" not in value

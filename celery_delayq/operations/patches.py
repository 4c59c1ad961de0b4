"""Finds out whether the functions between a call and its message are the libraries' own.

A tracer patches a function that every message passes, and adds data of that one message. A
subclass, a router or a signal's handler may do the same. Then each message of a bulk must pass
there, and none may be made of another one (:mod:`.bulk`).

A missing function counts as patched: if a library renames it, bulks become slower, but no message
becomes wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import celery.app.amqp
import celery.app.routes
import kombu.messaging
from celery.app.amqp import AMQP
from celery.canvas import Signature
from celery.signals import after_task_publish, before_task_publish, task_sent
from kombu import Producer
from kombu.transport import virtual

from ..core.message.outgoing import DIFFERING


class _Function(NamedTuple):
    """A function that each message passes, and the modules (or prefixes) that may define it."""

    owner: Any
    name: str
    modules: tuple[str, ...]

    @property
    def is_untouched(self) -> bool:
        """Whether one of the modules defines it: not overridden, wrapped, replaced or rewritten."""
        found = getattr(self.owner, self.name, None)
        function = found.__func__ if type(found) is MethodType else found
        # A wrapper has another type, or a mark, or the globals of another module.
        if type(function) is not FunctionType or function.__dict__:
            return False
        module = function.__globals__["__name__"]
        # If its code was replaced, the code is from another file.
        return (
            module.startswith(self.modules)
            and module.replace(".", os.sep) in function.__code__.co_filename
        )

    def __str__(self) -> str:
        owner = self.owner if isinstance(self.owner, (type, ModuleType)) else type(self.owner)
        return f"{owner.__name__}.{self.name}"


_SIGNALS = (before_task_publish, after_task_publish, task_sent)

# Options of a call that describe its arguments, or look at them.
_OF_ARGUMENTS = {"argsrepr", "kwargsrepr", "router"}

_MapRoute = getattr(celery.app.routes, "MapRoute", None)
_Router = getattr(celery.app.routes, "Router", None)

_PACKAGE = __name__.partition(".")[0] + "."

# Functions that are the same for every app.
_EVERYWHERE = (
    *(
        _Function(AMQP, name, ("celery.app.amqp",))
        for name in ("as_task_v2", "_create_task_sender")
    ),
    _Function(celery.app.amqp, "saferepr", ("celery.utils.saferepr",)),
    _Function(_MapRoute, "__call__", ("celery.app.routes",)),
    *(_Function(signal, "send", ("celery.utils.dispatch.signal",)) for signal in _SIGNALS),
    *(
        _Function(Producer, name, ("kombu.messaging",))
        for name in ("publish", "_publish", "_prepare", "_delivery_details")
    ),
    _Function(kombu.messaging, "dumps", ("kombu.serialization",)),
    _Function(kombu.messaging, "compress", ("kombu.compression",)),
    *(
        _Function(virtual.Channel, name, ("kombu.transport.virtual.base",))
        for name in ("prepare_message", "encode_body", "_inplace_augment_message")
    ),
)

_ROUTER = ("route", "expand_destination", "lookup_route", "query_router")

# The modules of Celery's backends; their hook does the same for each call of a bulk.
_BACKENDS = ("celery.backends.base", "celery.backends.redis", "celery.backends.rpc")


def places(app: Any, task: Any, signature: Signature) -> Iterator[_Function]:
    """Yield each function that a message of *signature* passes."""
    for name in ("apply_async", "_merge"):
        yield _Function(signature, name, ("celery.canvas",))
    if task is not None:
        for name in ("apply_async", "shadow_name", "_get_exec_options"):
            yield _Function(task, name, ("celery.app.task",))
    yield _Function(app, "send_task", ("celery.app.base",))
    for name in ("create_task_message", "as_task_v2", "_create_task_sender"):
        yield _Function(app.amqp, name, (_PACKAGE,))
    yield _Function(app.amqp.send_task_message, "_send", ("celery.app.amqp",))
    for name in _ROUTER:
        yield _Function(app.amqp.router, name, ("celery.app.routes", _PACKAGE))
    yield _Function(app.backend, "on_task_call", _BACKENDS)
    yield from _EVERYWHERE


def touched(app: Any, task: Any, signature: Signature) -> str | None:
    """Return what may see or change single messages of *signature*; ``None`` if nothing does.

    Args:
        app: The app that sends.
        task: The task, or ``None`` if only its name is known.
        signature: The call's signature.
    """
    name = signature.get("task")  # the sender of the signals
    reasons: Iterable[str | bool] = (
        type(signature) is not Signature and f"a {type(signature).__name__}",
        _of_one_call(signature.options),
        getattr(task, "_dump_pydantic_arguments", None) is not None and "pydantic arguments",
        not app.amqp.is_celerys_own and f"app.amqp, a {app.amqp_cls}",
        not type(app.amqp.send_task_message).__module__.startswith(_PACKAGE)
        and "app.amqp.send_task_message",
        type(app.amqp.router) is not _Router and f"app.amqp.router, a {type(app.amqp.router)}",
        # A route may be any callable; those made of a mapping look at the task's name only.
        any(type(route) is not _MapRoute for route in app.amqp.router.routes) and "a router",
        next(
            (f"a handler of {signal.name}" for signal in _SIGNALS if signal.has_listeners(name)),
            False,
        ),
    )
    for reason in reasons:
        if reason:
            return str(reason)
    return next(
        (str(place) for place in places(app, task, signature) if not place.is_untouched), None
    )


def _of_one_call(options: dict[str, Any]) -> str:
    headers = (options.get("headers") or {}).keys() & DIFFERING
    return ", ".join(sorted({*options.keys() & _OF_ARGUMENTS, *headers}))

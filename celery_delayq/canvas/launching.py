"""Schedules a canvas as one entry, whose task applies it at its due time.

A chord's counter in the result backend expires a day after the chord was applied, so a chord that
is applied now and due later would never fire. Instead its ids are frozen now, which makes the
caller's result work. The signature and the ids of its parts travel in the arguments of a task of
this package: new results made from the signature would register with the backend again, and a
caller that waits for the first ones with ``rpc://`` would wait forever.

The entry has the id of the canvas's result, so ``result.id`` cancels and reschedules it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from celery import signature
from celery.canvas import Signature, chunks
from celery.result import GroupResult, ResultBase
from kombu.serialization import dumps, loads

from ..clock import When
from ..errors import InvalidOption
from ..integration.apply_async import result_of, schedule_call
from ..integration.results import ScheduledResult
from ..message.headers import LAUNCH, ONCE_HEADER
from ..services import Services
from ..store import id_text

if TYPE_CHECKING:
    from celery import Celery

_WAYS = ("connection", "producer", "publisher")
_NO_WAY = "none: a worker of the app sends the parts of a canvas when it is due"
_MAPS = {"celery.map": "map", "celery.starmap": "starmap"}  # their signatures carry no type


def configured(app: Celery) -> None:
    """Register the launching task with *app*'s other tasks."""
    if app.finalized:
        _register(app)
    else:
        app.on_after_finalize.connect(lambda **_: _register(app), weak=False)


def _register(app: Celery) -> None:
    @app.task(name=LAUNCH, shared=False, ignore_result=True)
    def launch(described: dict[str, Any], _ids: list[str] | None = None) -> None:
        signature(described, app=app).apply_async(add_to_parent=False)


def schedule(
    services: Services, sig: Signature, when: When, of_entry: Mapping[str, Any], **options: Any
) -> ScheduledResult[Any]:
    """Schedule a canvas as one entry, and return the result of the canvas.

    Args:
        services: The services of the app that sends it.
        sig: The canvas.
        when: The due time.
        of_entry: See :func:`freeze`.
        **options: See :mod:`celery_delayq.scheduling.options`.
    """
    _refuse_connections(sig)
    result, launch = freeze(sig, services.app, of_entry)
    # With the ids of its parts: a caller may know the ids of a signature that was frozen before.
    kept, receipt = schedule_call(
        services, launch.apply_async, when, given_out=has_ids(sig), **options
    )
    return result_of(services, when, kept if receipt and receipt.existed else result, receipt)


def freeze(
    sig: Signature, app: Celery, of_entry: Mapping[str, Any]
) -> tuple[ResultBase, Signature]:
    """Return *sig*'s result, and a signature, with the result's id, of the task that applies it.

    *of_entry* has the options that are for the entry, and not for the canvas.
    """
    fresh = _copy(sig.group() if isinstance(sig, chunks) else sig, app)
    for name in of_entry:
        fresh.options.pop(name, None)
    given = id_text(sig.options.get("task_id"))
    if given:
        fresh.set(task_id=given)
    result = _bound_to(app, fresh.freeze(given))
    launch = app.signature(LAUNCH, args=(_plain(fresh), ids_of(result)))
    # It carries the arguments of all parts, and argsrepr may hide some of them from logs and lists.
    launch.set(task_id=result.id, argsrepr=shown(fresh), kwargsrepr="{}")
    return result, launch.set(**_routing(sig), **of_entry)


def shown(sig: Mapping[str, Any]) -> str:
    """The kind of a signature and its first task: ``chain(shop.add, ...)``."""
    name = str(sig.get("task"))
    kind = sig.get("subtask_type") or _MAPS.get(name)
    if not kind:
        return name
    kwargs = sig["kwargs"]
    inside = kwargs.get("tasks") or kwargs.get("header") or kwargs.get("task")
    if kind == "chord" and isinstance(inside, Mapping):
        inside = inside["kwargs"]["tasks"]  # the group that it begins with
    parts = [inside] if isinstance(inside, Mapping) else list(inside or ())
    more = ", ..." if len(parts) > 1 or kind == "chord" else ""
    return f"{kind}({shown(parts[0]) if parts else ''}{more})"


def _copy(sig: Signature, app: Celery) -> Signature:
    # Freezing writes ids into all parts, and the caller may schedule its own again, with new ids.
    content_type, encoding, data = dumps(_plain(sig), serializer=app.conf.task_serializer)
    return signature(loads(data, content_type, encoding, accept=[content_type]), app=app)


def _plain(value: Any) -> Any:
    """*value* with dicts in place of signatures.

    A serializer may misread a signature: a group has a signature's keys, but the length of its
    tasks.
    """
    if isinstance(value, Signature) or type(value) is dict:
        return {key: _plain(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


def _bound_to(app: Celery, result: Any) -> Any:
    """*result*, its parents and members, bound to this app's backend.

    Freezing binds some of them to the current app, which may be another one.
    """
    one = result
    while one is not None:
        one.app = app
        if isinstance(one, GroupResult):
            for member in one.results:
                _bound_to(app, member)
        else:
            one.backend = app.backend
        one = one.parent
    return result


def _routing(sig: Signature) -> dict[str, Any]:
    # The task that applies the canvas goes to the canvas's own queue, so that a worker of this app
    # picks it up.
    options = {name: sig.options[name] for name in ("queue", "priority") if sig.options.get(name)}
    # A duplicate of it would apply the whole canvas again.
    once = sig.options.get(ONCE_HEADER)
    return options if once is None else {**options, ONCE_HEADER: once}


def has_ids(sig: Any) -> bool:
    """Whether a signature, or a part of it, has a task id already."""
    return any(options.get("task_id") for options in _options_of(sig))


def _options_of(sig: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the options of a signature, and of each of its parts."""
    if isinstance(sig, (list, tuple)):
        parts = list(sig)
    elif isinstance(sig, dict):
        yield sig.get("options") or {}
        inside = sig["kwargs"] if sig.get("subtask_type") else {}
        parts = [inside.get(name) for name in ("tasks", "header", "body")]
    else:
        return
    for part in parts:
        yield from _options_of(part)


def _refuse_connections(sig: Any) -> None:
    """Refuse a canvas that brings its own way to a broker.

    Raises:
        InvalidOption: it, or a part of it, has a connection or a producer.
    """
    for options in _options_of(sig):
        for name in _WAYS:
            if options.get(name) is not None:
                raise InvalidOption(name, options[name], _NO_WAY)


def task_ids(body: Any) -> list[str]:
    """Return the ids that a caller may be waiting for, from a launching task's arguments."""
    (_, ids), *_ = body
    return [one for one in ids if isinstance(one, str)]


def ids_of(result: ResultBase) -> list[str]:
    """Return the ids of the tasks that a caller may be waiting for."""
    if isinstance(result, GroupResult):
        return [task_id for child in result.results for task_id in ids_of(child)]
    return [result.id]

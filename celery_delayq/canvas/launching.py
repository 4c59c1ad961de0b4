"""A canvas is scheduled as one entry, whose task applies it when it is due.

A chord's counter in the result backend expires a day after the chord was applied, so a chord that
is applied now and due later never fires. Instead its ids are frozen now, which makes the caller's
result work, and its signature travels in the arguments of a task of this package. So do the ids of
its parts: making results of the signature once more would register them with the backend anew, and
who waits for the first ones with ``rpc://`` would wait for ever.

The entry has the id of the canvas's result, so that ``result.id`` cancels and reschedules it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery import signature
from celery.canvas import Signature, chunks
from celery.result import GroupResult, ResultBase
from kombu.serialization import dumps, loads

from ..clock import When
from ..integration.apply_async import result_of, schedule_call
from ..integration.results import ScheduledResult
from ..message.headers import LAUNCH, ONCE_HEADER
from ..services import Services

if TYPE_CHECKING:
    from celery import Celery

_MAPS = {"celery.map": "map", "celery.starmap": "starmap"}  # whose signatures do not say it


def configured(app: Celery) -> None:
    """Make the launching task known to *app*, with its other tasks."""
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
        services: Of the app that sends it.
        sig: The canvas.
        when: The due time.
        of_entry: See :func:`freeze`.
        **options: See :mod:`celery_delayq.scheduling.options`.
    """
    result, launch = freeze(sig, services.app, of_entry)
    # Its own and those of its parts: a signature that was frozen has ids that somebody knows.
    kept, receipt = schedule_call(
        services, launch.apply_async, when, given_out=has_ids(sig), **options
    )
    return result_of(services, when, kept if receipt and receipt.existed else result, receipt)


def freeze(
    sig: Signature, app: Celery, of_entry: Mapping[str, Any]
) -> tuple[ResultBase, Signature]:
    """The result of *sig*, and a signature of the task that applies it, with the result's id.

    *of_entry*: what of its options is not for the canvas when it is applied, but for the entry.
    """
    fresh = _copy(sig.group() if isinstance(sig, chunks) else sig, app)
    for name in of_entry:
        fresh.options.pop(name, None)
    result = _bound_to(app, fresh.freeze(sig.options.get("task_id")))
    launch = app.signature(LAUNCH, args=(_plain(fresh), ids_of(result)))
    # Its arguments are those of all parts, of which some may be hidden from logs and lists.
    launch.set(task_id=result.id, argsrepr=shown(fresh), kwargsrepr="{}")
    return result, launch.set(**_routing(sig), **of_entry)


def shown(sig: Mapping[str, Any]) -> str:
    """What a signature is, and the first task in it: ``chain(shop.add, ...)``."""
    name = str(sig.get("task"))
    kind = sig.get("subtask_type") or _MAPS.get(name)
    if not kind:
        return name
    kwargs = sig["kwargs"]
    inside = kwargs.get("tasks") or kwargs.get("header") or kwargs.get("task")
    if kind == "chord" and isinstance(inside, Mapping):
        inside = inside["kwargs"]["tasks"]  # of the group that it begins with
    parts = [inside] if isinstance(inside, Mapping) else list(inside or ())
    more = ", ..." if len(parts) > 1 or kind == "chord" else ""
    return f"{kind}({shown(parts[0]) if parts else ''}{more})"


def _copy(sig: Signature, app: Celery) -> Signature:
    # Freezing writes ids into all parts; the caller's may be scheduled again, under new ones.
    content_type, encoding, data = dumps(_plain(sig), serializer=app.conf.task_serializer)
    return signature(loads(data, content_type, encoding, accept=[content_type]), app=app)


def _plain(value: Any) -> Any:
    """*value* with dicts in the place of signatures.

    A serializer may take a signature for what it is not: a group has as many keys as any other one,
    but the length of its tasks.
    """
    if isinstance(value, Signature) or type(value) is dict:
        return {key: _plain(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


def _bound_to(app: Celery, result: Any) -> Any:
    """*result*, its parents and members, asking this app's backend.

    Freezing makes some of them for the current app, which may be another one.
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
    # The task that applies it goes where the canvas itself was told to go, so that a worker
    # which knows the app picks it up.
    options = {name: sig.options[name] for name in ("queue", "priority") if sig.options.get(name)}
    # A second copy of it would apply the whole canvas once more.
    once = sig.options.get(ONCE_HEADER)
    return options if once is None else {**options, ONCE_HEADER: once}


def has_ids(sig: Any) -> bool:
    """Whether a signature, or a part of it, was given a task id already."""
    if not isinstance(sig, dict):
        return isinstance(sig, (list, tuple)) and any(map(has_ids, sig))
    if (sig.get("options") or {}).get("task_id"):
        return True
    parts = sig["kwargs"] if sig.get("subtask_type") else {}
    return any(has_ids(parts.get(name)) for name in ("tasks", "header", "body"))


def task_ids(body: Any) -> list[str]:
    """Ids of the tasks in a launching task's arguments that a caller may be waiting for."""
    (_, ids), *_ = body
    return [one for one in ids if isinstance(one, str)]


def ids_of(result: ResultBase) -> list[str]:
    """Ids of the tasks that a caller may be waiting for."""
    if isinstance(result, GroupResult):
        return [task_id for child in result.results for task_id in ids_of(child)]
    return [result.id]

"""Schedules a canvas as one entry: Celery applies it, and a task of this package has the messages.

The task goes to the queue of the part that runs first, so a worker that consumes only that queue
launches it. Nothing is sent, and the result backend notes nothing of a chord, before it is due: a
chord's counter expires a day after it was set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.canvas import Signature
from celery.result import GroupResult, ResultBase

from ...core.clock import When
from ...core.errors import NotScheduled
from ...core.integration.apply_async import result_of, schedule_call
from ...core.integration.results import ScheduledResult
from ...core.message.headers import LAUNCH, ONCE_HEADER
from ...core.scheduling.intercept import Request
from ...core.services import Services
from ...core.store import id_text
from .keeping import Kept
from .parts import has_ids, marked, refuse_connections, shown


def schedule(
    services: Services,
    sig: Signature,
    when: When,
    in_signature: Mapping[str, Any],
    own: Mapping[str, Any],
) -> ScheduledResult[Any]:
    """Schedule a canvas as one entry, and return the result of the canvas.

    Args:
        services: The services of the app that sends it.
        sig: The canvas.
        when: The due time.
        in_signature: The canvas's options that are for the entry, and not for the canvas.
        own: Options of the entry, which go before those.

    Returns:
        Its result; of an empty canvas, what ``apply_async`` returns: nothing is scheduled.
    """
    refuse_connections(sig)
    # A caller may know the ids of a signature that was frozen before.
    frozen = has_ids(sig)
    request = Request(when, given_out=frozen, frozen=frozen)
    app, kept = services.app, Kept(services, request.expected_due())
    canvas = marked(sig, kept, app)
    if canvas is None:
        empty: Any = sig.clone().apply_async()
        return empty and result_of(services, request, empty, None)
    for name in in_signature:
        canvas.options.pop(name, None)
    if canvas.options.get("task_id"):
        canvas.set(task_id=id_text(canvas.options["task_id"]))
    with _trail(app) as trail:
        result = _applied(canvas, kept, when)
        launch = app.signature(LAUNCH, args=(kept.steps, ids_of(result)))
        # It carries the arguments of all parts, and argsrepr may hide some of them from logs.
        launch.set(task_id=result.id, argsrepr=shown(canvas), kwargsrepr="{}", compression="zlib")
        launch.set(add_to_parent=False, **kept.route, **_once(sig), **in_signature)
        made, receipt = schedule_call(services, request, launch.apply_async, **own)
        if receipt and receipt.existed:
            trail[:] = [made]
            result = made
    return result_of(services, request, _bound_to(app, result), receipt)


def _applied(canvas: Signature, kept: Kept, when: When) -> Any:
    """Let Celery apply a canvas whose messages are kept, and return its result.

    Raises:
        NotScheduled: a part was sent at once, because its task's ``apply_async`` drops options.
    """
    request = Request(when)
    result = request.sent_by(kept.of, canvas.apply_async)
    for task_id in request.answer.sent and _all_ids(result).intersection(request.answer.sent):
        raise NotScheduled(task_id)
    return result


@contextmanager
def _trail(app: Celery) -> Iterator[list[Any]]:
    """Let the running task's result list what a call adds to its children, unless the call fails.

    A task that never runs must not be among them: a process that waits for it would wait forever.
    """
    running = app.current_worker_task
    children = running.request.children if running is not None else []
    before, added = len(children), list[Any]()
    try:
        yield added
    except BaseException:
        del children[before:]
        raise
    if added:
        children[before:] = added


def _once(sig: Signature) -> dict[str, Any]:
    # A duplicate of the launch would launch the whole canvas again.
    once = sig.options.get(ONCE_HEADER)
    return {} if once is None else {ONCE_HEADER: once}


def _bound_to(app: Celery, result: Any) -> Any:
    """*result*, its parents and members, bound to this app's backend.

    Celery binds some of them to the current app, which may be another one.
    """
    part = result
    while part is not None:
        part.app = app
        if isinstance(part, GroupResult):
            for member in part.results:
                _bound_to(app, member)
        else:
            part.backend = app.backend
        part = part.parent
    return result


def task_ids(body: Any) -> list[str]:
    """Return the ids that a caller may be waiting for, from a launching task's arguments."""
    (_, ids), *_ = body
    return [task_id for task_id in ids if isinstance(task_id, str)]


def parts_of(body: Any) -> list[tuple[str, bytes | None]]:
    """Return the same ids, each with its message; ``None`` for a part that a worker sends later."""
    (steps, _), *_ = body
    messages = {step.get("id"): step["message"].encode() for step in steps if "message" in step}
    return [(task_id, messages.get(task_id)) for task_id in task_ids(body)]


def ids_of(result: ResultBase) -> list[str]:
    """Return the ids of the tasks that a caller may be waiting for."""
    if isinstance(result, GroupResult):
        return [task_id for child in result.results for task_id in ids_of(child)]
    return [result.id]


def _all_ids(result: Any) -> set[str]:
    ids: set[str] = set()
    while result is not None:
        members = result.results if isinstance(result, GroupResult) else ()
        ids.update({result.id}, *map(_all_ids, members))
        result = result.parent
    return ids

"""Schedules a canvas as one entry: Celery applies it, and a task of this package has the messages.

    marked      a copy whose first parts, which Celery sends at once, are known by an option:
                a chain's first step, a group's members, a chord's header or else its body
    schedule    the entry of its launch

The task goes to the queue of the part that runs first, so a worker that consumes only that queue
launches it. Nothing is sent, and the result backend notes nothing of a chord, before it is due: a
chord's counter expires a day after it was set.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.canvas import Signature, chunks, group, maybe_signature
from celery.result import GroupResult, ResultBase
from kombu.serialization import loads as loaded
from kombu.serialization import prepare_accept_content
from kombu.utils.json import loads

from ...core.clock import When
from ...core.errors import InvalidOption, NotScheduled
from ...core.integration.apply_async import result_of, schedule_call
from ...core.integration.results import ScheduledResult
from ...core.message.body import body_of, encode_into, sent_by, serializer_of
from ...core.message.body import renamed as renamed_in
from ...core.message.headers import LAUNCH, ONCE_HEADER
from ...core.message.outgoing import dumps
from ...core.scheduling.intercept import Request
from ...core.scheduling.options import PART
from ...core.services import Services
from ...core.store import id_text
from .keeping import Aside, Kept, packed

_WAYS = ("connection", "producer", "publisher")
_NO_WAY = "none: a worker of the app sends the parts of a canvas when it is due"
_MAPS = {"celery.map": "map", "celery.starmap": "starmap"}  # their signatures carry no type


def marked(sig: Any, part: object, app: Celery) -> Signature | None:
    """Return a copy of a canvas whose first parts have *part* among their options.

    The caller's signatures stay as they are. ``None``: nothing in it would run.

    Raises:
        InvalidOption: a first part is of a task that only another app has.
    """
    if not isinstance(sig, Signature):
        sig = maybe_signature(sig)
    if isinstance(sig, chunks):
        sig = sig.group()  # as Celery applies them
    copy = _plain_map(sig) if sig["task"] in _MAPS else sig.clone()
    kind = copy.get("subtask_type")
    # Only this app keeps messages.
    if kind:
        copy._app, copy._type = app, None
    else:
        copy = sent_by(app, copy)
    if kind == "group":
        return copy if _mark_all(copy, part, app) else None
    if kind == "chain":
        return copy if _mark_first(copy.tasks, part, app) else None
    if kind == "chord":
        return copy if _mark_chord(copy, part, app) else None
    copy.options[PART] = part
    task = copy._type or app.tasks.get(copy["task"])
    copy._type = task and Aside(task)
    return copy


def _plain_map(sig: Signature) -> Signature:
    # Up to Celery 5.6, maps drop their own options when they are applied.
    task = sig.kwargs["task"]
    made: Signature = sig.app.signature(sig["task"], immutable=True)
    made.kwargs = {"task": task, "it": list(sig.kwargs["it"])}
    made.options = {"route_name": task["task"], **sig.options}
    return made


def _mark_all(copy: Any, part: object, app: Celery) -> bool:
    tasks = list(copy.tasks)
    found = [marked(task, part, app) for task in tasks]
    copy.tasks = [new or old for new, old in zip(found, tasks, strict=True)]
    return any(each is not None for each in found)


def _mark_first(steps: list[Any], part: object, app: Celery) -> bool:
    for place, step in enumerate(steps):
        found = marked(step, part, app)
        if found is not None:
            steps[place] = found
            return True
    return False


def _mark_chord(copy: Any, part: object, app: Celery) -> bool:
    header = copy.tasks
    if isinstance(header, group):
        copy.tasks = header = header.clone()
    if _mark_all(header if isinstance(header, group) else copy, part, app):
        return True
    body = marked(copy.body, part, app) if copy.body is not None else None
    copy.body = body or copy.body
    return body is not None


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


def _has_ids(sig: Any) -> bool:
    """Whether a signature, or a part of it, has a task id already."""
    return any(options.get("task_id") for options in _options_of(sig))


def _refuse_connections(sig: Any) -> None:
    """Refuse a canvas that brings its own way to a broker.

    Raises:
        InvalidOption: it, or a part of it, has a connection or a producer.
    """
    for options in _options_of(sig):
        for name in _WAYS:
            if options.get(name) is not None:
                raise InvalidOption(name, options[name], _NO_WAY)


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
    _refuse_connections(sig)
    # A caller may know the ids of a signature that was frozen before.
    frozen = _has_ids(sig)
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
        launch = app.signature(LAUNCH, args=(kept.steps, _ids_of(result)))
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


def renamed(args: Any, names: Mapping[str, str], accept: Any) -> bool:
    """Give the tasks of a canvas's parts new names, in a launch's arguments.

    Args:
        args: The arguments, which are changed.
        names: New names by old ones.
        accept: The content types that may be decoded.

    Returns:
        Whether a part has another name now.

    Raises:
        ValueError: a part may not or cannot be decoded.
    """
    found = [
        _message_renamed(step, names, accept)
        if "message" in step
        else _body_renamed(step, names, accept)
        for step in args[0]
    ]
    return any(found)


def _message_renamed(step: dict[str, Any], names: Mapping[str, str], accept: Any) -> bool:
    message = loads(step["message"])
    body, own = body_of(message, accept), names.get(message["headers"]["task"])
    if body is None:
        raise ValueError(f"the arguments of its part {step.get('id')} cannot be decoded")
    has_links = renamed_in(body, names)
    if has_links:
        encode_into(message, body)
    if own is not None:
        message["headers"]["task"] = own
        if step.get("sent"):
            step["sent"]["name"] = own
    if has_links or own is not None:
        step["message"] = dumps(message)
    return has_links or own is not None


def _body_renamed(step: dict[str, Any], names: Mapping[str, str], accept: Any) -> bool:
    """Rename the body of a chord, which the result backend is to get."""
    if not step.get("body"):
        return False
    content_type, encoding, data = step["body"]
    accepted = prepare_accept_content(accept)
    body = loaded(b64decode(data), content_type, encoding, accept=accepted)
    is_changed = renamed_in(body, names)
    if is_changed:
        step["body"] = packed(body, serializer_of(content_type))
    return is_changed


def messages_of(body: Any) -> list[bytes]:
    """Return the messages that a launching task sends, from its arguments."""
    (steps, _), *_ = body
    return [step["message"].encode() for step in steps if "message" in step]


def _ids_of(result: ResultBase) -> list[str]:
    """Return the ids of the tasks that a caller may be waiting for."""
    if isinstance(result, GroupResult):
        return [task_id for child in result.results for task_id in _ids_of(child)]
    return [result.id]


def _all_ids(result: Any) -> set[str]:
    ids: set[str] = set()
    while result is not None:
        members = result.results if isinstance(result, GroupResult) else ()
        ids.update({result.id}, *map(_all_ids, members))
        result = result.parent
    return ids

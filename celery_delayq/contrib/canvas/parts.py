"""Finds the parts of a canvas that run first: Celery sends those at once, and workers the others.

chain   those of its first step
group   those of each member
chord   those of its header; without one, those of its body
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from celery import Celery
from celery.canvas import Signature, chunks, group, maybe_signature

from ...core.errors import InvalidOption
from ...core.integration.apply_async import sent_by
from ...core.scheduling.options import PART
from .keeping import Aside

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


def has_ids(sig: Any) -> bool:
    """Whether a signature, or a part of it, has a task id already."""
    return any(options.get("task_id") for options in _options_of(sig))


def refuse_connections(sig: Any) -> None:
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

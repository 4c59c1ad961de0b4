"""Changes of tasks: their buttons, and the calls that forms make."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from werkzeug.exceptions import BadRequest

from ...core.errors import InvalidOption
from ...core.store import Outcome, State
from ...core.store.keys import checked_name
from ...core.tasks.scheduled_task import ScheduledTask, json_facts_of
from ...operations import actions
from ...operations.actions import Action
from .visit import Mistyped, Visit, signed_url
from .words import moment_of, moved, time_of, told_back

# An edit of one value has a button of its own: its words, and the kind of the value.
_EDITS = {
    "add_tag": ("Add a tag", "add_tags"),
    "remove_tag": ("Remove a tag", "remove_tags"),
    "requeue": ("Move to a queue", "queue"),
    "prioritise": ("Set the priority", "priority"),
}
#: By name: those without a value first, and among them last those that take tasks away.
ACTIONS = {
    **{
        one.name: one
        for one in sorted(
            actions.ACTIONS.values(),
            key=lambda one: (bool(one.takes), one.undone and not one.takes),
        )
        if one.of_one
    },
    **{
        name: replace(actions.ACTIONS["edit"], name=name, label=label, takes=takes)
        for name, (label, takes) in _EDITS.items()
    },
}


def suiting(state: State) -> list[Action]:
    """Return the actions for the page of a task in this state."""
    return [one for one in ACTIONS.values() if one.name not in _EDITS and one.suits(state)]


def suiting_some(tasks: list[ScheduledTask]) -> list[Action]:
    """Return the actions for a list of tasks: those that suit one of them."""
    states = {task.state for task in tasks}
    return [one for one in ACTIONS.values() if _is_of_many(one) and any(map(one.suits, states))]


def _is_of_many(action: Action) -> bool:
    return action.takes != "fields"


def method_of(owner: Any, action: Action) -> Callable[..., Any]:
    """Return the method of a ``DelayQ`` or a selection that makes a change."""
    step: Callable[..., Any] = getattr(owner, "edit" if action.name in _EDITS else action.name)
    return step


def action_of(visit: Visit) -> Action:
    """Return the action that the form or the URL names.

    Raises:
        BadRequest: it names none.
    """
    name = visit.request.values.get("action", "")
    if not name:
        raise Mistyped("action", "choose what to change; nothing was done")
    if name not in ACTIONS:
        raise BadRequest(f"action is {name!r}; expected one of {', '.join(ACTIONS)}")
    return ACTIONS[name]


def action_for_many(visit: Visit) -> Action:
    """Return the same, if it can change many tasks."""
    action = action_of(visit)
    if not _is_of_many(action):
        raise Mistyped("action", f"to {action.name} is for one task: open its page")
    return action


def options_of(visit: Visit, action: Action) -> dict[str, Any]:
    """Return the arguments of an action, from the ``value`` in the form or the URL.

    Raises:
        Mistyped: the value is missing, or no time.
        InvalidOption: it is no priority.
    """
    if action.takes in ("", "fields"):
        return {}
    text = value_of(visit, action)
    if not text:
        raise Mistyped("value", f"to {action.label.lower()}, type a value")
    if action.takes == "time":
        return moved(visit, text)
    if action.takes == "priority":
        return {"priority": _priority(text)}
    return {action.takes: text if action.takes == "queue" else [checked_name("tag", text)]}


def value_of(visit: Visit, action: Action) -> str:
    """Return what was typed for an action: its ``value``, or the field of its kind in a list."""
    values = visit.request.values
    return values.get("value") or values.get(f"value-{action.takes}", "")


def fixed_value(visit: Visit, action: Action, options: dict[str, Any]) -> str:
    """Return the value with an instant in place of a relative time."""
    if "at" in options:
        return str(options["at"].isoformat())
    if "after" in options:
        return str((visit.now + options["after"]).isoformat())
    return value_of(visit, action)


def means(visit: Visit, action: Action, value: str) -> str:
    """Return what a fixed value means for each task, in words; empty if the action has none."""
    if action.takes != "time":
        return f", {value}" if action.takes else ""
    given = time_of(value, due=True)
    if given.kind == "by":
        return f", {value.removeprefix('by:')} from its due time"
    return f" to {told_back(visit, moment_of(visit, given), visit.now)}"


def change(
    visit: Visit, action: Action, task_id: str, revision: int | None, options: dict[str, Any]
) -> Outcome:
    """Change one task, and tell of it."""
    outcome: Outcome = method_of(visit.delayq, action)(task_id, if_revision=revision, **options)
    visit.tell(action.name, {"task": task_id}, outcome)
    return outcome


def revision_in(text: str) -> int | None:
    """Return the revision that a page showed; ``None`` if the task has none.

    Raises:
        InvalidOption: it is no number.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidOption("revision", text, "the revision of a task that you read")
    return int(text)


def tick_of(task: ScheduledTask) -> str:
    """Return the value of a task's checkbox: the revision that is shown, and the id."""
    return f"{task.revision or ''} {quote(task.id, safe='')}"


def ticked(tick: str) -> tuple[str, int | None]:
    """Return the id and the revision in a checkbox's value."""
    revision, _, task_id = tick.partition(" ")
    return unquote(task_id), revision_in(revision)


def values_of(visit: Visit, task: ScheduledTask) -> dict[str, str]:
    """Return the values that a user can edit, as they stand in the form.

    A value that would not come back from a browser as it is has no field.
    """
    found = {"queue": task.queue, "key": task.key, "priority": str(task.priority)}
    found = {
        name: text for name, text in found.items() if text.isprintable() and text == text.strip()
    }
    if all(tag.isprintable() for tag in task.tags):
        found["tags"] = "\n".join(task.tags)
    if not task.is_canvas and not visit.hides:
        for name, value in zip(("args", "kwargs"), task.shown_arguments(), strict=True):
            facts = json_facts_of(task)[name]
            # Types that JSON lacks, such as times, would become texts.
            if value is not None and facts == value:
                text = json.dumps(facts, ensure_ascii=False)
                found[name] = text if text.isprintable() else json.dumps(facts)
    if task.is_canvas:
        return {name: found[name] for name in ("key", "tags") if name in found}
    return {**found, "expires": ""}


def edits_of(visit: Visit, task: ScheduledTask) -> dict[str, Any]:
    """Return the arguments of an edit: the values in the form that differ from the task's.

    Raises:
        BadRequest: none differs.
        InvalidOption: a value is none of its field.
    """
    form, shown = visit.request.form, values_of(visit, task)
    typed = {name: form[name].replace("\r\n", "\n") for name in shown if name in form}
    changed = {name: entered for name, entered in typed.items() if entered.strip() != shown[name]}
    edits: dict[str, Any] = {}
    for name, text in changed.items():
        if name == "tags":
            tags = [tag for tag in text.split("\n") if tag]
            added = [tag for tag in tags if tag not in task.tags]
            removed = [tag for tag in task.tags if tag not in tags]
            edits |= {"add_tags": added} if added else {}
            edits |= {"remove_tags": removed} if removed else {}
        elif name == "expires":
            edits[name] = _expires(visit, text)
        elif name in ("args", "kwargs"):
            edits[name] = _json(name, text)
        else:
            edits[name] = _READ[name](text)
    if not edits:
        raise BadRequest("the task has all of these values already; nothing was changed")
    return edits


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidOption(name, text, "JSON") from None


def _priority(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidOption("priority", text, "a whole number from 0 to 255")
    return int(text)


def _expires(visit: Visit, text: str) -> Any:
    given = time_of(text, "expires", due=True, never=True)
    if given.kind == "never":
        return None
    if given.kind == "by":
        return given.value
    return moment_of(visit, given, "expires")


_READ: dict[str, Callable[[str], Any]] = {
    "queue": str,
    "key": lambda text: text or None,
    "priority": _priority,
}


def undo_of(visit: Visit, action: Action, bulk: str) -> dict[str, Any]:
    """Return of how many tasks of a bulk this user can undo the action, and the URL for it.

    The number is ``None`` if this user, or nobody, can undo it.
    """
    services = visit.delayq.services
    if not services.settings.undo or not visit.may_write or not action.undone:
        return {"undoable": None, "undo": ""}
    kept, _ = services.entries.undoable(bulk)
    return {"undoable": kept, "undo": signed_url(visit, "undo", bulk=bulk)}

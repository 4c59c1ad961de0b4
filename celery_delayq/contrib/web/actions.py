"""Changes of tasks: their names, the tasks that they suit, and the calls that forms make."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from werkzeug.exceptions import BadRequest

from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.store import Outcome, State
from ...core.store.keys import checked_name
from ...core.tasks.scheduled_task import ScheduledTask, json_facts_of
from .visit import Mistyped, Visit, signed_url
from .words import moment_of, moved, time_of, told_back


@dataclass(frozen=True)
class Action:
    """A change.

    Attributes:
        name: Its name in URLs and forms.
        label: The words on its button.
        done: The past form, as in "task a was cancelled".
        dead: Whether it suits dead tasks.
        waiting: Whether it suits waiting tasks.
        takes: The kind of the form's ``value``: a ``time``, or an option of an edit.
        many: Whether it can change many tasks at once.
    """

    name: str
    label: str
    done: str
    dead: bool = True
    waiting: bool = True
    takes: str = ""
    many: bool = True

    def suits(self, state: State) -> bool:
        """Return whether it suits a task in this state."""
        return self.dead if state is State.DEAD else self.waiting

    @property
    def method(self) -> str:
        """The name of the method of ``DelayQ`` and of selections."""
        return self.name if self.takes in ("", "time") else "edit"


_ALL = (
    Action("run_now", "Run now", "made due now", dead=False),
    Action("retry", "Retry", "made due now", waiting=False),
    Action("cancel", "Cancel", "cancelled", dead=False),
    Action("remove", "Remove", "removed", waiting=False),
    Action("reschedule", "Reschedule", "rescheduled", takes="time"),
    Action("edit", "Edit", "edited", dead=False, many=False),
    Action("add_tag", "Add a tag", "edited", dead=False, takes="add_tags"),
    Action("remove_tag", "Remove a tag", "edited", dead=False, takes="remove_tags"),
    Action("requeue", "Move to a queue", "edited", dead=False, takes="queue"),
    Action("prioritise", "Set the priority", "edited", dead=False, takes="priority"),
)
ACTIONS = {action.name: action for action in _ALL}
_CAN_BE_UNDONE = ("cancel", "remove")


def suiting(state: State) -> list[Action]:
    """Return the actions for the page of a task in this state."""
    return [action for action in _ALL if action.takes in ("", "time") and action.suits(state)]


def suiting_some(tasks: list[ScheduledTask]) -> list[Action]:
    """Return the actions for a list of tasks: those that suit one of them."""
    states = {task.state for task in tasks}
    return [action for action in _ALL if action.many and any(map(action.suits, states))]


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
    if not action.many:
        raise Mistyped("action", f"to {action.name} is for one task: open its page")
    return action


def options_of(visit: Visit, action: Action) -> dict[str, Any]:
    """Return the arguments of an action, from the ``value`` in the form or the URL.

    Raises:
        Mistyped: the value is missing, or no time.
        InvalidOption: it is no priority.
    """
    if not action.takes:
        return {}
    text = visit.request.values.get("value", "")
    if not text:
        raise Mistyped("value", f"to {action.label.lower()}, type a value")
    if action.takes == "time":
        return moved(visit, text)
    if action.takes == "priority":
        return {"priority": _priority(text)}
    return {action.takes: text if action.takes == "queue" else [checked_name("tag", text)]}


def fixed_value(visit: Visit, options: dict[str, Any]) -> str:
    """Return the value with an instant in place of a relative time."""
    if "at" in options:
        return str(options["at"].isoformat())
    if "after" in options:
        now = from_ms(visit.delayq.counts().now_ms)
        return str((now + options["after"]).isoformat())
    return visit.request.values.get("value", "")


def means(visit: Visit, action: Action, value: str) -> str:
    """Return what a fixed value means for each task, in words; empty if the action has none."""
    if action.takes != "time":
        return f", {value}" if action.takes else ""
    given = time_of(value, due=True)
    if given.kind == "by":
        return f", {value.removeprefix('by:')} from its due time"
    now = from_ms(visit.delayq.counts().now_ms)
    return f" to {told_back(visit, moment_of(visit, given), now)}"


def change(
    visit: Visit, action: Action, task_id: str, revision: int | None, options: dict[str, Any]
) -> Outcome:
    """Change one task, and tell of it."""
    step = getattr(visit.delayq, action.method)
    outcome: Outcome = step(task_id, if_revision=revision, **options)
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
        InvalidOption: a value is none of its field.
    """
    form, shown = visit.request.form, values_of(visit, task)
    typed = {name: form[name].replace("\r\n", "\n") for name in shown if name in form}
    changed = {name: entered for name, entered in typed.items() if entered.strip() != shown[name]}
    edits: dict[str, Any] = {}
    for name, text in changed.items():
        if name == "tags":
            tags = [tag for tag in text.split("\n") if tag]
            edits["add_tags"] = [tag for tag in tags if tag not in task.tags]
            edits["remove_tags"] = [tag for tag in task.tags if tag not in tags]
        elif name == "expires":
            edits[name] = _expires(visit, text)
        elif name in ("args", "kwargs"):
            edits[name] = _json(name, text)
        else:
            edits[name] = _READ[name](text)
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
    if not services.settings.undo or not visit.may_write or action.name not in _CAN_BE_UNDONE:
        return {"undoable": None, "undo": ""}
    kept, _ = services.entries.undoable(bulk)
    return {"undoable": kept, "undo": signed_url(visit, "undo", bulk=bulk)}


def may_come_back(visit: Visit, task_id: str) -> bool:
    """Return whether the cancel of a task that is not here is kept, and this user may undo it."""
    services = visit.delayq.services
    may = bool(services.settings.undo) and visit.may_write
    return may and services.entries.is_undoable(task_id)

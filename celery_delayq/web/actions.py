"""Changes of tasks: what each is called, whom it suits, and how a form becomes a call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from werkzeug.exceptions import BadRequest

from ..errors import InvalidOption
from ..operations.scheduled_task import ScheduledTask
from ..operations.task_facts import json_facts_of
from ..store import Outcome, State
from . import words
from .asked import moment_of, moved, time_of
from .visit import Visit


@dataclass(frozen=True)
class Action:
    """A change.

    Attributes:
        name: The name of the method of ``DelayQ`` and of selections.
        label: The words on its button.
        done: What was done, as in "task a was cancelled".
        dead: Whether it suits dead tasks.
        waiting: Whether it suits waiting tasks.
    """

    name: str
    label: str
    done: str
    dead: bool = True
    waiting: bool = True


_ALL = (
    Action("run_now", "Run now", "made due now", dead=False),
    Action("reschedule", "Reschedule", "rescheduled"),
    Action("edit", "Edit", "edited", dead=False),
    Action("retry", "Retry", "made due now", waiting=False),
    Action("cancel", "Cancel", "cancelled", dead=False),
    Action("remove", "Remove", "removed", waiting=False),
)
ACTIONS = {one.name: one for one in _ALL}


def suiting(state: State) -> list[Action]:
    """Return the actions that suit a task in this state."""
    is_dead = state is State.DEAD
    return [one for one in _ALL if (one.dead if is_dead else one.waiting)]


def action_of(visit: Visit) -> Action:
    """Return the action that the form or the URL names."""
    name = visit.request.values.get("action", "")
    if name not in ACTIONS:
        raise BadRequest(f"action is {name!r}; expected one of {', '.join(ACTIONS)}")
    return ACTIONS[name]


def options_of(visit: Visit, action: Action) -> dict[str, Any]:
    """Return the arguments of an action that stand in the form or the URL, but those of an edit."""
    if action.name != "reschedule":
        return {}
    return moved(visit, visit.request.values.get("when", ""))


def change(
    visit: Visit, action: Action, task_id: str, revision: int | None, options: dict[str, Any]
) -> tuple[Outcome, str]:
    """Change one task, and tell of it; return the outcome and the answer in words."""
    step = getattr(visit.delayq, action.name)
    outcome: Outcome = step(task_id, if_revision=revision, **options)
    visit.tell(action.name, {"task": task_id}, outcome)
    return outcome, words.answer(visit, action.done, outcome, task_id)


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


def values_of(visit: Visit, task: ScheduledTask) -> dict[str, str]:
    """Return the values that a user can edit, as they stand in the form.

    A value that would not come back from a browser as it is has no field.
    """
    found = {"queue": task.queue, "key": task.key, "priority": str(task.priority)}
    found = {name: one for name, one in found.items() if one.isprintable() and one == one.strip()}
    if all(tag.isprintable() for tag in task.tags):
        found["tags"] = "\n".join(task.tags)
    if not task.is_canvas and not visit.hides:
        for name, value in zip(("args", "kwargs"), task.shown_arguments(), strict=True):
            facts = json_facts_of(task)[name]
            # Types that JSON lacks, such as times, would become texts.
            if value is not None and facts == value:
                found[name] = json.dumps(facts, ensure_ascii=False)
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
    changed = {name: one for name, one in typed.items() if one.strip() != shown[name]}
    edits: dict[str, Any] = {}
    for name, text in changed.items():
        if name == "tags":
            tags = [one for one in text.split("\n") if one]
            edits["add_tags"] = [one for one in tags if one not in task.tags]
            edits["remove_tags"] = [one for one in task.tags if one not in tags]
        else:
            edits[name] = _READ[name](visit, text)
    return edits


def _json(visit: Visit, text: str) -> Any:  # noqa: ARG001 - as the others
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidOption("arguments", text, "JSON") from None


def _priority(visit: Visit, text: str) -> int:  # noqa: ARG001 - as the others
    if not text.isascii() or not text.isdigit():
        raise InvalidOption("priority", text, "a whole number from 0 to 255")
    return int(text)


def _expires(visit: Visit, text: str) -> Any:
    given = time_of(text, due=True, never=True)
    if given.kind == "never":
        return None
    expires: datetime | Any = given.value if given.kind == "by" else moment_of(visit, given)
    return expires


_READ = {
    "queue": lambda _, text: text,
    "key": lambda _, text: text or None,
    "priority": _priority,
    "args": _json,
    "kwargs": _json,
    "expires": _expires,
}

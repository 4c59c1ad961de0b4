"""Changes of the tasks that a user ticked: a question first, and then an answer for each.

    tick --> POST /selected --> GET: how many? --> POST, sure --> GET: the answers

The answers are in a signed URL, see ``signed.py``, as long as that has room for them.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any
from urllib.parse import quote, unquote

from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core.errors import DelayQError, StoreError
from ...core.hooks import part_of
from ...core.store import Outcome
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.text import plain
from . import words
from .actions import (
    Action,
    action_for_many,
    change,
    fixed_value,
    means,
    options_of,
    revision_in,
    undo_of,
)
from .answers import LONGEST
from .signed import check_signed, signed_url
from .visit import Visit

_FAILED = "failed"  # beside the values of Outcome


def ticked(task: ScheduledTask) -> str:
    """Return the value of a task's checkbox: the revision that is shown, and the id."""
    return f"{task.revision or ''} {quote(task.id, safe='')}"


def selected(visit: Visit) -> Response:
    """Change the ticked tasks; say first which they are, and then what came of each.

    The form has each task as ``one``, with the ``action``, its ``value``, and ``sure``. The URL of
    the question has the same, and that of the answers an ``outcome`` for each.
    """
    if visit.request.method != "POST":
        if "outcome" in visit.request.args:
            check_signed(visit)
            outcomes = _read_outcomes(visit.request.args.getlist("outcome"))
            return _answers(visit, outcomes, visit.request.args["bulk"])
        return _question(visit, visit.request.args)
    action, form = action_for_many(visit), visit.request.form
    ones = [_read(text) for text in form.getlist("one")]
    if not ones:
        raise BadRequest("no task is ticked; tick some, or change all that match the filter")
    options = options_of(visit, action)
    if "sure" not in form:
        fixed = {
            "action": action.name,
            "value": fixed_value(visit, options),
            "zone": form.get("zone", ""),
        }
        ticks = form.getlist("one")
        url = visit.url("selected", **fixed, one=ticks)
        if len(url) <= LONGEST:
            return redirect(url, 303)
        return _question(visit, MultiDict([*fixed.items(), *(("one", text) for text in ticks)]))
    bulk = token_hex(6)
    with part_of(bulk):
        outcomes, status = _changed(visit, action, ones, options)
    texts = [f"{word} {quote(task_id, safe='')} {said}" for task_id, word, said in outcomes]
    said = {"action": action.name, "outcome": texts, "status": status, "bulk": bulk}
    url = signed_url(visit, "selected", **said)
    return redirect(url, 303) if len(url) <= LONGEST else _answers(visit, outcomes, bulk, status)


def _question(visit: Visit, values: MultiDict[str, str]) -> Response:
    """Ask whether the ticked tasks are to be changed."""
    action = action_for_many(visit)
    ones = values.getlist("one")
    return visit.page(
        "selected.html",
        action=action,
        ticks=ones,
        ones=[_read(text)[0] for text in ones],
        value=values.get("value", ""),
        means=means(visit, action, values.get("value", "")),
        answers=None,
    )


def _changed(
    visit: Visit, action: Action, ones: list[tuple[str, int | None]], options: dict[str, Any]
) -> tuple[list[tuple[str, str, str]], int]:
    """Change each task; return its id with the outcome's word and a sentence, and a status."""
    outcomes: list[tuple[str, str, str]] = []
    for task_id, revision in ones:
        try:
            outcome, _ = change(visit, action, task_id, revision, options)
        except StoreError as error:
            outcomes.append((task_id, _FAILED, f"{plain(error)}; the tasks below were not tried"))
            rest = ones[len(outcomes) :]
            return outcomes + [(each, _FAILED, "not tried") for each, _ in rest], 503
        except DelayQError as error:
            outcomes.append((task_id, _FAILED, plain(error)))
        else:
            outcomes.append((task_id, outcome.value, ""))
    return outcomes, 200


def _read_outcomes(texts: list[str]) -> list[tuple[str, str, str]]:
    parts = [text.split(" ", 2) for text in texts]
    return [(unquote(task_id), word, said) for word, task_id, said in parts]


def _answers(
    visit: Visit, outcomes: list[tuple[str, str, str]], bulk: str, status: int | None = None
) -> Response:
    """Say what came of each ticked task."""
    action = action_for_many(visit)
    answers = [
        (
            task_id,
            said or words.answer(visit, action.done, Outcome(word), task_id),
            word != _FAILED and bool(Outcome(word)),
        )
        for task_id, word, said in outcomes
    ]
    code = status or visit.number("status", 200)
    return visit.page(
        "selected.html",
        code,
        action=action,
        ones=outcomes,
        answers=answers,
        **undo_of(visit, action, bulk),
    )


def _read(text: str) -> tuple[str, int | None]:
    revision, _, task_id = text.partition(" ")
    return unquote(task_id), revision_in(revision)

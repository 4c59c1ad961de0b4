"""The views that read: the overview, the list of tasks, and one task."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core.clock import EPOCH, from_ms
from ...core.errors import InvalidOption, UnreadableRecord
from ...core.store import Outcome, State
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.tasks.task_facts import facts_of
from ...operations.cli.departed import behind_which
from ...operations.cli.zones import name_of, soon
from ...operations.health import no_delivery
from ...operations.typed_times import told
from . import words
from .actions import (
    ACTIONS,
    action_of,
    change,
    edits_of,
    options_of,
    revision_in,
    suiting,
    suiting_some,
    values_of,
)
from .asked import FILTERS, in_url, instant_of, moved_or_why, picked, zone_of
from .bulk import ticked
from .chart import SPANS, bars_of
from .looking import SHOWN, Found, look, look_for_scheduled
from .signed import check_signed, signed_url
from .visit import Visit

EVENTS = 8  # of the history, on the overview

_HIDDEN = ("args", "kwargs")
_ARGUMENTS = ("argsrepr", "kwargsrepr")  # headers


def overview(visit: Visit) -> Response:
    """Show the counts, the queues, the pauses, the scanners, and what is wrong."""
    status = visit.delayq.status()
    kept = visit.delayq.services.settings.history
    return visit.page(
        "overview.html",
        status=status,
        problems=[*visit.delayq.health(), *(visit.unread() or ())],
        now=from_ms(status.counts.now_ms),
        looked_at=sum(queue.waiting for queue in status.queues),
        charts={name: bars_of(visit, name) for name in SPANS},
        kept=kept,
        events=visit.delayq.history(EVENTS) if kept else None,
    )


# Done, with a sentence about it.
_DONE = (Outcome.UNCERTAIN, Outcome.BEHIND)


def tasks(visit: Visit) -> Response:
    """List tasks: waiting ones in due order; with a state, in the order of scheduling."""
    counts = visit.delayq.counts()
    now = from_ms(counts.now_ms)
    given = in_url(visit)
    args = visit.request.args
    named = {name: args[name] for name in ("id", "key") if args.get(name)}
    found = Found(_named(visit, given, named), {}) if named else _listed(visit)
    return visit.page(
        "tasks.html",
        title="Dead tasks" if given.get("state") == [State.DEAD.value] else "Tasks",
        given=given,
        filtered=bool(named or given.keys() & FILTERS.keys()),
        rows=[_row(visit, task, now) for task in found.tasks],
        looked_to=found.looked_to,
        next=found.further and visit.url("tasks", **given, order=_order(visit), **found.further),
        counts=counts,
        order=_order(visit),
        states=[state.value for state in State],
        actions=suiting_some(found.tasks),
        everything="" if named else visit.url("everything", **given),
    )


def _listed(visit: Visit) -> Found:
    picking, cursor = picked(visit), visit.request.args.get("cursor") or None
    newest, states = _order(visit) == "latest", picking.get("state")
    if states == [State.SCHEDULED.value]:
        del picking["state"]
        return look_for_scheduled(visit, picking, newest=newest, cursor=cursor)
    if states is not None:
        selection = visit.delayq.select(**picking, cursor=cursor)
        iterator = iter(selection)
        rows, behind = list(islice(iterator, SHOWN)), selection.cursor
        return Found(rows, {"cursor": behind} if next(iterator, None) else {})
    if "tag" not in picking and picking.keys() & {"task", "queue"}:
        return look(visit, picking, newest=newest, cursor=cursor)
    limit = SHOWN + 1
    rows = list(visit.delayq.tasks(**picking, newest_first=newest, limit=limit, cursor=cursor))
    further = {"cursor": rows[SHOWN - 1].cursor} if len(rows) > SHOWN else {}
    return Found(rows[:SHOWN], further)


def _named(visit: Visit, given: dict[str, Any], named: dict[str, str]) -> list[ScheduledTask]:
    if len(named) > 1 or given.keys() & FILTERS.keys():
        name = next(iter(named))
        raise InvalidOption(name, named[name], "no other filter beside it, as it names one task")
    task = visit.delayq.get(named.get("id"), key=named.get("key"))
    return [] if task is None else [task]


def _order(visit: Visit) -> str:
    order = visit.request.args.get("order", "")
    if order not in ("", "latest"):
        raise InvalidOption("order", order, "latest, or nothing")
    return order


def _row(visit: Visit, task: ScheduledTask, now: Any) -> dict[str, Any]:
    due = None if task.created == EPOCH else task.due  # it cannot be read
    return {
        "task": task,
        "ticked": ticked(task),
        "url": visit.url("task", id=task.id),
        "due": due,
        "due_in": soon(task.due, now) if due else "",
        "state": words.state(task, now),
        "arguments": words.arguments(visit, task),
    }


def task(visit: Visit) -> Response:
    """Show one task; with POST, change it first, and lead to the page that has the answer.

    The URL has the id, and for POST the revision that was shown. The form has the ``action``, with
    ``value`` for a reschedule, and the fields of an edit. The action ``look`` leads to the page
    with the ``value`` in its URL: told back as the time that it means, with a button that moves the
    task, or with the reason why it is none.
    """
    task_id = visit.request.args.get("id", "")
    if not task_id:
        raise BadRequest("the id is missing; expected the id of a task")
    if visit.request.method != "POST":
        return _one(visit, task_id, *_answer_in_url(visit, task_id))
    form = visit.request.form
    if form.get("action") == "look":
        return visit.redirect("task", id=task_id, value=form.get("value"), zone=form.get("zone"))
    action = action_of(visit)
    revision = revision_in(visit.request.args.get("revision", ""))
    options = options_of(visit, action)
    outcome: Outcome | None = None
    if action.name == "edit":
        shown = visit.delayq.get(task_id)
        if shown is None or shown.revision != revision:
            outcome = Outcome.NOT_FOUND if shown is None else Outcome.UNCHANGED
        else:
            options = edits_of(visit, shown)
    try:
        if outcome is None:
            outcome, _ = change(visit, action, task_id, revision, options)
    except TypeError as error:  # arguments that do not fit the task
        raise InvalidOption("arguments", str(error), "arguments that fit the task") from error
    answer = {"did": action.name, "outcome": outcome.value}
    return redirect(signed_url(visit, "task", id=task_id, **answer), 303)


def _answer_in_url(visit: Visit, task_id: str) -> tuple[str, bool | None]:
    """Return the answer to the change that led here, and whether it was done."""
    args = visit.request.args
    if "outcome" not in args:
        return "", None
    check_signed(visit)
    outcome = Outcome(args["outcome"])
    sentence = words.answer(visit, ACTIONS[args["did"]].done, outcome, task_id)
    return sentence, bool(outcome) or outcome in _DONE


def _one(visit: Visit, task_id: str, sentence: str, is_done: bool | None) -> Response:
    """Return the page of a task, below the answer to a change."""
    try:
        found = visit.delayq.get(task_id)
    except UnreadableRecord as error:
        act = visit.url("task", id=task_id)
        return visit.page("unreadable.html", 409, id=task_id, said=sentence or str(error), act=act)
    if found is None:
        sentence = sentence or words.answer(visit, "", Outcome.NOT_FOUND, task_id)
        code = 200 if is_done else 404
        return visit.page("task.html", code, task=None, said=sentence, is_done=is_done, id=task_id)
    counts = visit.delayq.counts()
    now = from_ms(counts.now_ms)
    typed = visit.request.args.get("value", "")
    return visit.page(
        "task.html",
        409 if is_done is False else 200,
        id=task_id,
        task=found,
        said=sentence,
        is_done=is_done,
        now=now,
        soon=soon,
        state=words.state(found, now),
        facts=dict(_facts(visit, found)),
        headers=dict(_headers(found)),
        problem=no_delivery(counts),
        behind=found.behind and f"It {behind_which(found, now, timezone.utc)}.",
        actions=suiting(found.state),
        values=values_of(visit, found) if visit.may_write else {},
        act=visit.url("task", id=task_id, revision=found.revision),
        typed=typed,
        move=_told_back(visit, found, typed, now) if typed else None,
    )


def _told_back(visit: Visit, found: ScheduledTask, typed: str, now: datetime) -> dict[str, str]:
    """Return a typed time's instant and its sentence, or why it is none."""
    options, why = moved_or_why(visit, typed)
    if why:
        return {"why": why}
    moment = from_ms(instant_of(options, found.due, now))
    zone = zone_of(visit)
    sentence = f"{told(moment, zone, name_of(zone))}, {soon(moment, now)}"
    return {"why": "", "sentence": sentence, "value": moment.isoformat()}


def _facts(visit: Visit, found: ScheduledTask) -> Iterator[tuple[str, Any]]:
    for name, value in facts_of(found).items():
        if name in _HIDDEN and visit.hides:
            yield name, "hidden"
        elif name not in ("id", "state", "cursor"):
            yield name, value


def _headers(found: ScheduledTask) -> Iterator[tuple[str, Any]]:
    """Yield the message's headers that say something, but for those that are facts."""
    for name, value in found.headers.items():
        if value not in (None, [], {}, "") and name not in _ARGUMENTS:
            yield name, value

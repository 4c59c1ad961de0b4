"""The overview, the list of tasks, and the page of a task, with its changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from itertools import groupby
from typing import Any

from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core.clock import EPOCH, from_ms
from ...core.errors import InvalidOption, NoLeaf, UnreadableRecord
from ...core.leaves import leaf
from ...core.store import Outcome, State, What
from ...core.tasks.scheduled_task import ScheduledTask, facts_of, json_facts_of
from ...core.text import counted, plain
from ...core.threads import gather
from ...operations import finding
from ...operations.actions import Action
from ...operations.cli.common import soon
from ...operations.cli.output import behind_which
from ...operations.health import no_delivery
from ...operations.status import status_of
from . import past, searching, words
from .actions import (
    action_of,
    change,
    edits_of,
    options_of,
    revision_in,
    suiting,
    suiting_some,
    tick_of,
    values_of,
)
from .chart import SPANS, chart_of
from .looking import SECOND, SHOWN, Found, listed, named, order_of
from .visit import Answer, Mistyped, Visit, answered, mark_of
from .words import FILTERS, in_url, instant_of, moved, told_back

COUNTED = 0.3  # seconds in which the overview counts tasks by queue
EVENTS = 5  # of the history, on the overview
MOST_WHY = 200  # characters of an error, there
FOLDS = 1_000  # characters of arguments from which they are folded
RUNS = 4  # of rules, there
SHOWN_TAGS = 2  # of a task in a list

_MINE = "mine."  # before the name of a field that was typed over another revision
_AT_ONCE = ("run_now", "retry")  # their answer holds for a task that was delivered since
_SOON = "soon "  # begins the state that these leave behind
_HIDDEN = ("args", "kwargs")
_ARGUMENTS = ("argsrepr", "kwargsrepr")  # headers
_ALONE = ("id", "key")
_DONE = (Outcome.UNCERTAIN, Outcome.BEHIND)  # with a sentence about it


def overview(visit: Visit) -> Response:
    """Show what is wrong, the counts, the queues, the pauses, the scanners, and what comes."""
    services = visit.delayq.services
    kept = services.settings.history
    status, died, events, runs, *charts = gather(
        partial(status_of, services, seconds=COUNTED),
        partial(_died, visit),
        partial(visit.delayq.history, EVENTS) if kept else lambda: None,
        partial(_next_runs, visit),
        *(partial(chart_of, visit, name) for name in SPANS),
    )
    return visit.page(
        "overview.html",
        status=status,
        died=died,
        looked_at=sum(queue.waiting for queue in status.queues),
        charts=dict(zip(SPANS, charts, strict=True)),
        runs=runs,
        now=visit.now,
        soon=soon,
        kept=kept,
        events=events,
    )


def _died(visit: Visit) -> str:
    """Return why a task is dead: the last one of the history, or one of a few; else nothing."""
    dead, task = visit.counts.dead, None
    if not dead:
        return ""
    if visit.delayq.services.settings.history:
        for event in visit.delayq.history(1, what=What.DEAD):
            with suppress(UnreadableRecord):
                task = visit.delayq.get(event.id)
    if (task is None or task.state is not State.DEAD) and dead <= SHOWN:
        task = next(iter(visit.delayq.select(state=State.DEAD)), None)
    if task is None or task.state is not State.DEAD:
        return ""
    return f"{task.task or task.id}: {task.reason[:MOST_WHY]}"


def _next_runs(visit: Visit) -> list[Any]:
    """Return the rules that run next; none if there are too many to know, or without cronsim."""
    if not visit.counts.rules:
        return []
    try:
        found = leaf("rules").listed(visit.delayq.services, seconds=SECOND)
    except (ModuleNotFoundError, NoLeaf):
        return []
    runs = [rule for rule in found.rules if rule.next]
    return [] if found.further else sorted(runs, key=lambda rule: rule.next[0])[:RUNS]


def state(visit: Visit) -> Response:
    """Show the head of the pages alone, for those that stay open."""
    return visit.page("state.html")


def tasks(visit: Visit) -> Response:
    """List tasks: waiting ones in due order; with a state, in the order of scheduling.

    What is typed into the search, ``q``, leads to the page of an id or a key, or becomes filters of
    the URL to which this leads. A text that is wrong stays, beside the reason.
    """
    args, typed = visit.request.args, visit.request.args.get("q", "").strip()
    given = in_url(visit)
    by = {name: args[name] for name in _ALONE if args.get(name)}
    try:
        if typed:
            tokens = searching.tokens_in(typed)
            if there := searching.where_of(visit, tokens):
                return redirect(there, 303)
            return visit.redirect("tasks", **searching.filters_in(visit, tokens))
        cursor = args.get("cursor") or None
        found, names, tagged = gather(
            partial(_named, visit, given, by) if by else partial(listed, visit, cursor=cursor),
            partial(finding.names_of, visit.delayq),
            partial(_tagged, visit, given),
        )
        is_none = not (found.tasks or found.further or cursor)
        for kind, name in by.items():  # it may have left
            if is_none and (there := past.where_of(visit, name, kind)):
                return redirect(there, 303)
        span = searching.span_in_words(visit)
    except (Mistyped, InvalidOption) as error:
        visit, found = _refused(visit, error, "q"), Found([], {})
        names, tagged, span = finding.names_of(visit.delayq), None, ""
    return _list(visit, found, names, tagged=tagged, span=span, is_named=bool(by))


def _list(
    visit: Visit, found: Found, names: Any, *, tagged: int | None, span: str, is_named: bool
) -> Response:
    """Return a page of the list."""
    args, given, order = visit.request.args, in_url(visit), order_of(visit)
    texts = [text for text in args.getlist("text") if text]
    kept = {**given, "text": texts, "order": order}
    rows = [_row(visit, task, visit.now) for task in found.tasks]
    is_none = not (found.tasks or found.further or visit.answer.sentence)
    is_dead = given.get("state") == [State.DEAD.value]
    return visit.page(
        "tasks.html",
        title="Dead tasks" if is_dead else "Tasks",
        heading=counted(tagged) if tagged else "Dead tasks" if is_dead else "Tasks",
        given=given,
        filtered=bool(is_named or texts or given.keys() & FILTERS.keys()),
        rows=rows,
        days=_by_day(visit, rows),
        looked_to=found.looked_to,
        next=found.further and visit.url("tasks", **kept, **found.further),
        counts=visit.counts,
        order=order,
        turned=_url(visit, "order", "" if order else "latest"),
        chips=searching.chips(visit),
        quick=searching.quick(visit),
        span=span,
        ticked=args.getlist("marks"),
        actions=suiting_some(found.tasks),
        opened="all" in args,
        change_all=_url(visit, "all", "1"),
        everything="" if is_named or texts else visit.url("everything", **given),
        words=searching.suggested(names, found.tasks),
        queues=names[1],
        tagged=tagged,
        tries=searching.tries(visit) if is_none and not is_named else [],
        kept=bool(visit.delayq.services.settings.history),
    )


def _url(visit: Visit, name: str, value: str) -> str:
    """Return the URL of the list with another value."""
    return visit.url("tasks", **searching.with_values(visit, [(name, value)]))


def _by_day(
    visit: Visit, rows: list[dict[str, Any]]
) -> list[tuple[datetime | None, list[dict[str, Any]]]]:
    """Return the rows below their days, in the zone of the page."""
    zone = words.shown_zone(visit)
    days = groupby(rows, key=lambda row: row["due"] and row["due"].astimezone(zone).date())
    some = (list(below) for _, below in days)
    return [(below[0]["due"], below) for below in some]


def _refused(visit: Visit, error: Mistyped | InvalidOption, field: str) -> Visit:
    """Return the visit with the reason why a text in its URL is wrong, beside a field."""
    sentence = error.description if isinstance(error, Mistyped) else str(error)
    return replace(visit, answer=Answer(sentence or "", 400, field))


def _named(visit: Visit, given: dict[str, Any], by: dict[str, str]) -> Found:
    if len(by) > 1 or visit.request.args.get("text") or given.keys() & FILTERS.keys():
        name = next(iter(by))
        raise InvalidOption(name, by[name], "no other filter beside it, as it names one task")
    if "id" in by:
        return named(visit, by["id"], place=visit.request.args.get("cursor", ""))
    task = visit.delayq.get(key=by["key"])
    return Found([] if task is None else [task], {})


def _tagged(visit: Visit, given: dict[str, Any]) -> int | None:
    """Return how many tasks have the tag, if that is the only filter; counting is cheap then."""
    if given.keys() & FILTERS.keys() != {"tag"} or len(given["tag"]) > 1:
        return None
    return finding.tag_count(visit.delayq.services, given["tag"][0])


def _row(visit: Visit, task: ScheduledTask, now: Any) -> dict[str, Any]:
    due = None if task.created == EPOCH else task.due  # it cannot be read
    tick, tags = (
        tick_of(task),
        [tag for tag in task.tags if tag not in visit.request.args.getlist("tag")],
    )
    return {
        "task": task,
        "ticked": tick,
        "mark": mark_of(tick),
        "url": visit.url("task", id=task.id),
        "due": due,
        "due_in": soon(task.due, now) if due else "",
        "state": words.state(task, now),
        "arguments": words.shown_arguments(visit, task),
        "tags": tags[:SHOWN_TAGS],
        "more_tags": tags[SHOWN_TAGS:],
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
    if visit.request.method != "POST" or visit.answer.sentence:
        return one_task(visit, task_id)
    form = visit.request.form
    if form.get("action") == "look":
        return visit.redirect("task", id=task_id, value=form.get("value"), zone=form.get("zone"))
    action = action_of(visit)
    revision = revision_in(visit.request.args.get("revision", ""))
    options = options_of(visit, action)
    outcome: Outcome | None = None
    options, was = _can_move_back(visit, action, task_id, revision, options)
    if action.name == "edit":
        shown = visit.delayq.get(task_id)
        if shown is None or shown.revision != revision:
            outcome = Outcome.NOT_FOUND if shown is None else Outcome.UNCHANGED
        else:
            options = edits_of(visit, shown)
    try:
        if outcome is None:
            outcome = change(visit, action, task_id, revision, options)
    except TypeError as error:  # arguments that do not fit the task
        fitting = InvalidOption("arguments", str(error), "arguments that fit the task")
        raise Mistyped("args", str(fitting)) from error
    sentence = words.answer(visit, action.done, outcome, task_id)
    status = 200 if outcome or outcome in _DONE else 409
    lost = form if action.name == "edit" and outcome is Outcome.UNCHANGED else {}
    mine = {f"{_MINE}{name}": text for name, text in lost.items()}
    show = partial(one_task, task_id=task_id)
    values = {**mine, "then": state_of(visit, task_id, action.name), **(was if outcome else {})}
    return answered(visit, "task", show, sentence, status, id=task_id, **values)


def state_of(visit: Visit, task_id: str, action: str = "") -> str | None:
    """Return the state that an answer left behind, as its URL has it; ``None`` if unreadable."""
    try:
        found = visit.delayq.get(task_id)
    except UnreadableRecord:
        return None
    if found is not None and action in _AT_ONCE:
        return f"{_SOON}{found.revision}"
    return _state_of(visit, task_id, found)


def _state_of(visit: Visit, task_id: str, found: ScheduledTask | None, then: str = "") -> str:
    if found is not None:
        soon = _SOON if then.startswith(_SOON) else ""
        return f"{soon}{found.revision}"
    left = visit.delayq.services.entries.departure(task_id)
    if left and left.how == "handed_over" and then.startswith(_SOON):
        return then
    return f"left {left.when_ms if left else ''}"


def _can_move_back(
    visit: Visit, action: Action, task_id: str, revision: int | None, options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of a move, and both due times for the URL of its answer.

    With these, a button undoes it. The old one is right if the move finds the revision that was
    shown, and the new one if no other move follows.
    """
    if action.takes != "time" or revision is None:
        return options, {}
    shown = visit.delayq.get(task_id)
    if shown is None or shown.revision != revision or shown.state is State.DEAD:
        return options, {}
    if "after" in options:
        options = {"at": from_ms(instant_of(options, shown.due, visit.now))}
    to = from_ms(instant_of(options, shown.due, shown.due))
    return options, {"was": shown.due.isoformat(), "to": to.isoformat()}


def one_task(visit: Visit, task_id: str) -> Response:
    """Return the page of a task."""
    try:
        found = visit.delayq.get(task_id)
    except UnreadableRecord as error:
        act = visit.url("task", id=task_id)
        return visit.page("unreadable.html", 409, id=task_id, said=str(error), act=act)
    if visit.answer.then is not None:
        visit = visit.unless_changed(_state_of(visit, task_id, found, visit.answer.then))
    return past.left(visit, task_id) if found is None else _shown(visit, found)


def _shown(visit: Visit, found: ScheduledTask) -> Response:
    now = visit.now
    typed = visit.answer.typed.get("value") or visit.request.args.get("value", "")
    visit, move = _told_back(visit, found, typed, now)
    # Typed over what was shown, so it is for that revision only.
    revision = visit.request.args.get("revision", found.revision)
    values = values_of(visit, found) if visit.may_write else {}
    mine = {name: visit.request.args.get(f"{_MINE}{name}", "").strip() for name in values}
    return visit.page(
        "task.html",
        id=found.id,
        task=found,
        now=now,
        soon=soon,
        state=words.state(found, now),
        look=_look_of(found, now),
        arguments=words.shown_arguments(visit, found),
        folds=FOLDS,
        facts=dict(_facts(visit, found)),
        indented={} if visit.hides else dict(_indented(found)),
        headers=dict(_headers(found)),
        problem=wrong.sentence if (wrong := no_delivery(visit.counts)) else "",
        behind=found.behind and f"It {behind_which(found, now, timezone.utc)}.",
        actions=suiting(found.state),
        events=past.events_of(visit, found.id),
        values=values,
        mine={name: text for name, text in mine.items() if text not in ("", values[name])},
        act=visit.url("task", id=found.id, revision=revision),
        typed=typed,
        move=move,
        moved_from=_moved_from(visit, found),
    )


def _moved_from(visit: Visit, found: ScheduledTask) -> datetime | None:
    """Return the due time to which a button moves a task back, if the page tells of its move."""
    args = visit.request.args
    is_told = visit.answer.is_done and visit.may_write and "was" in args
    if not is_told or args.get("to") != found.due.isoformat():
        return None
    return datetime.fromisoformat(args["was"])


def _look_of(found: ScheduledTask, now: datetime) -> str:
    """Return the colour of a task's state."""
    if found.state is State.DEAD:
        return "red"
    return "amber" if found.paused_by or found.behind or found.due <= now else ""


def _told_back(
    visit: Visit, found: ScheduledTask, typed: str, now: datetime
) -> tuple[Visit, dict[str, str]]:
    """Return the instant that a typed time means for a task, with its sentence.

    If it is none, the visit that it returns has the reason.
    """
    if not typed or visit.answer.sentence:
        return visit, {}
    try:
        moment = from_ms(instant_of(moved(visit, typed), found.due, now))
    except (Mistyped, InvalidOption) as error:
        return _refused(visit, error, "value"), {}
    return visit, {"sentence": told_back(visit, moment, now), "value": moment.isoformat()}


def _facts(visit: Visit, found: ScheduledTask) -> Iterator[tuple[str, Any]]:
    for name, value in facts_of(found).items():
        if name in _HIDDEN and visit.hides:
            yield name, "hidden"
        elif name not in ("id", "state", "cursor"):
            yield name, value


def _indented(found: ScheduledTask) -> Iterator[tuple[str, str]]:
    """Yield the arguments as indented JSON, line by line without unprintable characters."""
    if found.is_canvas:
        return
    facts = json_facts_of(found)
    for name, value in zip(_HIDDEN, found.shown_arguments(), strict=True):
        if facts[name] and facts[name] == value:
            lines = json.dumps(facts[name], ensure_ascii=False, indent=2).split("\n")
            yield name, "\n".join(map(plain, lines))


def _headers(found: ScheduledTask) -> Iterator[tuple[str, Any]]:
    """Yield the message's headers that say something, but for those that are facts."""
    for name, value in found.headers.items():
        if value not in (None, [], {}, "") and name not in _ARGUMENTS:
            yield name, value

"""Changes of many tasks: of those that a user ticked, of all that a filter selects, and their undo.

    tick ---> POST /selected --> GET: how many? --> POST, sure --> GET: the answers

    filter -> POST /all --> GET /all counts --> "Cancel 5,000 tasks" --> POST /work --+
                            ^  a second  |                               ^  a second  |
                            +--continue--+                       GET /work <----------+

    a bulk -> POST /undo --> GET /undo --a second--> POST /undo ...      one task -> its page

A step ends after a second, and its answer is a redirect: the next URL has the cursor, the counts,
and with the cursor the bound of the selection, which is fixed when counting begins. So any process
can take the next step, also after a reload. Tasks that are scheduled later are not changed. The
URLs are signed, see ``visit.py``; so are those of answers, as long as a URL has room for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import DelayQError, NotUndone, StoreError
from ...core.hooks import part_of
from ...core.store import Outcome, State
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.tasks.selection import Count, Selection, Tally, telling_so_far
from ...core.text import plain
from ...core.threads import gather
from ...operations.actions import Action
from . import words
from .actions import (
    action_for_many,
    change,
    fixed_value,
    means,
    method_of,
    options_of,
    ticked,
    undo_of,
)
from .guard import is_led_from_here
from .looking import SECOND, listed
from .views import one_task, state_of
from .visit import LONGEST, Answer, Visit, answered, check_signed, led, signed_url
from .words import ENDS, FILTERS, TIMES, in_url, picked

_NO_TICK = "no task is ticked; tick some, or change all that match the filter"
_FAILED = "failed"  # beside the values of Outcome
_WAITING = [State.SCHEDULED.value, State.PAUSED.value]
_OF_ACTION = ("action", "value", "bulk", "by")
_COUNTS = ("uncertain", "in_flight")
_FIRST = 5  # tasks that the question before a bulk shows
_REASONS = (20, 5, 1, 0)  # why tasks are not back: as many as a URL has room for


def selected(visit: Visit) -> Response:
    """Change the ticked tasks; say first which they are, and then what came of each.

    The form has each task as ``one``, with the ``action``, its ``value``, and ``sure``. The URL of
    the question has the same, and that of the answers an ``outcome`` for each.
    """
    if visit.request.method != "POST":
        if "outcome" in visit.request.args:
            visit = check_signed(visit)
            outcomes = _read_outcomes(visit.request.args.getlist("outcome"))
            return _answers(visit, outcomes, visit.request.args["bulk"])
        return _question(visit, visit.request.args)
    action, form = action_for_many(visit), visit.request.form
    ones = [ticked(text) for text in form.getlist("one")]
    if not ones:
        raise BadRequest(_NO_TICK)
    options = options_of(visit, action)
    if "sure" not in form:
        fixed = {
            "action": action.name,
            "value": fixed_value(visit, action, options),
            "zone": form.get("zone", ""),
            "by": _by(options.get("after")),
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
    return led(visit, "selected", **said) or _answers(visit, outcomes, bulk, status)


def _question(visit: Visit, values: MultiDict[str, str]) -> Response:
    """Ask whether the ticked tasks are to be changed."""
    action = action_for_many(visit)
    ticks = values.getlist("one")
    ones = [ticked(text)[0] for text in ticks]
    if not ones:
        raise BadRequest(_NO_TICK)
    first = ones[:_FIRST]
    read = gather(*(partial(visit.delayq.get, each) for each in first))
    rows = _rows(visit, dict(zip(first, read, strict=True)), action)
    return visit.page(
        "selected.html",
        action=action,
        ticks=ticks,
        ones=ones,
        rows=rows + [Meant(each) for each in ones[_FIRST:]],
        value=values.get("value", ""),
        means=means(visit, action, values.get("value", "")),
        answers=None,
        **_before(visit, action, len(ones), rows, values.get("by", "")),
    )


class Meant(NamedTuple):
    """A task that a question is about.

    Attributes:
        id: Its id.
        task: The task; ``None`` if it is not read, or does not wait any more.
        becomes: Its new due time, if that is what changes.
        arguments: Its arguments, short.
        is_gone: Whether it was read, and does not wait any more.
    """

    id: str
    task: ScheduledTask | None = None
    becomes: datetime | None = None
    arguments: Sequence[words.Argument] = ()
    is_gone: bool = False


def _rows(visit: Visit, tasks: Mapping[str, ScheduledTask | None], action: Action) -> list[Meant]:
    """Return the tasks that a question is about, with what they become."""
    options, moves = options_of(visit, action), action.takes == "time"
    return [
        Meant(each, is_gone=True)
        if task is None
        else Meant(
            each,
            task,
            from_ms(words.instant_of(options, task.due, visit.now)) if moves else None,
            words.shown_arguments(visit, task),
        )
        for each, task in tasks.items()
    ]


def _before(
    visit: Visit, action: Action, count: int, rows: Sequence[Meant], by: str
) -> dict[str, Any]:
    """Return what a question says before a change of many.

    That is the span by which each can be moved in place of all to one time, empty if that makes no
    difference; and how long, and of how many tasks, an undo is kept, ``None`` if the action has no
    undo.
    """
    read = [row for row in rows if row.task and row.becomes]
    dues = {row.task.due for row in read if row.task}
    is_one_time = action.takes == "time" and "by" not in options_of(visit, action)
    if not is_one_time or not read or (len(dues) == 1 and len(read) == count):
        by = ""
    elif not by:
        first = min(dues)
        by = next(_by(row.becomes - first) for row in read if row.becomes)
    kept = visit.delayq.services.settings.undo
    return {"by": by, "kept": (kept or (0, 0)) if action.undone else None, "changes": count}


def _by(span: timedelta | None) -> str:
    """Return a span as a user types it, to move each task from its due time: ``by:+2h``."""
    seconds = round(abs(span).total_seconds()) if span else 0
    if not span or not seconds:
        return ""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        parts += [f"{number}{unit}"] if number else []
    return f"by:{'-' if span < timedelta(0) else '+'}{''.join(parts)}"


def _changed(
    visit: Visit, action: Action, ones: list[tuple[str, int | None]], options: dict[str, Any]
) -> tuple[list[tuple[str, str, str]], int]:
    """Change each task; return its id with the outcome's word and a sentence, and a status."""
    outcomes: list[tuple[str, str, str]] = []
    for task_id, revision in ones:
        try:
            outcome = change(visit, action, task_id, revision, options)
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


def everything(visit: Visit) -> Response:
    """Count the tasks that a filter selects, step by step; then offer to change them.

    POST fixes the selection: its times become instants, and the redirect has its ``cursor``.
    """
    action = action_for_many(visit)
    options = options_of(visit, action)
    if visit.request.method == "POST":
        picking = picked(visit)  # once: a later "+1h" would be another time
        cursor, fixed = _selection(visit, picking).cursor, _fixed(visit, action, picking, options)
        return redirect(signed_url(visit, "everything", **fixed, cursor=cursor), 303)
    check_signed(visit)
    begin = visit.request.args.get("begin") or _cursor(visit)
    selection = _selection(visit, picked(visit), _cursor(visit))
    step = method_of(selection, action)
    count, is_over = _within_a_second(lambda taken: step(dry_run=True, progress=taken, **options))
    so_far = _so_far(visit, count)
    given = _in_url(visit)
    now_us = visit.delayq.counts().now_ms * 1000
    asks = is_over and so_far["count"]
    first = {task.id: task for task in listed(visit).tasks[:_FIRST]} if asks else {}
    rows = _rows(visit, first, action)
    return visit.page(
        "everything.html",
        action=action,
        given=given,
        count=so_far["count"],
        is_over=is_over,
        further=signed_url(
            visit, "everything", **given, **so_far, begin=begin, cursor=selection.cursor
        ),
        work=signed_url(
            visit,
            "work",
            **{**given, "bulk": selection.bulk},
            of=so_far["count"],
            bound=now_us,
            cursor=begin,
        ),
        means=means(visit, action, given["value"] or ""),
        rows=rows,
        again=visit.url("everything", **in_url(visit)),
        **_before(visit, action, so_far["count"], rows, given["by"] or ""),
    )


def work(visit: Visit) -> Response:
    """With POST, change some of the tasks, for a second; with GET, show how many are done.

    The URL has the ``cursor`` of the next step; it has none after the last one.
    """
    visit = check_signed(visit)
    action = action_for_many(visit)
    options = options_of(visit, action)
    numbers = {name: visit.number(name) for name in ("of", "bound")}
    if visit.request.method != "POST" or visit.answer.sentence:
        return _progress(visit, action, {**numbers, **_so_far(visit, Count(0))}, _cursor(visit, ""))
    selection = _selection(visit, picked(visit), _cursor(visit))
    selection.bulk = visit.request.args.get("bulk", selection.bulk)
    try:
        count, is_over = _within_a_second(
            _step_of(visit, selection, action, options, numbers["bound"])
        )
    except DelayQError as error:
        if error.so_far is None:
            raise
        numbers |= _tell(visit, action, error.so_far)
        # A move by a span is one call for each task, and the cursor is behind the one that failed.
        again = "by" in options and isinstance(error, StoreError)
        cursor = _cursor(visit) if again else selection.cursor
        values = {**_in_url(visit), **numbers, "cursor": cursor}
        status = 503 if isinstance(error, StoreError) else 409
        show = partial(_progress, action=action, numbers=numbers, cursor=cursor)
        try:
            return answered(visit, "work", show, str(error), status, **values)
        except StoreError:  # still away
            return show(replace(visit, answer=Answer(str(error), status)))
    numbers |= _tell(visit, action, count)
    cursor = "" if is_over else selection.cursor
    return redirect(signed_url(visit, "work", **_in_url(visit), **numbers, cursor=cursor), 303)


def _progress(visit: Visit, action: Action, numbers: dict[str, Any], cursor: str) -> Response:
    return visit.page(
        "work.html",
        action=action,
        given=_in_url(visit),
        further=signed_url(visit, "work", **_in_url(visit), **numbers, cursor=cursor)
        if cursor
        else "",
        **({} if cursor else undo_of(visit, action, visit.request.args.get("bulk", ""))),
        goes_on=visit.answer.is_done is not False and _goes_on(visit),
        **numbers,
    )


def _step_of(
    visit: Visit, selection: Selection, action: Action, options: dict[str, Any], bound_us: int
) -> Callable[..., Count]:
    if "by" not in options:
        method = method_of(selection, action)
        return lambda taken: method(progress=taken, **options)

    def move_by(taken: Callable[[Count], object]) -> Count:
        """Move each task once, even if a step is repeated: those changed since are left."""
        tally = Tally()
        with telling_so_far(tally):
            for task in selection:
                if task.revision < bound_us:
                    step = partial(visit.delayq.reschedule, if_revision=task.revision)
                    with part_of(selection.bulk):
                        outcome = step(task.id, by=options["by"])
                    tally.changed(outcome)
                taken(tally.count)
        return tally.count

    return move_by


def undo(visit: Visit) -> Response:
    """Bring tasks back, or say what is back.

    The form has a task as ``one``, and ``now`` if it runs even if its due time is over; or the URL
    has the ``bulk``, and is signed.
    """
    if visit.request.method != "POST":
        return _undone(check_signed(visit))
    now = "now" in visit.request.values
    if "bulk" in visit.request.args:
        check_signed(visit)
        return _undo_bulk(visit, visit.request.args["bulk"], now=now)
    task_id = visit.request.form.get("one")
    if task_id is None:
        raise BadRequest("no task is named; expected its id as one")
    sentence, status, over = f"task {task_id} is back", 200, ""
    try:
        visit.delayq.undo(task_id, now=now)
    except NotUndone as refused:
        sentence, status, over = str(refused), 409, "1" if refused.reason == "overdue" else ""
    visit.tell("undo", {"task": task_id}, status == 200)  # noqa: PLR2004
    show = partial(one_task, task_id=task_id)
    values = {"id": task_id, "then": state_of(visit, task_id), "over": over}
    return answered(visit, "task", show, sentence, status, **values)


def _undo_bulk(visit: Visit, bulk: str, *, now: bool) -> Response:
    """Bring tasks of a bulk back, for a second; the next step begins with those that are left."""

    def bring_back(taken: _Taken) -> Any:
        def progress(so_far: Any) -> None:
            # Those that are refused stay, so a step that brings none back goes on to the end.
            if so_far.done:
                taken(so_far)

        return visit.delayq.undo_all(bulk, now=now, progress=progress)

    undone, is_over = _within_a_second(bring_back)
    visit.tell("undo", {"bulk": bulk}, undone.done)
    values = {
        "bulk": bulk,
        "count": visit.number("count") + undone.done,
        "of": len(undone.refused) + (undone.lost or 0),
        "now": "1" if now else "",
        "late": "1" if any(error.reason == "overdue" for error in undone.refused) else "",
        "goes_on": "" if is_over else "1",
    }
    pages = (led(visit, "undo", **values, why=undone.reasons[:most]) for most in _REASONS)
    return next(page for page in pages if page is not None)


def _undone(visit: Visit) -> Response:
    args = visit.request.args
    step = {"bulk": args.get("bulk", ""), "count": visit.number("count")}
    goes_on = "goes_on" in args
    return visit.page(
        "undone.html",
        count=step["count"],
        refused=visit.number("of"),
        whys=args.getlist("why"),
        further=signed_url(visit, "undo", **step, now=args.get("now")) if goes_on else "",
        later=signed_url(visit, "undo", **step, now="1") if step["bulk"] and "late" in args else "",
        presses=goes_on and _goes_on(visit),
    )


def _goes_on(visit: Visit) -> bool:
    """Whether the script may press the button of the next step."""
    return visit.may_write and is_led_from_here(visit.request)


class _EnoughError(Exception):
    """The second is over."""


class _Taken:
    """The ``progress`` of a step: ends it when a second of work is over.

    Finding the first tasks can take longer, in a large store without an index for the filter; then
    the work may take as long.
    """

    def __init__(self) -> None:
        self._began, self._first, self.so_far = clock.monotonic(), 0.0, Count(0)

    def __call__(self, so_far: Any) -> None:
        now, self.so_far = clock.monotonic(), so_far
        self._first = self._first or now
        if now - self._first >= max(SECOND, self._first - self._began):
            raise _EnoughError


def _within_a_second(step: Callable[[_Taken], Any]) -> tuple[Any, bool]:
    """Take a step; return its count or its ``Undone``, and whether it came to the end."""
    taken = _Taken()
    try:
        return step(taken), True
    except _EnoughError:
        return taken.so_far, False


def _tell(visit: Visit, action: Action, count: Count) -> dict[str, int]:
    target = {name: ", ".join(some) for name, some in in_url(visit).items() if name in FILTERS}
    visit.tell(action.name, target, count)
    return _so_far(visit, count)


def _so_far(visit: Visit, count: Count) -> dict[str, int]:
    """Return the counts in the URL, with those of a step."""
    sums = {name: visit.number(name) + getattr(count, name) for name in _COUNTS}
    return {"count": visit.number("count") + count, **sums}


def _cursor(visit: Visit, default: str | None = None) -> str:
    cursor = visit.request.args.get("cursor", default)
    if cursor is None:
        raise BadRequest("the cursor is missing; begin with the list of tasks")
    return cursor


def _in_url(visit: Visit) -> dict[str, Any]:
    args = visit.request.args
    return {**in_url(visit), **{name: args.get(name) for name in _OF_ACTION}}


def _selection(visit: Visit, picking: dict[str, Any], cursor: str | None = None) -> Selection:
    # The list without a state has waiting tasks only.
    return visit.delayq.select(**{"state": _WAITING, **picking}, cursor=cursor)


def _fixed(
    visit: Visit, action: Action, picking: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the filters and the value with instants in place of days and relative times."""
    fixed = {name: some for name, some in in_url(visit).items() if name not in TIMES}
    fixed |= {name: picking[end].isoformat() for name, end in ENDS.items() if end in picking}
    fixed["zone"] = visit.request.values.get("zone", "")
    value = fixed_value(visit, action, options)
    return {**fixed, "action": action.name, "value": value, "by": _by(options.get("after"))}

"""Changes of all tasks that a filter selects, in steps; see ``ticked.py`` for single ones.

    filter --> POST /all --> GET /all counts --> "Cancel 5,000 tasks" --> POST /work --+
                             ^  a second  |                               ^  a second  |
                             +--continue--+                       GET /work <----------+

A step ends after a second, and its answer is a redirect: the next URL has the cursor, the counts,
and with the cursor the bound of the selection, which is fixed when counting begins. So any process
can take the next step, also after a reload. Tasks that are scheduled later are not changed. The URL
is signed: see ``signed.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core import clock
from ...core.errors import DelayQError, StoreError
from ...core.hooks import part_of
from ...core.store import State
from ...core.tasks.selection import Count, Selection, Tally, telling_so_far
from .actions import Action, action_for_many, fixed_value, means, options_of, undo_of
from .answers import answered
from .asked import FILTERS, in_url, picked
from .guard import is_led_from_here
from .looking import listed
from .signed import check_signed, signed_url
from .visit import Answer, Visit

SECOND = 1.0
_WAITING = [State.SCHEDULED.value, State.PAUSED.value]
_OF_ACTION = ("action", "value", "bulk")
_COUNTS = ("uncertain", "in_flight")
_FIRST = 5  # tasks that the question before a bulk shows


def everything(visit: Visit) -> Response:
    """Count the tasks that a filter selects, step by step; then offer to change them.

    POST fixes the selection: its times become instants, and the redirect has its ``cursor``.
    """
    action = action_for_many(visit)
    options = options_of(visit, action)
    if visit.request.method == "POST":
        picking = picked(visit)  # once: a later "+1h" would be another time
        cursor, fixed = _selection(visit, picking).cursor, _fixed(visit, picking, options)
        return redirect(signed_url(visit, "everything", **fixed, cursor=cursor), 303)
    check_signed(visit)
    begin = visit.request.args.get("begin") or _cursor(visit)
    selection = _selection(visit, picked(visit), _cursor(visit))
    step = getattr(selection, action.method)
    count, is_over = _within_a_second(lambda taken: step(dry_run=True, progress=taken, **options))
    so_far = _so_far(visit, count)
    given = _in_url(visit)
    now_us = visit.delayq.counts().now_ms * 1000
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
        first=listed(visit).tasks[:_FIRST] if is_over and so_far["count"] else [],
    )


def work(visit: Visit) -> Response:
    """With POST, change some of the tasks, for a second; with GET, show how many are done.

    The URL has the ``cursor`` of the next step; it has none after the last one.
    """
    check_signed(visit)
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
        try:
            led = answered(visit, "work", str(error), status, **values)
        except StoreError:  # still away
            led = None
        shown = replace(visit, answer=Answer(str(error), status))
        return led or _progress(shown, action, numbers, cursor)
    numbers |= _tell(visit, action, count)
    cursor = "" if is_over else selection.cursor
    return redirect(signed_url(visit, "work", **_in_url(visit), **numbers, cursor=cursor), 303)


def _progress(visit: Visit, action: Action, numbers: dict[str, Any], cursor: str) -> Response:
    is_well = visit.answer.is_done is not False and visit.may_write
    return visit.page(
        "work.html",
        action=action,
        given=_in_url(visit),
        further=signed_url(visit, "work", **_in_url(visit), **numbers, cursor=cursor)
        if cursor
        else "",
        **({} if cursor else undo_of(visit, action, visit.request.args.get("bulk", ""))),
        goes_on=is_well and is_led_from_here(visit.request),
        **numbers,
    )


def _step_of(
    visit: Visit, selection: Selection, action: Action, options: dict[str, Any], bound_us: int
) -> Callable[..., Count]:
    if "by" not in options:
        method = getattr(selection, action.method)
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


class _EnoughError(Exception):
    """The second is over."""


class _Taken:
    """The ``progress`` of a step: ends it when a second of work is over.

    Finding the first tasks can take longer, in a large store without an index for the filter; then
    the work may take as long.
    """

    def __init__(self) -> None:
        self._began, self._first, self.count = clock.monotonic(), 0.0, Count(0)

    def __call__(self, count: Count) -> None:
        now, self.count = clock.monotonic(), count
        self._first = self._first or now
        if is_enough(now - self._first, self._first - self._began):
            raise _EnoughError


def is_enough(working: float, finding: float) -> bool:
    """Return whether a step ends, after so many seconds of work and of finding the first tasks."""
    return working >= max(SECOND, finding)


def _within_a_second(step: Callable[..., Count]) -> tuple[Count, bool]:
    """Take a step; return its count, and whether it came to the end."""
    taken = _Taken()
    try:
        return step(taken), True
    except _EnoughError:
        return taken.count, False


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


def _fixed(visit: Visit, picking: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the filters and the value with instants in place of relative times."""
    fixed: dict[str, Any] = {**in_url(visit), "zone": visit.request.values.get("zone", "")}
    for name in ("after", "before"):
        if name in fixed:
            fixed[name] = picking[FILTERS[name]].isoformat()
    action = visit.request.values["action"]
    return {**fixed, "action": action, "value": fixed_value(visit, options)}

"""The undo of a cancel: of one task, or of a bulk in steps of a second.

a task's page ----------> POST /undo --> its page
a bulk, or ticked tasks -> POST /undo --> GET /undo?…&bulk --a second--> POST …
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from werkzeug.exceptions import BadRequest
from werkzeug.utils import redirect
from werkzeug.wrappers import Response

from ...core import clock
from ...core.errors import NotUndone
from . import views
from .answers import LONGEST, answered
from .guard import is_led_from_here
from .signed import check_signed, signed_url
from .visit import Answer, Visit

_SECOND = 1.0
_SHOWN = 20  # reasons why tasks are not back


def undo(visit: Visit) -> Response:
    """Bring tasks back, or say what is back.

    The form has a task as ``one``, and ``now`` if it runs even if its due time is over; or the URL
    has the ``bulk``, and is signed.
    """
    if visit.request.method != "POST":
        check_signed(visit)
        return _answers(visit)
    now = "now" in visit.request.values
    if "bulk" in visit.request.args:
        check_signed(visit)
        return _undo_bulk(visit, visit.request.args["bulk"], now=now)
    task_id = visit.request.form.get("one")
    if task_id is None:
        raise BadRequest("no task is named; expected its id as one")
    refused: NotUndone | None = None
    try:
        visit.delayq.undo(task_id, now=now)
    except NotUndone as error:
        refused = error
    visit.tell("undo", {"task": task_id}, refused is None)
    sentence = str(refused or f"task {task_id} is back")
    over = "1" if refused is not None and refused.reason == "overdue" else ""
    status = 200 if refused is None else 409
    led = answered(visit, "task", sentence, status, id=task_id, over=over)
    return led or views.one_task(replace(visit, answer=Answer(sentence, status)), task_id)


def _undo_bulk(visit: Visit, bulk: str, *, now: bool) -> Response:
    """Bring tasks of a bulk back, for a second; the next step begins with those that are left."""
    ends, is_over = clock.monotonic() + _SECOND, True
    last: Any = None

    def enough(undone: Any) -> None:
        nonlocal last
        last = undone
        # Those that are refused stay, so a step that brings none back goes on to the end.
        if undone.done and clock.monotonic() > ends:
            raise _EnoughError

    try:
        last = visit.delayq.undo_all(bulk, now=now, progress=enough)
    except _EnoughError:
        is_over = False
    visit.tell("undo", {"bulk": bulk}, last.done)
    so_far = visit.number("count") + last.done
    return _led(visit, so_far, last, bulk=bulk, goes_on="" if is_over else "1", now=now)


class _EnoughError(Exception):
    """The second is over."""


def _led(visit: Visit, count: int, undone: Any, *, now: bool, **values: str) -> Response:
    """Lead to the page that says what is back, with as many reasons as its URL has room for."""
    is_late = any(error.reason == "overdue" for error in undone.refused)
    not_back = len(undone.refused) + (undone.lost or 0)
    values |= {"now": "1" if now else "", "late": "1" if is_late else ""}
    for shown in (_SHOWN, 5, 1, 0):
        whys = undone.reasons[:shown]
        url = signed_url(visit, "undo", count=count, of=not_back, why=whys, **values)
        if len(url) <= LONGEST:
            break
    return redirect(url, 303)


def _answers(visit: Visit) -> Response:
    args = visit.request.args
    count, bulk = visit.number("count"), args.get("bulk", "")
    goes_on = "goes_on" in args
    step = {"bulk": bulk, "count": count}
    return visit.page(
        "undone.html",
        count=count,
        refused=visit.number("of"),
        whys=args.getlist("why"),
        further=signed_url(visit, "undo", **step, now=args.get("now")) if goes_on else "",
        later=signed_url(visit, "undo", **step, now="1") if bulk and "late" in args else "",
        presses=goes_on and visit.may_write and is_led_from_here(visit.request),
    )

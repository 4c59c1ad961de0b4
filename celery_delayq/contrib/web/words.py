"""Words between a user and the pages: answers, times and states; and what was typed or clicked.

    after=-10m&queue=mail&zone=Europe/Berlin --> the arguments of DelayQ.tasks and DelayQ.select

Times have the forms of the command line, ``operations/typed_times.py``. A time without an offset
is in the zone that the browser's script reports, or else in the app's own.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone, tzinfo
from itertools import chain, zip_longest
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from celery.utils.saferepr import saferepr
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from ...core import clock
from ...core.clock import from_ms
from ...core.errors import InvalidOption
from ...core.store import Outcome, State
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.text import plain
from ...operations.actions import REFUSED
from ...operations.cli.common import name_of, soon, with_zone
from ...operations.cli.output import Target, why_behind, why_gone
from ...operations.typed_times import (
    Ends,
    GivenSpan,
    GivenTime,
    TypedTimeError,
    overlap,
    read,
    read_span,
    told,
)
from .visit import Mistyped, Visit

#: The filters by due time, as they stand in a URL: a span, its begin, and its end.
TIMES = ("due", "after", "before")
#: The filters of ``select``, as they stand in a URL.
FILTERS = dict.fromkeys(("tag", "task", "queue", "state", *TIMES))
#: The names that ``select`` has for the ends of a span, by their names in the URL.
ENDS = {"after": "after_due", "before": "before_due"}
CUT = 30  # characters of a value in a list
MANY = 200  # characters from which a list says how many a value has
MOST = 1_000  # characters of a value that is no text
_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? UTC)")
_ZONE = "a time zone that this machine knows, such as Europe/Berlin, or a time with its offset"
_CHANGED = "task {} was changed since you loaded the page, or is in another state; nothing was done"


#: How a time is written: for a fact, a cell of a table, a row below its day, and the head.
_FORMS = {"near": "%d %b %H:%M", "clock": "%H:%M", "seconds": "%H:%M:%S", "day": "%A %d %B"}
_OF_OTHER_YEARS = {"near": "%d %b %Y %H:%M", "day": "%A %d %B %Y"}


@pass_context
def time(context: Context, moment: datetime | None, form: str = "") -> Markup | str:
    """Return a time in the zone of the page; the script writes it in the viewer's own.

    Args:
        context: The template's, with the ``visit``.
        moment: The time.
        form: One of :data:`_FORMS`, or nothing: with date, seconds and zone. With ``text`` it is
            no element, for an attribute.
    """
    if moment is None:
        return "unknown"
    zone = shown_zone(context["visit"])
    here = moment.astimezone(zone)
    forms = _FORMS | (_OF_OTHER_YEARS if here.year != clock.utc_now().year else {})
    if form == "text":
        return f"{here:{forms['near']}}"
    iso = moment.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    text = f"{here:{forms[form]}}" if form else with_zone(moment.replace(microsecond=0), zone)
    return Markup('<time datetime="{}" data-form="{}">{}</time>').format(iso, form, text)


def times_in(sentence: str) -> Markup:
    """Return a sentence whose times in UTC the script writes in the viewer's own zone."""
    parts = _UTC.split(plain(sentence))
    iso = (f"{text[:10]}T{text[11:].removesuffix(' UTC')}Z" for text in parts[1::2])
    pairs = zip(parts[1::2], iso, strict=True)
    marked = (
        Markup('<time datetime="{}" data-form="near">{}</time>').format(at, text)
        for text, at in pairs
    )
    return Markup("").join(chain.from_iterable(zip_longest(parts[::2], marked, fillvalue="")))


def shown_zone(visit: Visit) -> tzinfo:
    """Return the zone of the times on a page; the app's own if none is asked for that is known."""
    try:
        return zone_of(visit)
    except (InvalidOption, HTTPException):  # of a form that is too large to be read
        return visit.delayq.services.timezone


def answer(visit: Visit, done: str, outcome: Outcome, task_id: str) -> str:
    """Return the answer to a change of one task.

    Args:
        visit: The visit.
        done: The past form, as in "task a was cancelled".
        outcome: The outcome.
        task_id: The task's id.
    """
    if outcome:
        return f"task {task_id} was {done}"
    if outcome in (Outcome.HANDED_OVER, Outcome.NOT_FOUND):
        return why_gone(visit.delayq, timezone.utc, Target(task_id))
    if outcome is Outcome.BEHIND:
        return why_behind(visit.delayq, timezone.utc, Target(task_id))
    if outcome is Outcome.UNCHANGED:
        return _CHANGED.format(task_id)
    return REFUSED[outcome].format(task_id)


def state(task: ScheduledTask, now: datetime) -> str:
    """Return a task's state, and why it waits longer than its due time."""
    words = task.state.value.lower().replace("_", " ")
    if task.state is State.SCHEDULED and task.paused_by:
        words = f"{words}, {', '.join(task.paused_by)} paused"
    elif task.behind:
        words = f"{words}, behind {task.behind}"
    elif task.state is State.SCHEDULED and task.due <= now:
        words = "overdue"
    if task.next_try:
        words = f"{words}, next try {soon(task.next_try, now)}"
    return words


def arguments(visit: Visit, task: ScheduledTask) -> str:
    """Return the arguments as logs show them; empty if they are hidden."""
    if visit.hides or task.is_canvas:
        return ""
    texts: tuple[Any, ...] = (task.argsrepr, task.kwargsrepr)
    return " ".join(text for text in texts if text and text not in ("()", "{}"))


class Argument(NamedTuple):
    """An argument as a list shows it.

    Attributes:
        name: Its name; empty for one by place.
        text: Its value, cut at :data:`CUT` characters.
        size: How long the value is, if it was cut; else empty.
    """

    name: str
    text: str
    size: str = ""


def shown_arguments(visit: Visit, task: ScheduledTask) -> list[Argument]:
    """Return the arguments for a list, each value short; none if they are hidden."""
    if visit.hides or task.is_canvas:
        return []
    args, kwargs = task.shown_arguments()
    texts = zip((task.argsrepr, task.kwargsrepr), (args, kwargs), strict=True)
    hidden = [_cut("", text) for text, value in texts if value is None and text]
    by_place = [_cut("", value) for value in args or ()]
    return [*by_place, *(_cut(name, value) for name, value in (kwargs or {}).items()), *hidden]


def _cut(name: str, value: Any) -> Argument:
    text = value if isinstance(value, str) else saferepr(value, MOST)
    if len(text) <= CUT:
        return Argument(name, text)
    size = f"{len(text):,} characters" if len(text) > MANY else ""
    return Argument(name, f"{text[: CUT - 1]}…", size)


def time_in_filter(name: str, text: str, field: str) -> GivenSpan:
    """Read the time of a filter, one of :data:`TIMES`, which stands in a field.

    Raises:
        Mistyped: it is none; the sentence has examples.
    """
    try:
        if name == "due":
            return read_span(text)
        given = read(text, ago=True, days=True)
    except TypedTimeError as error:
        raise Mistyped(field, str(error)) from None
    # A day is its begin, also where it is the end of the span.
    return GivenSpan(text, given, None) if name == "after" else GivenSpan(text, None, given)


def time_of(text: str, field: str = "value", **forms: bool) -> GivenTime:
    """Read a time that stands in a field; *forms* are those of :func:`read`.

    Raises:
        Mistyped: it is none; the sentence has examples.
    """
    try:
        return read(text, **forms)
    except TypedTimeError as error:
        raise Mistyped(field, str(error)) from None


def moment_of(visit: Visit, given: GivenTime, field: str = "value") -> datetime:
    """Return the instant of a time that is not ``by`` a task's own; now is by Redis's clock.

    Raises:
        Mistyped: it can mean two times.
    """
    try:
        moment = given.moment(lambda: visit.now, lambda: zone_of(visit))
    except TypedTimeError as error:
        raise Mistyped(field, str(error)) from None
    return from_ms(clock.to_ms(moment, timezone.utc))


def zone_of(visit: Visit) -> tzinfo:
    """Return the zone of naive times.

    Raises:
        InvalidOption: this machine knows no such zone.
    """
    name = visit.request.values.get("zone", "")
    if not name:
        return visit.delayq.services.timezone
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidOption("zone", name, _ZONE) from None


def in_url(visit: Visit) -> dict[str, Any]:
    """Return the filters as they stand in the URL, without empty ones."""
    args = visit.request.args
    given = {name: [value for value in args.getlist(name) if value] for name in (*FILTERS, "zone")}
    return {name: some for name, some in given.items() if some}


def picked(visit: Visit) -> dict[str, Any]:
    """Return the filters as arguments of ``DelayQ.select``.

    Raises:
        Mistyped: a time is none.
        InvalidOption: a time is given twice, or the zone is none.
    """
    found: dict[str, Any] = {}
    spans = list[Ends]()
    for name, some in in_url(visit).items():
        if name in TIMES:
            if len(some) > 1:
                raise InvalidOption(name, some, "one time")
            spans.append(_ends_of(visit, name, some[0]))
        elif name in FILTERS:
            found[name] = some
    for name, end in zip(ENDS.values(), overlap(*spans), strict=True):
        if end is not None:
            found[name] = from_ms(clock.to_ms(end, timezone.utc))
    return found


def _ends_of(visit: Visit, name: str, text: str) -> Ends:
    span, now, zone = time_in_filter(name, text, name), lambda: visit.now, lambda: zone_of(visit)
    try:
        if name == "before" and span.last is not None:
            return None, span.last.moment(now, zone)
        return span.ends(now, zone)
    except TypedTimeError as error:
        raise Mistyped(name, str(error)) from None


def moved(visit: Visit, text: str) -> dict[str, Any]:
    """Return the arguments of a reschedule: ``at``, ``after`` or ``by``.

    Raises:
        Mistyped: it is no time.
    """
    given = time_of(text, due=True)
    if given.kind in ("after", "by"):
        return {given.kind: given.value}
    return {"at": moment_of(visit, given)}


def told_back(visit: Visit, moment: datetime, now: datetime) -> str:
    """Return an instant in the user's zone, and how far it is from now."""
    zone = zone_of(visit)
    return f"{told(moment, zone, name_of(zone))}, {soon(moment, now)}"


def instant_of(options: dict[str, Any], due: datetime, now: datetime) -> int:
    """Return the ms since 1970 that the arguments of a reschedule mean for a task, now."""
    if "by" in options:
        return clock.to_ms(due + options["by"], timezone.utc)
    return clock.to_ms(options["at"] if "at" in options else now + options["after"], timezone.utc)

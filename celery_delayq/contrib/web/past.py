"""What is over: the page of a task that left, the history, and where the search finds them.

    the tombstone, the history, the undo that is kept --+
    the result backend, which has a second -------------+--> how and when it left, and what it was
    the workers, if the user asks ----------------------+

The store keeps no more of a task that left than that. What is missing, the page says with the
setting that would keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, NamedTuple

from celery import states
from celery.result import AsyncResult
from celery.utils.saferepr import saferepr
from werkzeug.wrappers import Response

from ...core.clock import from_ms
from ...core.errors import InvalidOption, UnreadableRecord
from ...core.store import Departure, Outcome, What
from ...core.store.keys import checked_id, checked_name
from ...core.tasks import reading
from ...core.tasks.reading import QueueNames
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.text import counted, lasting, plain
from ...core.threads import gather, within
from ...operations import finding
from ...operations.cli.common import soon
from ...operations.queues import WORKERS_WAIT, answers
from . import words
from .actions import ACTIONS, undo_of
from .visit import Visit

EVENTS = 100  # on a page of the history
OF_BULK = 200  # on the page of a change of many
OWN_EVENTS = 50  # of one task, on its page
WAIT = 1.0  # seconds for the result backend
WORKERS_MOST = 6.0  # for the workers, with the way to their broker
NAMED = 50  # events that a search for an id or a key looks at
MOST = 1_000  # characters of a result

_LEAVES = (What.HANDED_OVER, What.CANCELLED, What.REPLACED, What.SKIPPED, What.REMOVED)
_HOW = {
    "handed_over": "Delivered",
    "skipped": "Skipped, as it was too late,",
    "cancelled": "Cancelled",
    "uncertain": "Cancelled, but a copy may have been delivered,",
    "replaced": "Replaced",
    "removed": "Removed",
}
_RUNS = ("handed_over", "uncertain", "")  # it may run, or have run
_LOOKS = {states.SUCCESS: "green", states.FAILURE: "red", states.RETRY: "amber"}
_AT = {"active": "runs it", "reserved": "has it, and has not begun", "ready": "has it"}
#: The filters of the history by their names in the URL, with their words.
FILTERS = {"task": "task", "by": "by", "what": "what", "text": "id or key"}


def events_of(visit: Visit, task_id: str) -> list[Any]:
    """Return what happened to a task, as far as a history is kept."""
    if not visit.delayq.services.settings.history:
        return []
    return visit.delayq.history(OWN_EVENTS, of=task_id)


class Result(NamedTuple):
    """What the result backend says of a task.

    Attributes:
        state: Its state there; empty if nothing is known.
        why: Why nothing is known.
        worker: The worker that ran it, or runs it; or empty.
        when: When it was done.
        value: What it returned, or the error.
        traceback: Where that was raised; or empty.
        name: The task's name, if the backend keeps that.
    """

    state: str = ""
    why: str = ""
    worker: str = ""
    when: datetime | None = None
    value: str = ""
    traceback: str = ""
    name: str = ""


def _result_of(visit: Visit, task_id: str) -> Result:
    services = visit.delayq.services
    if not services.has_backend:
        return Result(why="This app has no result backend: nothing says whether it ran.")
    try:
        return within(WAIT, partial(_asked, visit, task_id))
    except NoAnswer:
        return Result(why=f"The result backend did not answer within {lasting(WAIT)}.")
    except Exception as error:  # each backend has its own
        return Result(why=f"The result backend cannot be asked: {type(error).__name__}.")


def _asked(visit: Visit, task_id: str) -> Result:
    result: Any = AsyncResult(task_id, app=visit.delayq.services.app)  # which asks no store
    state = result.state
    if state == states.PENDING:
        return Result(
            why="The result backend has nothing of it: it has not begun, its result is ignored, "
            "or the result is older than result_expires."
        )
    if state not in states.READY_STATES:
        info = result.info if isinstance(result.info, dict) else {}
        return Result(state, worker=str(info.get("hostname", "")))
    when = result.date_done if isinstance(result.date_done, datetime) else None
    if when is not None and when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    value = result.result
    is_error = isinstance(value, BaseException)
    if visit.hides:
        shown = type(value).__name__ if is_error else "hidden"
    else:
        shown = plain(
            f"{type(value).__name__}: {value}"[:MOST] if is_error else saferepr(value, MOST)
        )
    return Result(
        state,
        worker=str(result.worker or ""),
        when=when,
        value=shown,
        traceback="" if visit.hides else str(result.traceback or ""),
        name=str(result.name or ""),
    )


def _workers(visit: Visit, task_id: str) -> list[str] | None:
    """Return what the workers say of a task; ``None`` if nobody asked them."""
    if "ask" not in visit.request.args:
        return None
    services = visit.delayq.services
    try:
        told = within(WORKERS_MOST, partial(answers, services, "query_task", ids=[task_id]))
    except NoAnswer:
        told = {}
    found = [
        f"Worker {name} {_AT.get(its[task_id][0], 'has it')}."
        for name, its in sorted(told.items())
        if isinstance(its, dict) and task_id in its
    ]
    if not told:
        return [f"No worker answered within {lasting(WORKERS_WAIT)}."]
    none = f"{counted(len(told), 'worker')} answered, and none has it"
    return found or [f"{none}: it is in its queue still, has ended, or is at one that is silent."]


def left(visit: Visit, task_id: str) -> Response:
    """Return the page of a task that is not in the store."""
    entries = visit.delayq.services.entries
    departure, events, kept, result, workers = gather(
        partial(entries.departure, task_id),
        partial(events_of, visit, task_id),
        partial(entries.kept, task_id),
        partial(_result_of, visit, task_id),
        partial(_workers, visit, task_id),
    )
    how, when, event = _how_it_left(departure, events)
    task = kept and _task_of(visit, kept.entry)
    bulk = (event.bulk if event else "") or (kept.bulk if kept else "")
    undo_kept = _undo_setting(visit)
    others, undo = gather(partial(_line_of, visit, bulk), partial(_undo_of, visit, bulk))
    is_known = bool(how or events or kept or result.state)
    code = visit.answer.status if visit.answer.sentence else 200 if is_known else 404
    name = (task.task if task else "") or _name_in(events) or result.name
    return visit.page(
        "left.html",
        code,
        id=task_id,
        name=name,
        how=_HOW.get(how, "This task is not scheduled"),
        look=_LOOKS.get(result.state, "") if how in _RUNS else "",
        by=event.actor if event else "",
        when=when,
        now=visit.now,
        soon=soon,
        unknown="" if how else words.answer(visit, "", Outcome.NOT_FOUND, task_id),
        result=result if how in _RUNS else None,
        workers=workers,
        ask=visit.url("task", id=task_id, ask="1"),
        asks=how in _RUNS,
        task=task,
        arguments=words.shown_arguments(visit, task) if task else [],
        event=event or next(iter(events), None),
        events=events,
        undo_until=_undo_until(visit, when) if kept else None,
        may_come_back=kept is not None and undo_kept is not None,
        most=undo_kept[1] if undo_kept else 0,
        bulk=bulk,
        others=others,
        missing=list(_missing(visit, how, events, is_kept=kept is not None)),
        **undo,
    )


def _how_it_left(
    departure: Departure | None, events: list[Any]
) -> tuple[str, datetime | None, Any | None]:
    """Return how and when a task left, as far as that is known, and its event."""
    event = next((each for each in events if each.what in _LEAVES), None)
    when, how = (from_ms(departure.when_ms), departure.how) if departure else (None, "")
    if event is None:
        return how, when, None
    if when is None or abs(event.when - when) <= timedelta(milliseconds=1):
        # A tombstone has fewer words. That a copy may have been delivered, only a tombstone says.
        return how if how == "uncertain" else event.what.value, event.when, event
    return how, when, None  # the event is of an earlier task with this id


def _task_of(visit: Visit, entry: Any) -> ScheduledTask:
    services = visit.delayq.services
    return ScheduledTask.of(entry, services.app, QueueNames(services).of(entry))


def _name_in(events: list[Any]) -> str:
    return next((each.task for each in events if each.task), "")


def _line_of(visit: Visit, bulk: str) -> Any:
    """Return the event of a change of many, if it is kept."""
    if not bulk or not visit.delayq.services.settings.history:
        return None
    found = visit.delayq.history(1, bulk=bulk)
    return found[0] if found and not found[0].id else None


def _undo_of(visit: Visit, bulk: str) -> dict[str, Any]:
    return undo_of(visit, ACTIONS["cancel"], bulk) if bulk else {"undoable": None, "undo": ""}


def _undo_setting(visit: Visit) -> tuple[float, int] | None:
    """Return how long, seconds, and of how many tasks what was cancelled is kept."""
    kept: Any = visit.delayq.services.settings.undo
    return (float(kept[0]), kept[1]) if kept else None


def _undo_until(visit: Visit, when: datetime | None) -> datetime | None:
    """Return until when the undo of a cancel is kept at least; ``None`` if that is over."""
    kept = _undo_setting(visit)
    if kept is None or when is None:
        return None
    until = when + timedelta(seconds=kept[0])
    return until if until > visit.now else None


def _missing(
    visit: Visit, how: str, events: list[Any], *, is_kept: bool
) -> Iterator[tuple[str, str]]:
    """Yield the settings that would have kept more of a task, each with a sentence."""
    settings = visit.delayq.services.settings
    if not how:
        seconds, tasks = settings.remember
        span = f"{lasting(float(seconds))}, and of {counted(tasks)}"
        yield "delayq_remember", f"How a task left is kept for {span}."
    if not settings.history:
        yield (
            "delayq_history",
            "It is 0. With it, this page says who did what, and the task's name.",
        )
    elif not events:
        yield "delayq_history", f"The last {settings.history:,} events are kept, and none is of it."
    if is_kept or how in ("handed_over", "skipped", "replaced"):
        return
    kept = _undo_setting(visit)
    if kept is None:
        yield (
            "delayq_undo",
            "It is 0. With it, a cancelled task keeps its arguments, and can come back.",
        )
    else:
        span = f"{lasting(kept[0])}, and of {counted(kept[1])}"
        yield "delayq_undo", f"What was cancelled is kept for {span}, and none is of it."


def history(visit: Visit) -> Response:
    """List the last events; or a change of many and its tasks, if the URL has its ``bulk``.

    The URL has the filters, and as ``cursor`` where the page begins.
    """
    args = visit.request.args
    bulk, kept = args.get("bulk") or None, visit.delayq.services.settings.history
    given = {name: args[name] for name in FILTERS if args.get(name)}
    most = OF_BULK if bulk else EVENTS
    cursor = args.get("cursor") or None
    events, names = gather(
        partial(visit.delayq.history, most + 1, bulk=bulk, cursor=cursor, **given),
        partial(finding.names_of, visit.delayq),
    )
    further = len(events) > most and events[most - 1].cursor
    shown = events[:most]
    return visit.page(
        "history.html",
        events=shown,
        bulk=bulk,
        changed=sum(each.count for each in shown if not each.id),
        shown=sum(1 for each in shown if each.id),
        kept=kept,
        given=given,
        filters=FILTERS,
        kinds=[what.value for what in What],
        names=names[0],
        cursor=cursor,
        next=visit.url("history", bulk=bulk, **given, cursor=further) if further else "",
    )


def where_of(visit: Visit, text: str, kind: str = "") -> str | None:
    """Return the URL of the page about an exact id or key; ``None`` if nothing is known of it.

    That is the page of a task that waits, or left, with this id; of a key that a delivered task
    holds; or of the task that has, or had last, this key.

    Args:
        visit: The visit.
        text: The id or the key.
        kind: ``id`` or ``key``, if it is known to be that.
    """
    services, is_id, is_key = visit.delayq.services, kind != "key", kind != "id"
    with suppress(InvalidOption):
        checked_id(text)
        if is_id and _is_known(visit, text):
            return visit.url("task", id=text)
        holder = services.entries.holder(checked_name("key", text)) if is_key else None
        if holder is not None:
            is_held = holder.state == "left"
            return visit.url("key", key=text) if is_held else visit.url("task", id=holder.id)
        if services.settings.history:
            events = visit.delayq.history(NAMED, text=text)
            named = (
                each.id
                for each in events
                if (is_id and each.id == text) or (is_key and each.key == text)
            )
            if found := next(named, None):
                return visit.url("task", id=found)
    return None


def _is_known(visit: Visit, task_id: str) -> bool:
    """Whether a task with this id waits, or left as far as the store remembers."""
    services = visit.delayq.services
    try:
        state, departure, kept = gather(
            partial(services.entries.state, task_id),
            partial(reading.departure, services, task_id),
            partial(services.entries.kept, task_id),
        )
    except UnreadableRecord:
        return True
    return bool(state or departure or kept)

"""Reads of waiting tasks: one, all in due order, how many.

tag=, queue=, before_due= ... --> Picks --> the store --> entries --> ScheduledTask
                                                             ^
                                    the name of its queue ---+

First the picks of a call, made at the face: they travel whole to what reads or changes the tasks.
Then the reads, each a method of ``DelayQ``. Then how the name of a queue is found, of which the
store has only a hash: among the app's queues, paused queues and tasks' destinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import cached_property, partial
from itertools import chain, islice
from sys import maxsize
from typing import Any, TypeVar, Union

from celery.app.task import Context, Task
from celery.result import AsyncResult

from .. import clock
from ..clock import TimeInput, from_ms
from ..errors import InvalidOption
from ..message.headers import DUE_HEADER
from ..message.outgoing import Route, queues_of_list
from ..services import HasServices, Services
from ..store import (
    Counts,
    Departure,
    Entry,
    Filter,
    Listing,
    QueueCount,
    State,
    checked_name,
    label_of,
)
from ..store.counts import falling_due
from ..store.record import UNKNOWN_TAG
from .scheduled_task import Named, ScheduledTask, of_one_task, target_of

MOST = 100  # values of one filter: scripts compare each entry with all of them
UNKNOWN = "UNKNOWN"  # no state of its own, but of SCHEDULED tasks that no worker knew
_ALONE = f"{UNKNOWN} alone, without a tag or another state"
#: The names of the states that a filter takes.
STATES = (*(known.value for known in State), UNKNOWN)

Text = TypeVar("Text", bound=str)
Value = TypeVar("Value")
#: A filter's value, or a list of values of which any is enough.
OneOf = Union[Value, Sequence[Value], set[Value], frozenset[Value]]


@dataclass(frozen=True)
class Picks:
    """The tasks that a call takes, as its user says it: the arguments of :func:`select`."""

    tag: OneOf[str] | None = None
    task: OneOf[Task[..., Any] | str] | None = None
    queue: OneOf[str] | None = None
    state: OneOf[State | str] | None = None
    after_due: TimeInput | None = None
    before_due: TimeInput | None = None
    all: bool = False
    limit: int | None = None
    cursor: str | None = None

    @property
    def has_filter(self) -> bool:
        """Whether there is a filter, valid or not."""
        filters = (self.tag, self.task, self.queue, self.state, self.after_due, self.before_due)
        return any(value is not None for value in filters)

    def filter(self, zone: tzinfo) -> Filter:
        """Return the filter for the store; naive times are in *zone*.

        Raises:
            InvalidOption: a value, or the limit, is none of its option.
            InvalidDueTime: not a time.
        """
        check_limit(self.limit, "tasks")
        if self.state is not None and self._is_unknown:
            return replace(self, state=None, tag=UNKNOWN_TAG).filter(zone)
        after, before = self.after_due, self.before_due
        return Filter(
            tags=_values("tag", self.tag, partial(checked_name, "tag")),
            tasks=_values("task", self.task, _task_name),
            queues=_values("queue", self.queue, _queue_name),
            states=_values("state", self.state, _state),
            after_ms=None if after is None else clock.at(after, zone).ms,
            before_ms=None if before is None else clock.at(before, zone).ms,
        )

    @property
    def _is_unknown(self) -> bool:
        """Whether it takes the tasks that no worker knew, which have a tag.

        Raises:
            InvalidOption: it takes a tag, or a state, as well.
        """
        given: Any = self.state
        some = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
        names = [_name_of(state) for state in some]
        if UNKNOWN not in names:
            return False
        if self.tag is not None or names != [UNKNOWN]:
            raise InvalidOption("state", self.state, _ALONE)
        return True


def check_limit(limit: int | None, things: str) -> None:
    """Raise ``InvalidOption`` if *limit* is not a valid number of *things*."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidOption("limit", limit, f"a whole number of {things} from 0")


def _values(name: str, given: Any, checked: Callable[[Any], Text]) -> tuple[Text, ...]:
    """Return the values of a filter, each once; none if it was not given."""
    if given is None:
        return ()
    some = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
    # A list without values would otherwise select everything.
    if not 0 < len(some) <= MOST:
        raise InvalidOption(name, given, f"one value, or a list of 1 to {MOST}")
    return tuple(sorted({checked(value) for value in some}))


def _task_name(task: Any) -> str:
    name = task if isinstance(task, str) else getattr(task, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidOption("task", task, "a task, or a task's name")
    return name


def _queue_name(queue: Any) -> str:
    if not isinstance(queue, str) or not queue:
        raise InvalidOption("queue", queue, "a queue's name")
    return queue


def _state(state: Any) -> State:
    try:
        return State(_name_of(state))
    except ValueError:
        expected = f"a State, or one of {', '.join(STATES)}"
        raise InvalidOption("state", state, expected) from None


def _name_of(state: Any) -> Any:
    return state.upper() if isinstance(state, str) else state


@of_one_task
def get(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> ScheduledTask | None:
    """A scheduled task, by its id or its unique key; or ``None``.

    Raises:
        UnreadableRecord: its record is damaged, or has the format of a later release.
    """
    services = delayq.services
    entry = services.entries.find(target_of(task_id, key))
    if entry is None:
        return None
    return ScheduledTask.of(entry, services.app, QueueNames(services).of(entry))


def tasks(
    delayq: HasServices,
    *,
    tag: OneOf[str] | None = None,
    task: OneOf[Task[..., Any] | str] | None = None,
    queue: OneOf[str] | None = None,
    after_due: TimeInput | None = None,
    before_due: TimeInput | None = None,
    newest_first: bool = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> Iterator[ScheduledTask]:
    """Waiting tasks in due order, read page by page as you iterate.

    They include paused tasks, and refused tasks that will be retried. The filters are those of
    :meth:`select`, and take lists too.

    By queue or task, Redis looks at all waiting tasks up to the last one that you take, 200 at a
    time, and sends only the matches. By tag, the first step reads the due times of all matches, at
    most 100,000. A task that is rescheduled afterwards keeps the place of the due time that was
    read, so while others reschedule, the list may be out of order.

    Args:
        tag: Only tasks with this tag.
        task: Only calls of this task; a task or its name.
        queue: Only tasks sent with this queue.
        after_due: Only tasks due at this time or later.
        before_due: Only tasks due earlier than this.
        newest_first: Begin with the latest due time.
        limit: The maximum number of tasks.
        cursor: Continue after the task that has this ``cursor``; you can store it. A task whose
            due time stays the same is neither repeated nor left out, even if others come and go.

    Raises:
        InvalidOption: a filter, *newest_first* or *limit* is invalid; *cursor* is not a cursor, or
            belongs to another store. As you iterate: more than 100,000 waiting tasks have the tag.
        InvalidDueTime: *after_due* or *before_due* is not a time.
    """
    picks = Picks(tag, task, queue, None, after_due, before_due, limit=limit, cursor=cursor)
    return in_due_order(delayq.services, picks, newest_first=newest_first)


def in_due_order(
    services: Services, picks: Picks, *, newest_first: bool = False
) -> Iterator[ScheduledTask]:
    """Yield waiting tasks in due order; see :func:`tasks`. The picks have no state."""
    if not isinstance(newest_first, bool):
        raise InvalidOption("newest_first", newest_first, "true or false")
    chosen = picks.filter(services.timezone)
    # islice cannot count further than maxsize, and no store holds that many.
    size = maxsize if picks.limit is None else min(picks.limit, maxsize)
    what = Listing(
        0 if chosen.after_ms is None else chosen.after_ms,
        clock.MAX_DUE_MS + 1 if chosen.before_ms is None else chosen.before_ms,
        replace(chosen, after_ms=None, before_ms=None),
        newest_first,
        picks.cursor,
        max(1, size),
    )
    entries = services.entries.waiting(what)
    queues = QueueNames(services)
    found = (ScheduledTask.of(entry, services.app, queues.of(entry)) for entry in entries)
    return islice(found, size)


def counts(delayq: HasServices) -> Counts:
    """How many tasks are in which state, and how many scanners are alive."""
    return delayq.services.entries.counts()


@of_one_task
def state(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> State | None:
    """The state of a scheduled task, or ``None`` if it is not in the store."""
    services = delayq.services
    return services.entries.state(target_of(task_id, key))


@of_one_task
def handed_over(
    delayq: HasServices, task_id: Named | None = None, *, key: str | None = None
) -> datetime | None:
    """When a task was delivered to its queue; ``None`` if it was not, or the store forgot.

    For a key, this is the last task that left, as long as no other task waits under the key.
    """
    services = delayq.services
    when_ms = services.entries.handed_over_ms(target_of(task_id, key))
    return None if when_ms is None else clock.from_ms(when_ms)


def due_of(
    delayq: HasServices,  # noqa: ARG001
    request: Context | Task[..., Any],
) -> datetime | None:
    """When the task of *request* (``self.request`` in a bound task) was due, if scheduled.

    Raises:
        InvalidOption: it is neither a task's request nor a running task.
    """
    if isinstance(request, Task):
        request = request.request
    if not isinstance(request, Context):
        hint = "; for a result, use .due" if isinstance(request, AsyncResult) else ""
        raise InvalidOption("request", request, f"self.request, in a bound task{hint}")
    due_ms = request.get(DUE_HEADER)
    if due_ms is None:
        return None
    # A released task was sent before it was due, with its due time as the eta.
    return clock.celery_time(request.eta) if request.eta else from_ms(due_ms)


def ahead(
    services: Services, span_ms: int, spans: int, after_ms: int = -1
) -> tuple[int, list[int]]:
    """Return the time now, in ms, and how many tasks fall due in each span; see the store's."""
    return falling_due(services.entries.shards, span_ms, spans, after_ms)


def departure(
    services: Services, task_id: Named | None = None, *, key: str | None = None
) -> Departure | None:
    """Return how and when a task left the store; ``None`` if it waits, or the store forgot."""
    return services.entries.departure(target_of(task_id, key))


class QueueNames:
    """Finds the queue names of entries.

    It calls the store at most once: for the pauses, if neither an entry's destination nor the app
    has the name.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[bytes, str] = {}

    def of(self, entry: Entry) -> str:
        """Return the queue of an entry; empty if its record cannot be read."""
        record = entry.record
        if not record.text:
            return ""
        _, label = record.labels
        if label not in self._known:
            kind = "L" if record.is_for_list else "R"
            self._known[label] = self._found(QueueCount(label, 0, 0, kind, record.destination))
        return self._known[label]

    def _found(self, tally: QueueCount) -> str:
        # Any name with this hash is the right one, so try the cheapest sources first.
        names = names_in(tally, self._services.broker.options)
        known = chain(names, self._services.app.amqp.queues, self._paused())
        return next((name for name in known if label_of(name) == tally.label), names[0])

    def _paused(self) -> Iterator[str]:
        yield from self._pauses

    @cached_property
    def _pauses(self) -> list[str]:
        return [pause.queue for pause in self._services.entries.pauses() if pause.queue]


def names_in(tally: QueueCount, options: Any) -> Sequence[str]:
    """Return possible names of the queue, from a task's destination; the likeliest first."""
    if tally.kind == "L":
        return queues_of_list(tally.place, options)
    # Any client of the store can write an invalid route.
    try:
        return [*_names_of(Route.parse(tally.place))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [tally.place]


def _names_of(route: Route) -> Iterator[str]:
    yield str(route.routing_key)
    yield from (str(entity.name) for entity in route.declare)

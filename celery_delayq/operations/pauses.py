"""What keeps tasks back: a unique key that a task holds, and a pause of a queue, a task or all."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timezone
from shlex import quote
from typing import Any, NamedTuple

from celery.app.task import Task

from ..core import clock
from ..core.errors import InvalidOption, StoreError
from ..core.hooks import by
from ..core.services import HasServices, Services
from ..core.store import KeyHolder, Outcome, Pause, What, lane_for, lane_in_words
from ..core.store.counts import OVERDUE
from ..core.store.keys import checked_name
from ..core.store.lookup import held_keys as held_of
from ..core.text import counted, lasting, logger_of, plain

logger = logger_of(__name__)

LOOK = 1000  # keys of one look: some 5 ms of Redis's time

_PLACE = re.compile(r"(\d{1,2}):(\d{0,17}):(.*)", re.DOTALL)


def holder(delayq: HasServices, *, key: str) -> KeyHolder | None:
    """The task that holds a unique key, waiting or delivered; or ``None``."""
    return delayq.services.entries.holder(checked_name("key", key))


def free(delayq: HasServices, *, key: str, if_holder: KeyHolder | None = None) -> Outcome:
    """Free a unique key that a task still holds although it was delivered.

    If another task waits behind it, that one gets the key, and waits for its due time. If the task
    runs after all, it goes on, beside the next one with this key; its end frees no other task's
    key. Use this if you know that it does not run any more, as its worker was killed, or its
    message was purged.

    Args:
        key: The unique key.
        if_holder: Free it only if this delivery still holds it; from :meth:`holder`.

    Returns:
        ``Outcome.DONE``, the only true one; or why nothing was changed. ``NOT_FOUND``: nothing
        holds it. ``UNCHANGED``: its task waits, so cancel that, or something else than *if_holder*
        holds it. ``IN_FLIGHT``: its task is being published right now.
    """
    if not (if_holder is None or isinstance(if_holder, KeyHolder)):
        raise InvalidOption("if_holder", if_holder, "what delayq.holder(key=...) returned")
    # No delivery has the name "-": a task that has not left has none yet.
    seen = "" if if_holder is None else if_holder.delivery or "-"
    outcome, task_id = delayq.services.entries.free(checked_name("key", key), seen)
    if outcome:
        logger.info("key %s was freed%s; task %s held it", key, by(), task_id)
    return outcome


class Held(NamedTuple):
    """Some of the keys that are held on, or have a task behind their holder.

    Attributes:
        found: Their holders; of each shard, those first whose key may be free first.
        place: Where the next part begins; empty after the last one.
    """

    found: list[KeyHolder]
    place: str


def held_keys(
    services: Services, begins: str = "", *, most: int, seconds: float, place: str = ""
) -> Held:
    """Return keys that a task holds although it was delivered, or that another task waits for.

    Args:
        services: The app's services.
        begins: How they begin.
        most: The most to return.
        seconds: When to stop; at least one part is looked at.
        place: Where to begin, from an earlier answer.

    Raises:
        InvalidOption: *place* is none.
        StoreError: Redis cannot be reached.
    """
    shards, found, until = services.entries.shards, list[KeyHolder](), clock.monotonic() + seconds
    number, last = _place_in(place, len(shards))
    while number < len(shards):
        part = held_of(shards[number], begins, last, LOOK, most - len(found))
        found += part.found
        number, last = (number, part.last) if part.last else (number + 1, None)
        if len(found) >= most or clock.monotonic() >= until:
            break
    if number == len(shards):
        return Held(found, "")
    return Held(found, ":".join((str(number), *reversed(last or ("", "")))))


def _place_in(place: str, shards: int) -> tuple[int, tuple[str, str] | None]:
    found = _PLACE.fullmatch(place or "0::")
    if not found or int(found[1]) >= shards:
        raise InvalidOption("place", place, "the place at which a part of the keys ended")
    return int(found[1]), (found[3], found[2]) if found[3] else None


_LONGEST_NAME = 512  # bytes
_MIN_RATE, _MAX_RATE = 0.001, 1_000_000.0
_ONE = "queue= or task=, or all=True for everything, and only one of them"
_RATE = f"a number of tasks a second from {_MIN_RATE} to {_MAX_RATE:.0f}"


def pause(
    delayq: HasServices,
    *,
    queue: str | None = None,
    task: str | Task[..., Any] | None = None,
    all: bool = False,
    late: bool = False,
) -> None:
    """Stop delivering the tasks of a queue, of a task, or all tasks, until you resume.

    The pause is in force when this call returns; only tasks that a scanner is already publishing
    still go. Paused tasks wait without blocking others. You can cancel and reschedule them.

    Args:
        queue: The queue: the name that tasks were sent with, or their routing key.
        task: The task, or its name.
        all: Everything; required if you name neither a queue nor a task.
        late: Whether the paused time counts as lateness, for tasks with a grace period.

    Raises:
        InvalidOption: an invalid name; or not exactly one of *queue*, *task* and *all*.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    queue, name = _checked(queue, task, all)
    if not isinstance(late, bool):
        raise InvalidOption("late", late, "true or false")
    delayq.services.entries.pause(lane_for(queue, name), queue or name or "", late=late)
    _note(delayq.services, What.PAUSED, queue, name)
    logger.info("%s is paused%s", lane_in_words(queue, name), by())


def resume(
    delayq: HasServices,
    *,
    queue: str | None = None,
    task: str | Task[..., Any] | None = None,
    all: bool = False,
    rate: float | None = None,
) -> bool:
    """Deliver paused tasks again; pass the same arguments as to :meth:`pause`.

    Args:
        queue: As for :meth:`pause`.
        task: As for :meth:`pause`.
        all: The pause of everything, which is one of its own: those of queues and tasks stay.
        rate: How many of the overdue tasks to deliver per second, in due order; by default as
            many as possible. Tasks that fall due from now on are delivered at once.

    Returns:
        Whether it was paused, or still resuming at a rate.

    Raises:
        InvalidOption: as for :meth:`pause`, or a rate outside 0.001 to 1,000,000.
        kombu.exceptions.OperationalError: Redis cannot be reached.
    """
    if rate is not None and not _is_rate(rate):
        raise InvalidOption("rate", rate, _RATE)
    queue, name = _checked(queue, task, all)
    was_paused = delayq.services.entries.resume(lane_for(queue, name), rate)
    if was_paused:
        at = "" if rate is None else f", at {rate:g} tasks a second"
        _note(delayq.services, What.RESUMED, queue, name)
        logger.info("%s is resumed%s%s", lane_in_words(queue, name), at, by())
    return was_paused


def _note(services: Services, what: What, queue: str | None, task: str | None) -> None:
    """Add the event to the history, if there is one; no error is raised, as the change is done."""
    if services.settings.history:
        lane = f"q{queue}" if queue is not None else f"t{task}" if task is not None else ""
        with suppress(StoreError):
            services.entries.note(what, lane)


def pauses(delayq: HasServices) -> list[Pause]:
    """The pauses, each with its number of due tasks; also those resuming at a rate."""
    return delayq.services.entries.pauses()


def in_words(pause: Pause, now_ms: int) -> str:
    """Return a pause in the words of ``health``, doctor and the page; empty if it holds nothing.

    That is a pause whose tasks come back without a rate.
    """
    if pause.resumed and not pause.seconds_left:
        return ""
    what = plain(pause.what)
    if pause.resumed:
        return (
            f"{what} comes back at {pause.rate:g} a second: {counted(pause.parked)} left, the last "
            f"one's turn is in {lasting(pause.seconds_left)}"
        )
    since = f"{what} is paused since {pause.since.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    if not pause.parked:
        of = "" if pause.is_exact else f" among the {OVERDUE} that were looked at"
        return f"{since}: no paused task is due{of}"
    are, held = "is" if pause.parked == 1 else "are", lasting(pause.seconds_held(now_ms))
    return f"{since}: {pause.parked_in_words} {are} due and not delivered, the first for {held}"


def to_resume(pause: Pause) -> str:
    """Return the command line that ends a pause."""
    for option, name in (("--queue", pause.queue), ("--task", pause.task)):
        if name is not None:
            return f"celery -A proj delayq resume {option} {quote(plain(name))}"
    return "celery -A proj delayq resume --all"


def is_all_paused(services: Services) -> bool:
    """Return whether everything is paused, and not resuming."""
    return any(
        not (found.queue or found.task or found.resumed) for found in services.entries.pauses()
    )


def _is_rate(rate: Any) -> bool:
    is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    return is_number and _MIN_RATE <= rate <= _MAX_RATE


def _checked(queue: Any, task: Any, all: Any) -> tuple[str | None, str | None]:
    """Return the names of the queue and of the task; neither, if everything is meant.

    Raises:
        InvalidOption: none, or more than one, is given; or one is not a name.
    """
    if not isinstance(all, bool) or (queue is not None) + (task is not None) + all != 1:
        raise InvalidOption("all", all, _ONE)
    name = task.name if isinstance(task, Task) else task
    for option, value in (("queue", queue), ("task", name)):
        if value is not None and not _is_name(value):
            raise InvalidOption(option, value, f"a name of 1 to {_LONGEST_NAME} bytes")
    return queue, name


def _is_name(value: Any) -> bool:
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False

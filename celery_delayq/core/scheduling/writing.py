"""Writes entries into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from celery.utils import uuid

from .. import clock
from ..errors import DelayQError, StoreError
from ..message.headers import continues
from ..message.outgoing import OutgoingMessage
from ..services import Services
from ..store import Cancelled, NewEntry, Receipt, Wanted, id_beside
from . import past


@dataclass(frozen=True)
class Ready:
    """An entry that can be written, and its parts.

    ``policy``: how often to ask the store again while it does not answer.
    """

    new: NewEntry
    message: OutgoingMessage
    header: bytes
    policy: Mapping[str, Any]


def new_id(services: Services, key: str) -> str:
    """Return an id for a new task; with a key, and over several shards, one on the key's shard."""
    return id_beside(key, services.settings.shards) if key else uuid()


def write(
    services: Services,
    new: Sequence[NewEntry],
    policy: Mapping[str, Any],
    *,
    supersede: bool = False,
    given_out: bool = True,
) -> list[Receipt | DelayQError]:
    """Schedule entries in one step, repeated as *policy* says while Redis cannot be reached.

    All attempts together take ``delayq_timeout`` at most. Then it waits for replicas, if so set: at
    once, as Redis remembers its answers only for a while. Then it calls the hooks, and stores
    ``REVOKED`` for tasks that were replaced or kept out.

    Args:
        services: The services of their app.
        new: The entries.
        policy: Celery's retry policy.
        supersede: See :meth:`Entries.schedule`.
        given_out: Whether a caller may know their ids already. Then an entry that is not written,
            as another one is kept, also becomes ``REVOKED``.

    Returns:
        As :meth:`Entries.schedule`.
    """
    store = services.configured
    settings = store.settings
    until = clock.monotonic() + settings.timeout
    pauses = _pauses(policy)
    # Without a conflict policy no task can be replaced, and no backend is needed.
    can_replace = any(entry.conflict for entry in new)
    owed = can_replace and services.has_backend
    tells = can_replace and bool(services.hooks.hears_messages())
    revokes = ("all" if given_out else "replaced") if owed else "none"
    try:
        answers = store.entries.schedule(
            new, supersede=supersede, revokes=revokes, tells=tells, until=until, pauses=pauses
        )
    except StoreError as error:
        services.hooks.unscheduled(len(new), type(error).__name__)
        raise
    try:
        if settings.wait_replicas is None:
            return answers
        return _replicated(services, answers, Wanted(*settings.wait_replicas))
    finally:  # also if a time limit or Ctrl-C ends the wait: the entries are written
        # By then a scanner may have stored REVOKED.
        _tell(services, new, answers, owed, late=clock.monotonic() > until)


def _tell(
    services: Services,
    new: Sequence[NewEntry],
    answers: Sequence[Receipt | DelayQError],
    owed: bool,
    *,
    late: bool,
) -> None:
    scheduled: list[tuple[NewEntry, int]] = []
    replaced: list[Cancelled] = []
    gave_way: list[Cancelled] = []
    for entry, answer in zip(new, answers, strict=True):
        if isinstance(answer, Receipt):
            (gave_way if answer.existed else replaced).extend(answer.cancelled)
            if not answer.existed:
                scheduled.append((entry, answer.due_ms))
    if scheduled and any(hears() for hears in services.hooks.hears_scheduled):
        services.hooks.scheduled(scheduled)
    if replaced:
        services.will_not_run(replaced, owed=owed, late=late)
    if gave_way:
        services.will_not_run(gave_way, owed=owed, late=late, gave_way=True)


def _replicated(
    services: Services, answers: list[Receipt | DelayQError], wanted: Wanted
) -> list[Receipt | DelayQError]:
    """Return the same answers, with the number of replicas in each receipt."""
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    if not receipts:
        return answers
    replicas = services.entries.wait_for_replicas(receipts, wanted)
    fell_short = [
        receipt for receipt in receipts if replicas < wanted.replicas and not receipt.existed
    ]
    if fell_short:
        services.hooks.unreplicated(len(fell_short))
    return [
        replace(answer, replicas=replicas) if isinstance(answer, Receipt) else answer
        for answer in answers
    ]


def _pauses(policy: Mapping[str, Any]) -> Iterator[float]:
    """Return the pauses of Celery's retry policy, with kombu's defaults."""
    start, step = policy.get("interval_start", 2), policy.get("interval_step", 2)
    most = policy.get("interval_max", 30)
    growing = (min(start + n * step, most) for n in count())
    return islice(growing, policy.get("max_retries"))


def write_one(
    services: Services, ready: Ready, *, given_out: bool = True, frozen: bool = False
) -> Receipt:
    """Schedule one entry; see :func:`write`.

    Args:
        services: The services of its app.
        ready: The entry.
        given_out: As for :func:`write`.
        frozen: Whether its signature had its id already, which a task may have had before.

    Raises:
        DelayQError: the reason why it was not scheduled.
    """
    task_id, had = ready.new.task_id, past.Past()
    running = services.app.current_worker_task
    # The running task schedules itself anew: the entry that may have delivered it gives way.
    supersede = running is not None and running.request.id == task_id
    if supersede and not continues(ready.message.headers, running.request):
        given_out = False  # if another task is kept, this run still ends as itself
    elif given_out and not supersede and (frozen or past.is_chosen(task_id)):
        had = past.of_message(services, task_id, ready.message)
    try:
        (answer,) = write(
            services, [ready.new], ready.policy, supersede=supersede, given_out=given_out
        )
    except StoreError as error:
        error.task_id = task_id
        if had and not error.may_have_run:
            past.remember(services, had)
        raise
    if isinstance(answer, DelayQError):
        past.remember(services, had)
        raise answer
    return answer

"""Writes entries into the store, and leaves to Celery the messages that the store does not take.

    captured, or put off --> too large, or refused a moment ago --> Celery's sender    left
                  |
                  +--------> the store --> refuses, or does not answer --> the broker  published

``write`` schedules entries, ``write_one`` one of them. An id that a caller chose may have had a
task before: its ``REVOKED`` or its result would be taken for the new task's, and Celery never
replaces a ``SUCCESS`` that a key-value backend has. So a state that the backend has of it is
deleted, and in this process what its cache and the received messages have.

``Refusals`` and ``Broker`` are about captured messages. A call with an option of ours is refused
instead: a message cannot have a key, tags or a grace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from celery import states
from celery.utils import uuid

from .. import clock
from ..errors import DelayQError, StoreError
from ..leaves import leaf
from ..message import broker
from ..message.headers import (
    EXPIRES_HEADER,
    HAND_OVER_HEADER,
    HOLD_HEADER,
    LAUNCH,
    REDELIVERED_HEADER,
    Hold,
    continues,
    expiry_after,
    give_identity,
)
from ..message.outgoing import OutgoingMessage
from ..services import Services
from ..store import Cancelled, NewEntry, Receipt, Wanted, id_beside
from ..store.schedule import Addition
from ..text import logger_of

logger = logger_of(__name__)

RESTS = 30.0  # seconds in which a backend that failed is not asked again
_MOST_RECEIVED = 100  # messages to take from the backend's connection, at most
_LENGTH, _VERSION = 36, 14  # of an id made by Celery, and the place of its "4"
SHORTEST = 5.0  # seconds without the store after it has refused a captured message
_SHARE = 9  # times as long as the refusal took: callers wait for a tenth of the time at most

Past = dict[str, dict[str, Any]]  # id -> what the backend had


@dataclass(frozen=True)
class Ready:
    """An entry that can be written, and its parts.

    Attributes:
        policy: How often to ask the store again while it does not answer.
        given_out: See :func:`write`.
        frozen: Whether its signature had its id already, which a task may have had before.
    """

    new: NewEntry
    message: OutgoingMessage
    header: bytes
    policy: Mapping[str, Any]
    given_out: bool = True
    frozen: bool = False


def new_id(services: Services, key: str) -> str:
    """Return an id for a new task; with a key, and over several shards, one on the key's shard."""
    return id_beside(key, services.settings.shards) if key else uuid()


def write_one(services: Services, ready: Ready) -> Receipt:
    """Schedule one entry; see :func:`write`.

    Raises:
        DelayQError: the reason why it was not scheduled.
    """
    task_id, given_out, had = ready.new.task_id, ready.given_out, Past()
    running = services.app.current_worker_task
    # The running task schedules itself anew: the entry that may have delivered it gives way.
    supersede = running is not None and running.request.id == task_id
    if supersede and not continues(ready.message.headers, running.request):
        given_out = False  # if another task is kept, this run still ends as itself
    elif given_out and not supersede and (ready.frozen or _is_chosen(task_id)):
        had = _of_message(services, task_id, ready.message)
    try:
        (answer,) = write(
            services, [ready.new], ready.policy, supersede=supersede, given_out=given_out
        )
    except StoreError as error:
        error.task_id = task_id
        if had and not error.may_have_run:
            remember(services, had)
        raise
    if isinstance(answer, DelayQError):
        remember(services, had)
        raise answer
    return answer


def write(
    services: Services,
    new: Sequence[NewEntry],
    policy: Mapping[str, Any],
    *,
    supersede: bool = False,
    given_out: bool = True,
    unless_left: bool = False,
) -> list[Receipt | DelayQError]:
    """Schedule entries in one step, repeated as *policy* says while Redis cannot be reached.

    All attempts together take ``delayq_timeout`` at most. Then it waits for replicas, if so set: at
    once, as Redis remembers its answers only for a while. Then it calls the hooks, and stores
    ``REVOKED`` for tasks that were replaced or kept out.

    Args:
        services: The services of their app.
        new: The entries.
        policy: Celery's retry policy.
        supersede: See :class:`Addition`.
        given_out: Whether a caller may know their ids already. Then an entry that is not written,
            as another one is kept, also becomes ``REVOKED``.
        unless_left: See :class:`Addition`.

    Returns:
        As :meth:`Entries.schedule`.
    """
    store = services.configured
    settings = store.settings
    # Without a conflict policy no task can be replaced, and no backend is needed.
    can_replace = any(entry.conflict for entry in new)
    owes = can_replace and services.has_backend
    what = Addition(
        supersede=supersede,
        revokes=("all" if given_out else "replaced") if owes else "none",
        tells=can_replace and bool(services.hooks.hears_messages()),
        unless_left=unless_left,
        until=clock.monotonic() + settings.timeout,
        pauses=_pauses(policy),
    )
    try:
        answers = store.entries.schedule(new, what)
    except StoreError as error:
        services.hooks.unscheduled(len(new), type(error).__name__)
        raise
    try:
        if settings.wait_replicas is None:
            return answers
        return _replicated(services, answers, Wanted(*settings.wait_replicas))
    finally:  # also if a time limit or Ctrl-C ends the wait: the entries are written
        _tell(services, what, new, answers)


def _tell(
    services: Services,
    what: Addition,
    new: Sequence[NewEntry],
    answers: Sequence[Receipt | DelayQError],
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
    late = clock.monotonic() > what.until  # by then a scanner may have stored REVOKED
    if replaced:
        services.will_not_run(replaced, owed=what.owes, late=late)
    if gave_way:
        services.will_not_run(gave_way, owed=what.owes, late=late, gave_way=True)


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


def forget(services: Services, task_ids: Iterable[str]) -> Past:
    """Forget the states of ids that are about to be scheduled; return them.

    It happens before: afterwards the new task may have stored its own. Never raises. A backend that
    fails costs what its own retries cost, and is then left alone for a while.
    """
    backend, past = services.app.backend, Past()
    rests = clock.monotonic() < services.backend_rests_until
    if rests or not services.has_backend or _is_rpc(backend):
        return past
    try:
        for task_id in task_ids:
            backend._cache.pop(task_id, None)
            had = backend.get_task_meta(task_id, cache=False)
            if had["status"] != states.PENDING:
                past[task_id] = had
                # Not `forget`, which stops this process from listening for running tasks.
                backend._forget(task_id)
                _drop_received(backend, task_id)
    except Exception as error:
        services.backend_rests_until = clock.monotonic() + RESTS
        logger.warning("ids that are used again keep their old results: %s", repr(error))
    return past


def remember(services: Services, past: Past) -> None:
    """Store the states again of ids that were not scheduled after all."""
    for task_id, had in past.items():
        with suppress(Exception):
            services.app.backend.store_result(
                task_id, had["result"], had["status"], traceback=had.get("traceback")
            )


def _is_chosen(task_id: str) -> bool:
    """Whether an id is none that Celery makes, which is random and has no past."""
    return len(task_id) != _LENGTH or task_id[_VERSION] != "4"


def _of_message(services: Services, task_id: str, message: OutgoingMessage) -> Past:
    """As :func:`forget`, for a task, or the parts of a canvas, about to be scheduled."""
    if message.headers.get("task") == LAUNCH:
        return forget(services, leaf("canvas").task_ids(message.payload))
    return {} if message.headers.get("ignore_result") else forget(services, [task_id])


def _is_rpc(backend: Any) -> bool:
    """Whether results are messages to the caller, which are not kept."""
    return bool(backend.as_uri() == "rpc://")


def _drop_received(backend: Any, task_id: str) -> None:
    """Drop messages about the id that this process has received, but not read."""
    consumer = getattr(backend, "result_consumer", None)
    subscribed = getattr(consumer, "subscribed_to", None)
    if consumer is None or subscribed is None:
        return
    key = backend.get_key_for_task(task_id)
    for _ in range(_MOST_RECEIVED):
        if key not in subscribed:  # Celery has read the message of its end
            break
        consumer.drain_events(timeout=0)
    while backend._pending_messages.take(task_id, None) is not None:
        pass


class Refusals:
    """Whether the store has refused a captured message a moment ago; shared by threads.

    A forked child inherits the time, which is as good there.
    """

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def is_recent(self) -> bool:
        """Whether captured messages do not go to the store now."""
        return clock.monotonic() < self._until

    def note(self, began: float) -> float:
        """Note a refusal of a call that began then; return for how many seconds it counts."""
        now = clock.monotonic()
        seconds = max(SHORTEST, _SHARE * (now - began))
        self._until = now + seconds
        return seconds


@dataclass(frozen=True)
class Broker:
    """The way by which Celery would publish a message, noted before scheduling changes it.

    Attributes:
        producer: Celery's.
        options: Options of ``publish`` that differ.
        eta: The message's.
        hold: The key that its task holds.
        stands_for: The name of the message whose task defers itself; or empty.
        names: Whether the message needs a name of its own.
    """

    producer: Any
    options: Mapping[str, Any]
    eta: str
    hold: Hold | None
    stands_for: str
    names: bool

    def publish(self, body: Any, options: dict[str, Any], *, uncertain: bool) -> Any:
        """Publish a complete message; *uncertain*: it may be in the store as well."""
        headers = options["headers"]
        leave(headers, self.eta)
        if self.hold is not None:
            headers[HOLD_HEADER] = self.hold._asdict()
        if uncertain:
            headers[REDELIVERED_HEADER] = True
            if self.stands_for:
                # If that message became an entry, workers drop this one.
                headers[HAND_OVER_HEADER] = self.stands_for
        if self.names:
            give_identity(options)
        return self.producer.publish(body, **{**options, **self.options})

    def publish_event(self, event: Any, options: dict[str, Any]) -> None:
        """Publish Celery's event that it sent the message."""
        retries = {name: self.options[name] for name in ("retry", "retry_policy")}
        self.producer.publish(event, **{**options, **retries})


def celerys(options: Mapping[str, Any], conf: Any) -> dict[str, Any]:
    """Return the options of ``publish`` that scheduling changes, as Celery makes them of a call's.

    Args:
        options: The call's, unchanged.
        conf: The app's configuration.
    """
    retry = options.get("retry")
    made: dict[str, Any] = {
        "retry": conf.task_publish_retry if retry is None else retry,
        "retry_policy": {**conf.task_publish_retry_policy, **(options.get("retry_policy") or {})},
    }
    names = ["expiration"]
    if broker.is_delayed(options):
        names += broker.ROUTE
        made["declare"] = options.get("declare")
        made["delivery_mode"] = options.get("delivery_mode") or conf.task_default_delivery_mode
    made.update({name: options[name] for name in names if name in options})
    return made


def leave(headers: dict[str, Any], eta: str) -> None:
    """Make the headers of a message those that Celery sends; a relative ``expires`` starts now."""
    headers["eta"] = eta
    expires_ms = headers.pop(EXPIRES_HEADER, None)
    if expires_ms is not None:
        headers["expires"] = expiry_after(clock.utc_now(), expires_ms / 1000).isoformat()

"""Lets a launch that failed wait in the store: as a refused entry, or at last as a dead letter.

    failed --> refused, until its next try --> launched again, from the failed step on
        |
        +----> dead: after a day, or at once if another try cannot help; `retry` begins anew

So lists, the page, ``health`` and metrics show it as they show a task that its broker refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from celery.app.task import Context
from celery.exceptions import BackendStoreError, Ignore, Reject
from kombu.exceptions import ContentDisallowed, SerializationError

from ...core import clock
from ...core.clock import When
from ...core.errors import DelayQError, StoreError
from ...core.handover.relay import tell
from ...core.message.headers import DUE_HEADER, PUT_OFFS_HEADER, put_offs_in
from ...core.scheduling.intercept import Request
from ...core.services import Services
from ...core.store.entries import DEAD, REFUSED, OldEntry, restore
from ...core.store.record import NewRecord
from ...core.text import logger_of, plain

logger = logger_of(__name__)

AT_MOST = 24 * 3600  # seconds that a launch is tried
LONGEST = 300  # seconds between two tries
IN_THE_WAY = 10.0  # seconds that an entry with its id may be in its way
BETWEEN = 1.0  # seconds until the broker delivers one that cannot be stored again
SINCE = "delayq_fails_since"  # a header of a launch: when its tries began to fail, unix ms

# Another try would end in the same way. An error of a connection is none of these.
_HOPELESS = (
    NotImplementedError,
    SerializationError,
    ContentDisallowed,
    BackendStoreError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


class Failed(Exception):
    """A step of a launch failed; those before it are done.

    Attributes:
        place: The step's.
        why: The error.
        where: What failed: ``broker``, ``store`` or ``result backend``.
    """

    def __init__(self, place: int, why: Exception, where: str) -> None:
        super().__init__(place, why, where)
        self.place, self.why, self.where = place, why, where

    @property
    def is_hopeless(self) -> bool:
        return isinstance(self.why, _HOPELESS) and not isinstance(self.why, (OSError, StoreError))

    def __str__(self) -> str:
        return f"cannot launch, {self.where}: {type(self.why).__name__}: {plain(self.why)}"


def wait(
    services: Services, task: Any, failed: Failed, steps: Sequence[Any], ids: Sequence[str]
) -> NoReturn:
    """Put a launch into the store, with the steps that are left.

    Args:
        services: The services of its app.
        task: The running task.
        failed: The reason.
        steps: The failed step, those after it, and those that are done again.
        ids: The ids that a caller may be waiting for.

    Raises:
        Ignore: it waits, or is dead.
        Reject: it cannot be stored. The broker delivers the whole launch again.
    """
    request, now_ms = task.request, _now_ms()
    since = request.get(SINCE) or now_ms
    is_dead = failed.is_hopeless or now_ms - since >= AT_MOST * 1000
    tries = 0 if is_dead else put_offs_in(request) + 1
    pause = min(LONGEST, 2**tries)
    headers = {PUT_OFFS_HEADER: tries, SINCE: None if is_dead else since}
    try:
        entry = OldEntry(
            request.id,
            request.get(DUE_HEADER) or now_ms,
            None,
            _record(task, [steps, ids], headers),
            place=DEAD if is_dead else REFUSED,
            when_ms=now_ms if is_dead else now_ms + pause * 1000,
            error=str(failed),
        )
        _store(services, entry)
    except DelayQError as error:
        clock.sleep(BETWEEN)
        raise Reject(error, requeue=True) from failed.why
    if is_dead:
        tell(services.hooks, [(request.id, str(failed))])
        _fail(services, request, failed.why, ids)
    else:
        logger.warning("canvas %s was not launched, next in %d s: %s", request.id, pause, failed)
    raise Ignore(str(failed))


def _store(services: Services, entry: OldEntry) -> None:
    """Store an entry; wait for the end of the one that was delivered as this launch.

    Raises:
        DelayQError: it is not stored.
    """
    until = clock.monotonic() + IN_THE_WAY
    while isinstance((answer := restore(services.entries, [entry])[0]), DelayQError):
        # On RabbitMQ, a launch may run, and fail, before its scanner has acknowledged it.
        if clock.monotonic() > until:
            raise answer
        clock.sleep(0.05)


def _now_ms() -> int:
    return int(clock.utc_now().timestamp() * 1000)


def _record(task: Any, args: list[Any], own: dict[str, Any]) -> NewRecord:
    """Return the record of a launch with these arguments."""
    of = task.request
    signature = task.signature_from_request(
        of, args=args, argsrepr=of.argsrepr, kwargsrepr=of.kwargsrepr, compression="zlib"
    )
    headers = {**(signature.options["headers"] or {}), **own}
    request = Request(When("after", 0), writes=False)
    request.sent_by(signature.apply_async, headers=headers)
    ready: Any = request.answer.ready  # it is none only if it was written
    record: NewRecord = ready.new.record
    return record


def _fail(services: Services, request: Any, why: Exception, ids: Sequence[str]) -> None:
    """Store ``FAILURE`` for those who wait. A result that comes after a retry replaces it."""
    if not services.has_backend:
        return
    for task_id in ids:
        of_caller = Context({"reply_to": request.reply_to, "correlation_id": task_id})
        try:
            services.app.backend.mark_as_failure(task_id, why, request=of_caller)
        except Exception:
            logger.warning("task %s: FAILURE could not be stored", task_id, exc_info=True)
            return

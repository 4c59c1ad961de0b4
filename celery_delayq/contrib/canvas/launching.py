"""The task that launches a canvas at its due time: it publishes the kept messages, in order.

    launch(steps) --each--> broker, result backend, or the store if the part waits by itself
        | one fails
        +--> refused: that step and the rest wait in the store, and are tried again
        '--> dead: after a day, or at once if another try cannot help; `retry` begins anew

The launch is acknowledged when it ends. If its worker dies, the broker delivers it again, and parts
that were sent before are sent again, with the same ids and marked as such. Lists, the page,
``health`` and metrics show a launch that waits as they show a task that its broker refuses.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

from celery import Celery
from celery.app.task import Context
from celery.canvas import maybe_signature
from celery.exceptions import BackendStoreError, Ignore, Reject
from celery.result import result_from_tuple
from kombu.exceptions import ContentDisallowed, SerializationError
from kombu.serialization import loads as decoded
from kombu.serialization import prepare_accept_content
from kombu.utils.json import loads

from ...core import clock
from ...core.clock import When, celery_time, from_ms, utc_now
from ...core.errors import AlreadyScheduled, DelayQError, StoreError
from ...core.handover.relay import tell
from ...core.message.headers import (
    ATTEMPT_HEADER,
    DUE_HEADER,
    EXPIRES_HEADER,
    HAND_OVER_HEADER,
    LAUNCH,
    PUT_OFFS_HEADER,
    REDELIVERED_HEADER,
    put_offs_in,
)
from ...core.message.outgoing import OutgoingMessage, Relayed, dumps, header_of, record_of
from ...core.scheduling.intercept import Request
from ...core.scheduling.options import EntryOptions
from ...core.scheduling.writing import write
from ...core.services import Services, services_of
from ...core.store import NewEntry, State
from ...core.store.entries import DEAD, REFUSED, OldEntry, restore
from ...core.store.record import Extras, NewRecord
from ...core.text import logger_of, plain
from .keeping import Step

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


def configured(app: Celery) -> None:
    """Register the launching task with *app*'s other tasks."""
    if app.finalized:
        _register(app)
    else:
        app.on_after_finalize.connect(lambda **_: _register(app), weak=False)


def _register(app: Celery) -> None:
    @app.task(
        name=LAUNCH,
        bind=True,
        shared=False,
        ignore_result=True,
        acks_late=True,
        reject_on_worker_lost=True,
    )
    def launch(self: Any, steps: list[Step], ids: list[str]) -> None:
        services = services_of(app)
        request = self.request
        if _waits_already(services, request):
            raise Ignore("it waits already")
        try:
            _Launch(services, request).run(steps)
        except _Failed as failed:
            if request.called_directly:
                raise failed.why from None
            done, (tried, *rest) = steps[: failed.place], steps[failed.place :]
            sent = {step.get("id") for step in done}
            left = [task_id for task_id in ids if task_id not in sent]
            # The backend may forget a chord's size before the next try.
            sizes = [step for step in done if step.get("backend") == "set_chord_size"]
            _wait(services, self, failed, [*sizes, {**tried, "tried": True}, *rest], left)


def _waits_already(services: Services, request: Any) -> bool:
    """Whether an earlier delivery of this launch ended with the launch in the store."""
    if not _comes_again(request):
        return False
    try:
        entry = services.entries.find(request.id)
    except StoreError:
        return False  # rather twice than never
    # One in flight is the entry of this delivery: its scanner has not acknowledged it yet.
    return entry is not None and entry.state is not State.IN_FLIGHT


def _comes_again(request: Any) -> bool:
    """Whether this launch may have been delivered before."""
    info = request.delivery_info or {}
    return bool(info.get("redelivered") or request.get(REDELIVERED_HEADER))


class _Launch:
    """One run of a launch.

    Args:
        services: The services of its app.
        request: Its request.
    """

    def __init__(self, services: Services, request: Any) -> None:
        self._services = services
        self._app = services.app
        due_ms, attempt = request.get(DUE_HEADER), request.get(ATTEMPT_HEADER)
        self._due = from_ms(due_ms) if type(due_ms) is int else utc_now()
        self._put_offs = put_offs_in(request)
        self._comes_again = _comes_again(request)
        # Copies of a part differ in it, so a worker with `delayq_once` drops the second.
        of_launch = attempt if type(attempt) is int else 1
        self._attempt = 1000 * self._put_offs + 2 * of_launch + self._comes_again - 1

    def run(self, steps: list[Step]) -> None:
        """Do all steps.

        Raises:
            _Failed: one failed; those before it are done.
        """
        for place, step in enumerate(steps):
            try:
                self._do(step, maybe_second=self._comes_again or step.get("tried"))
            except Exception as error:
                raise _Failed(place, error, _where(step)) from error

    def _do(self, step: Step, *, maybe_second: Any) -> None:
        if "backend" in step:
            self._tell_backend(step)
            return
        when = When(*step["time"]) if step.get("time") else None
        message = self._message(step, when)
        if "terms" in step:
            self._schedule(step, message, when or When("after", 0))
            return
        own = {HAND_OVER_HEADER: message["properties"]["delivery_tag"]}
        own[ATTEMPT_HEADER] = self._attempt
        message["headers"].update(own, **({REDELIVERED_HEADER: True} if maybe_second else {}))
        self._publish(step, message)

    def _message(self, step: Step, when: When | None) -> dict[str, Any]:
        """Return a step's message, with the times that count from the launch."""
        message: dict[str, Any] = loads(step["message"])
        headers, begin = message["headers"], self._due
        if when is not None:
            is_at = when.mode == "at"
            begin = from_ms(when.ms) if is_at else utc_now() + timedelta(milliseconds=when.ms)
        if "terms" not in step:  # a worker waits for its eta; it expires as without one
            headers["eta"], begin = begin.isoformat() if when else None, self._due
        expires_ms = headers.get(EXPIRES_HEADER)
        if expires_ms is not None:
            headers["expires"] = (begin + timedelta(milliseconds=expires_ms)).isoformat()
        return message

    def _tell_backend(self, step: Step) -> None:
        app, args = self._app, step["args"]
        if step["backend"] != "apply_chord":
            app.backend.set_chord_size(*args)
            return
        group_id, tuples = args
        results = [result_from_tuple(parts, app=app) for parts in tuples]
        content_type, encoding, data = step["body"]
        # As a worker reads a message: only the app says which serializers may be read.
        accept = prepare_accept_content(app.conf.accept_content)
        body = decoded(b64decode(data), content_type, encoding, accept=accept)
        app.backend.apply_chord((group_id, results), maybe_signature(body, app=app), **step["more"])

    def _publish(self, step: Step, message: Mapping[str, Any]) -> None:
        message["headers"].pop(EXPIRES_HEADER, None)
        relayed = Relayed.parse(step["route"], dumps(message).encode())
        route, options, conf = relayed.route, relayed.options, self._app.conf
        expires = options["headers"].get("expires")
        if expires:
            left = celery_time(expires) - utc_now()
            options["expiration"] = max(0.0, left.total_seconds())
        policy = {"retry": conf.task_publish_retry, "retry_policy": conf.task_publish_retry_policy}
        with self._app.producer_or_acquire() as producer:
            producer.publish(
                relayed.body,
                exchange=route.exchange,
                routing_key=route.routing_key,
                declare=list(route.declare),
                **policy,
                **options,
            )
            if step["sent"]:
                dispatcher = self._app.amqp._event_dispatcher
                dispatcher.publish("task-sent", step["sent"], producer, **policy)

    def _schedule(self, step: Step, message: dict[str, Any], when: When) -> None:
        """Store a part that waits by itself."""
        services, store = self._services, self._services.configured
        route = Relayed.parse(step["route"], step["message"].encode()).route
        made = OutgoingMessage(message, route.exchange, route.routing_key, route.declare, {}, dumps)
        header = header_of(
            made,
            services.broker,
            self._app.amqp.queues,
            direct=store.store_is_broker,
            prefix=store.settings.prefix,
        )
        share = EXPIRES_HEADER in message["headers"]
        record = record_of(message, header, made.labels, share=share)
        terms = EntryOptions(**step["terms"] | {"extras": _extras(step["terms"]["extras"])})
        (answer,) = write(services, [terms.of(NewEntry(step["id"], when, record))], {})
        is_own = isinstance(answer, AlreadyScheduled) and answer.task_id == step["id"]
        if isinstance(answer, DelayQError) and not (
            is_own and (self._put_offs or self._comes_again)
        ):
            raise answer


def _where(step: Step) -> str:
    if "backend" in step:
        return "result backend"
    return "store" if "terms" in step else "broker"


def _extras(given: Mapping[str, Any]) -> Extras:
    others = tuple(part.encode("latin-1") for part in given["others"])
    return Extras(**{**given, "tags": tuple(given["tags"]), "others": others})


class _Failed(Exception):
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


def _wait(
    services: Services, task: Any, failed: _Failed, steps: Sequence[Any], ids: Sequence[str]
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

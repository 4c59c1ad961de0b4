"""Runs the tasks in the queues, in this process, as a worker would.

hand_over --> queues --> messages, in the order of their times --> Request.execute --> RanTask
    ^                        |                                           |
    |                        +-- eta in the future: kept until then      |
    +-----------------------------------------------------------  until none is left
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery import Celery, signals, states
from celery.exceptions import NotRegistered, Reject, TaskRevokedError
from celery.result import EagerResult
from celery.utils.imports import symbol_by_name
from celery.worker.request import Request
from celery.worker.strategy import proto1_to_proto2

from ...core import clock
from ...core.errors import EndlessTasks
from ...core.message.headers import DUE_HEADER, HOLD_HEADER, Hold, is_replaced, ms_until
from ...core.services import services_of

if TYPE_CHECKING:

    class _Result(EagerResult[Any]): ...

else:  # Celery 5.4's cannot be subscripted
    _Result = EagerResult


class RanTask(_Result):
    """The result of a task that ``run_due`` ran: ``id``, ``state``, ``value``, and ``get()``.

    ``state`` is a state of Celery's: ``RETRY`` if the task will be retried, ``IGNORED`` if it put
    itself off, ``REVOKED`` if it had expired. ``value`` is its return value, or its exception,
    which ``get()`` raises.

    Attributes:
        task: The task's name.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """

    def __init__(  # noqa: PLR0917 - Celery's, and two more
        self,
        id: str,
        ret_value: Any,
        state: str,
        traceback: str | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(id, ret_value, state, traceback, name)
        self._call = tuple(args), dict(kwargs or {})

    @property
    def task(self) -> str | None:
        return self.name

    @property
    def args(self) -> tuple[Any, ...]:
        return self._call[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._call[1]

    @property
    def name(self) -> str | None:
        name: str | None = self._name
        return name

    @property
    def value(self) -> Any:
        """The task's return value, or its exception."""
        return self.result

    def __reduce_args__(self) -> tuple[Any, ...]:
        return (*super().__reduce_args__(), *self._call)

    def __repr__(self) -> str:
        return f"<RanTask {self.id}: {self.name} {self.state} {self.value!r}>"


class Runner:
    """Takes messages from the app's queues, and runs them.

    Args:
        app: The app.
        hand_over: Delivers due tasks.
    """

    def __init__(self, app: Celery, hand_over: Callable[[], int]) -> None:
        self._app = app
        self._hand_over = hand_over
        self._connection: Any = None
        self._ready: deque[Any] = deque()
        self._held: list[Any] = []

    def run(self, propagate: bool, limit: int) -> list[RanTask]:
        """Run until nothing is due; see ``IsolatedDelayQ.run_due``."""
        ran: list[RanTask] = []
        while self._collect():
            while self._ready:
                if len(ran) >= limit:
                    raise EndlessTasks(limit, ran[-1].task or ran[-1].id if ran else "")
                result = self._run(self._ready.popleft())
                ran.append(result)
                if propagate:
                    result.get()
        return ran

    def close(self) -> None:
        """Close the connection; messages that were not run go back, if the broker supports it."""
        connection, self._connection = self._connection, None
        self._ready.clear()
        self._held.clear()
        if connection is not None:
            connection.close()

    def _collect(self) -> bool:
        """Collect messages; return whether there is something to run."""
        if not self._ready:
            self._hand_over()
            messages = [*self._held, *self._received()]
            self._held = [message for message in messages if self._is_early(message)]
            due = [message for message in messages if not self._is_early(message)]
            self._ready.extend(sorted(due, key=_moment))
        return bool(self._ready)

    def _received(self) -> Iterator[Any]:
        if self._connection is None:
            self._connection = self._app.connection_for_read()
        for queue in list(self._app.amqp.queues.values()):
            bound = queue(self._connection.default_channel)
            bound.declare()
            while (message := bound.get(accept=self._app.conf.accept_content)) is not None:
                yield self._request(message)

    def _request(self, message: Any) -> Any:
        facts: dict[str, Any] = {}
        headers = message.headers
        if "task" not in headers:
            body, headers, decoded, utc = proto1_to_proto2(message, message.payload)
            facts = {"body": body, "headers": headers, "decoded": decoded, "utc": utc}
        task = self._app.tasks.get(headers["task"])
        base = Request if task is None else symbol_by_name(task.Request)
        made: Any = type(base.__name__, (_OfAnotherTime, base), {})
        return made(
            message,
            app=self._app,
            task=task or _Unknown(headers["task"]),
            on_ack=message.ack_log_error,
            on_reject=message.reject_log_error,
            **facts,
        )

    def _is_early(self, request: Any) -> bool:
        return request.eta is not None and request.eta > self._app.now()

    def _run(self, request: Any) -> RanTask:
        if isinstance(request.task, _Unknown):
            ended = self._unknown(request)
        else:
            with _heard(request.id) as events:
                request.execute()
            ended = events or [states.REVOKED, TaskRevokedError("revoked or expired")]
            self._say_of_key(request, *ended)
        state, value = ended
        text = "".join(traceback.format_exception(value)) if state == states.FAILURE else None
        return RanTask(request.id, value, state, text, request.name, request.args, request.kwargs)

    def _say_of_key(self, request: Any, state: str, value: Any) -> None:
        """Free the key that a task held until it has finished, or hold it on, as a worker does."""
        hold = Hold.of(request.request_dict.get(HOLD_HEADER), request.id)
        is_requeued = isinstance(value, Reject) and value.requeue and request.task.acks_late
        if hold is None or is_requeued or is_replaced(value):
            return
        services = services_of(self._app)
        goes_on = state == states.RETRY
        ms = hold.ms + ms_until(value.when) if goes_on else 0
        until = clock.monotonic() + services.settings.timeout
        services.entries.hold([(*hold[:3], ms, 0)], until)

    def _unknown(self, request: Any) -> list[Any]:
        error = NotRegistered(request.type)
        self._app.backend.mark_as_failure(request.id, error)
        request.reject(requeue=False)
        return [states.FAILURE, error]


class _OfAnotherTime:
    """A request that expires by the app's clock, which a test moves, and leaves no trace of it."""

    app: Celery
    expires: Any

    def maybe_expire(self) -> bool:
        return bool(self.expires and self.app.now() > self.expires)


class _Unknown:
    """Stands for a task that this app does not have."""

    ignore_result = False
    store_errors_even_if_ignored = False

    def __init__(self, name: str) -> None:
        self.name = name


@contextmanager
def _heard(task_id: str) -> Iterator[list[Any]]:
    """Collect a task's final state, and its return value or exception; nothing if it never ran."""
    events: list[Any] = []

    def ended(task_id: str, retval: Any, state: str, **_: Any) -> None:
        if task_id == wanted:
            events[:] = [state, retval]

    wanted = task_id
    signals.task_postrun.connect(ended, weak=False)
    try:
        yield events
    finally:
        signals.task_postrun.disconnect(ended)


def _moment(request: Any) -> float:
    """Its due time; messages without one come first, as they were sent before any hand-over."""
    due = (request.message.headers or {}).get(DUE_HEADER)
    if due is not None:
        return float(due) / 1000
    return 0.0 if request.eta is None else float(request.eta.timestamp())

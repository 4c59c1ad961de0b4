"""Hands the task that writes runs to its worker's own pool.

    the writer's thread --> the worker's loop, if it has a hub --Celery's strategy--> the pool

To make a run calls code of the user: routers, receivers of signals, an ``apply_async``. In the
worker's main process it could open a connection, which each process that is forked later inherits.
A task runs where all tasks do, and Django closes its connections around it. Its message comes from
no queue, so it waits only behind tasks that the worker has received already. If it is lost, another
writer looks at the same rules.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from celery.worker import state

from ...core import clock
from ...core.text import logger_of
from ..consumer import Waker
from ..rule_store import TASK, Claims

AT_ONCE, LONGEST = 0.02, 1.0  # seconds between two looks whether a task has ended

logger = logger_of(__name__)


class Pool:
    """The pool of a worker, for one task at a time that writes runs.

    Args:
        worker: The worker.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._claims: Claims = []  # on their way to the loop
        self._request: Any = None
        self._began = 0.0
        self._waker = Waker(self._send)

    @property
    def is_busy(self) -> bool:
        """Whether each of its processes or threads runs a task."""
        return bool(len(state.active_requests) >= self._worker.pool.num_processes)

    def rest(self) -> float:
        """Return after how many seconds to ask again; 0: the pool can take a task now.

        While all its processes are busy, other workers can write, so no second task waits here.
        """
        consumer = self._worker.consumer
        is_connected = consumer.connection is not None and TASK in consumer.strategies
        if is_connected and not self._claims and self._request not in state.reserved_requests:
            return 0.0
        return min(LONGEST, max(AT_ONCE, clock.monotonic() - self._began))

    def write(self, claims: Claims) -> None:
        """Let a task write the runs of the rules that are claimed."""
        self._claims, self._began = claims, clock.monotonic()
        hub = self._worker.consumer.hub
        if hub is None:  # this thread may do so, as Celery's timer does with tasks that have an eta
            self._send()
        elif self._waker.is_there:
            self._waker.wake()
        else:  # for the first rule: the oldest kombu's loop looks at this after some seconds
            hub.call_soon(self.listen, hub)

    def listen(self, hub: Any) -> None:
        """Hear from the writer's thread in the worker's loop, which may have begun anew."""
        self._waker.listen(hub)
        self._waker.wake()  # claims that came before wait

    def close(self) -> None:
        self._waker.close()

    def _send(self) -> None:
        """Pass the task to Celery as if it had been delivered."""
        if not self._claims:
            return
        app = self._worker.app
        try:
            # Not by the consumer's own strategy, which looks for copies of messages.
            receive = app.tasks[TASK].start_strategy(app, self._worker.consumer)
            receive(_message(self._claims), None, _nothing, _nothing, [self._keep])
        except Exception:  # it would end the worker
            logger.exception("the runs of rules are not written now; a writer tries again")
        finally:
            self._claims = []

    def _keep(self, request: Any) -> None:
        self._request = request


def _message(claims: Claims) -> Any:
    """Return a message as a worker has it; it is not serialized, as it stays in this process."""
    task_id = str(uuid4())
    body: tuple[list[Claims], dict[str, Any], dict[str, Any]] = ([claims], {}, {})
    headers = {
        "lang": "py",
        "task": TASK,
        "id": task_id,
        "root_id": task_id,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": repr((claims,)),
        "kwargsrepr": "{}",
        "ignore_result": True,
    }
    return SimpleNamespace(
        headers=headers,
        body=body,
        payload=body,
        content_type=None,
        content_encoding=None,
        delivery_info={},
        properties={"correlation_id": task_id},
    )


def _nothing(*_: Any) -> None:
    """Acknowledge or reject nothing: there is no broker behind the message."""

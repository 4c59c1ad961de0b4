"""Lets remote control, a worker's and the app's, reach the tasks that wait in the store.

    a worker's panel -> in_worker          ``revoke`` and ``terminate`` cancel waiting tasks;
                                           ``scheduled`` and ``query_task`` show them
    app.control ------> RevokingControl    its ``revoke`` cancels them, too

``celery inspect scheduled``, ``app.control.inspect().scheduled()`` and Flower's page of a worker
list waiting tasks in the form in which a worker shows the eta tasks that it holds. They belong to
no worker, so every worker shows the same. ``inspect delayq`` shows the state of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import islice
from typing import Any

from celery import Celery
from celery.app.control import Control
from celery.utils.imports import symbol_by_name
from kombu.utils.functional import maybe_list
from kombu.utils.json import loads

from ...core.clock import MAX_DUE_MS
from ...core.errors import DelayQError, InvalidOption, StoreError
from ...core.libraries import Feature, works
from ...core.services import HasServices, Services, find, made_for
from ...core.store import Entry, Listing, Outcome, checked_id
from ...core.tasks.changing import cancel
from ...core.tasks.scheduled_task import ScheduledTask
from ...core.text import logger_of

logger = logger_of(__name__)

SHOWN = 100  # tasks, the next to fall due: an answer is one message
SHOWN_BYTES = 4_000_000  # of messages; a worker does nothing else while it reads them
PRIORITY = 6  # the priority that Celery's timer gives to tasks with an eta

# All workers receive a revoke at the same moment, and the first cancels; the others still count it
# as done for so long. Not forever: another message may be sent with the id later.
LATELY_MS = 60_000
_NOT_SHOWN = "tasks waiting in the store are not shown: %s"
Command = Callable[..., Any]


def _waiting_here(services: Services, hostname: str) -> list[dict[str, Any]]:
    """Return the next tasks to fall due, as the worker *hostname* shows those that it holds.

    Arguments appear as in logs: nothing is unpickled, and ``argsrepr`` hides them here too.

    Raises:
        DelayQError: the store cannot be read.
    """
    shown, size = [], 0
    for entry in islice(services.entries.waiting(Listing(0, MAX_DUE_MS + 1)), SHOWN):
        task = _task(services, entry)
        request = _request(entry, task, hostname)
        shown.append({"eta": task.due.isoformat(), "priority": PRIORITY, "request": request})
        size += len(entry.message)
        if size > SHOWN_BYTES:
            break
    return shown


def _queried(
    services: Services, task_ids: Iterable[str], hostname: str
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the state of each task in the store, and the task as :func:`scheduled` shows it.

    Raises:
        DelayQError: the store cannot be read.
    """
    found = {}
    for task_id in task_ids:
        try:
            entry = services.entries.find(checked_id(task_id))
        except InvalidOption:
            continue  # no task in the store can have such an id
        if entry is not None:
            task = _task(services, entry)
            found[task_id] = (task.state.value.lower(), _request(entry, task, hostname))
    return found


def _task(services: Services, entry: Entry) -> ScheduledTask:
    return ScheduledTask.of(entry, services.app, queue="")  # a worker shows no queue


def _request(entry: Entry, task: ScheduledTask, hostname: str) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.task,
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "type": task.task,
        "time_start": None,
        "acknowledged": False,
        "worker_pid": None,
        **_delivery(entry, task),
        "hostname": hostname,
    }


def _delivery(entry: Entry, task: ScheduledTask) -> dict[str, Any]:
    # Of an unreadable entry, only the id and the time are shown.
    properties = {} if task.reason else loads(entry.message)["properties"]
    where = properties.get("delivery_info") or {}
    delivery = {name: where.get(name) for name in ("exchange", "routing_key")}
    return {
        "delivery_info": {**delivery, "priority": properties.get("priority"), "redelivered": False}
    }


def set_up(app: Celery) -> None:
    """Let the app's ``revoke`` reach waiting tasks."""
    app.control_cls = _revoking_control(app.control_cls)


def _revoking_control(base: Any) -> Any:
    """Return *base* with that ability; if possible as a name, as apps are pickled."""
    base = symbol_by_name(base)
    if issubclass(base, RevokingMixin):  # from a copied app
        return base
    if base is Control:
        return f"{__name__}:{RevokingControl.__name__}"
    return type(base.__name__, (RevokingMixin, base), {})


class RevokingMixin:
    """Lets a ``Control`` class reach waiting tasks; serves ``AsyncResult.revoke`` too."""

    app: Any

    @cached_property
    def inspect(self) -> Any:
        plain = super().inspect  # type: ignore[misc]
        if not works(Feature.INSPECTING):
            return plain
        return type(plain.__name__, (InspectingMixin, plain), {})

    def revoke(self, task_id: Any, *args: Any, **options: Any) -> Any:
        # A worker remembers each revoked id and drops messages that have it. So the revoke of a
        # task that never reached a worker is not broadcast.
        delayq = made_for(self.app)
        left = _left(delayq, task_id) if delayq else task_id
        return super().revoke(left, *args, **options) if left else None  # type: ignore[misc]


class RevokingControl(RevokingMixin, Control):
    """Celery's own ``Control``, which also reaches waiting tasks."""


class InspectingMixin:
    """Lets an ``Inspect`` class ask workers for the state of their store."""

    def delayq(self) -> dict[str, Any] | None:
        """Return the state of the store, as each worker that answers sees it.

        Returns:
            A dictionary for each worker: the ``facts()`` of ``DelayQ.status()`` without
            ``queues``, with its ``version`` of the package; or ``error`` with a sentence.
            ``None`` if no worker answers.
        """
        return self._request("delayq")  # type: ignore[attr-defined,no-any-return]


def in_worker(_app: Celery) -> None:
    """Let a worker's commands on tasks ask the store as well; a second call changes nothing."""
    if not works(Feature.REMOTE_CONTROL):
        return
    # Here, not above: only a worker has imported these modules already.
    from celery.worker.control import Panel

    from . import panel  # noqa: F401 - registers its commands

    for name, wrap in _WRAPS.items():
        plain = Panel.data.get(name)
        if plain is not None and not hasattr(plain, "delayq_wraps"):
            Panel.data[name] = command = wrap(plain)
            command.delayq_wraps = plain


def _cancelling(plain: Command) -> Any:
    def revoke(state: Any, task_id: Any, *args: Any, **options: Any) -> Any:
        delayq = made_for(state.app)
        left = _left(delayq, task_id) if delayq else task_id
        if not left:
            return {"ok": f"tasks {sorted(maybe_list(task_id))} cancelled before they were due"}
        return plain(state, left, *args, **options)

    return revoke


def _terminating(plain: Command) -> Any:
    def terminate(state: Any, signal: Any, task_id: Any, *args: Any, **options: Any) -> Any:
        def of_the_rest(state: Any, left: Any, *args: Any, **options: Any) -> Any:
            return plain(state, signal, left, *args, **options)

        return _cancelling(of_the_rest)(state, task_id, *args, **options)

    return terminate


def _listing(plain: Command) -> Any:
    def scheduled(state: Any, *args: Any, **options: Any) -> Any:
        its_own, services = plain(state, *args, **options), find(state.app)
        try:
            stored = _waiting_here(services, state.hostname) if services else []
        except DelayQError as error:
            logger.warning(_NOT_SHOWN, error)
            stored = []
        return [*its_own, *stored]

    return scheduled


def _finding(plain: Command) -> Any:
    def query_task(state: Any, ids: Any, *args: Any, **options: Any) -> Any:
        its_own, services = plain(state, ids, *args, **options), find(state.app)
        others = [task_id for task_id in maybe_list(ids) or () if task_id not in its_own]
        try:
            stored = _queried(services, others, state.hostname) if services else {}
        except DelayQError as error:
            logger.warning(_NOT_SHOWN, error)
            stored = {}
        return {**its_own, **stored}

    return query_task


# "dump_schedule" is the former name of "scheduled".
_WRAPS = {
    "revoke": _cancelling,
    "terminate": _terminating,
    "query_task": _finding,
    "scheduled": _listing,
    "dump_schedule": _listing,
}


def _cancel(delayq: HasServices, task_id: Any) -> Any:
    """Cancel waiting tasks; return the id, or the ids, that workers still have to revoke."""
    if isinstance(task_id, (list, tuple, set)):
        return [each for each in task_id if not _is_cancelled(delayq, each)]
    return None if _is_cancelled(delayq, task_id) else task_id


def _left(delayq: HasServices, task_id: Any) -> Any:
    """Cancel waiting tasks; return what workers still have to revoke, which no undo brings back."""
    left = _cancel(delayq, task_id)
    delayq.services.forgo_undo([str(each) for each in maybe_list(left) or ()])
    return left


def _is_cancelled(delayq: HasServices, task_id: Any) -> bool:
    """Cancel a task; return whether it waited, or was cancelled a moment ago."""
    try:
        outcome = cancel(delayq, task_id)
        if outcome is Outcome.NOT_FOUND:
            ago = delayq.services.entries.cancelled_ms_ago(task_id)
            return ago is not None and ago < LATELY_MS
        return bool(outcome)
    except InvalidOption:
        return False  # an id that cannot be scheduled; Celery may know it
    except StoreError as error:
        # Workers can still revoke it: it may be running.
        logger.warning("task %s: could not be looked up in the store: %s", task_id, error)
        return False

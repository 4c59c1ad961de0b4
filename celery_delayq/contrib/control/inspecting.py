"""Shows waiting tasks in the form in which a worker shows the eta tasks that it holds.

``celery inspect scheduled``, ``app.control.inspect().scheduled()`` and Flower's page of a worker
list them, and ``inspect query_task`` shows single ones. Waiting tasks belong to no worker, so every
worker shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from kombu.utils.json import loads

from ...core.clock import MAX_DUE_MS
from ...core.errors import InvalidOption
from ...core.services import Services
from ...core.store import Entry, Listing, checked_id
from ...core.tasks.scheduled_task import ScheduledTask

SHOWN = 100  # tasks, the next to fall due: an answer is one message
SHOWN_BYTES = 4_000_000  # of messages; a worker does nothing else while it reads them
PRIORITY = 6  # the priority that Celery's timer gives to tasks with an eta


def waiting_here(services: Services, hostname: str) -> list[dict[str, Any]]:
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


def queried(
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

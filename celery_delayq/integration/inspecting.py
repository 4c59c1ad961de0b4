"""What waits in the store, in the form in which a worker shows what it waits for itself.

``celery inspect scheduled``, ``app.control.inspect().scheduled()`` and Flower's page of a worker
read it. What waits belongs to no worker, so each that is asked shows the same tasks.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from kombu.utils.json import loads

from ..clock import MAX_DUE_MS
from ..operations.task import ScheduledTask
from ..services import Services
from ..store import Entry

SHOWN = 100  # tasks, the next ones that are due: an answer is one message
SHOWN_BYTES = 4_000_000  # of messages; a worker does nothing else while it reads them
PRIORITY = 6  # which Celery's timer gives to whatever has an eta


def scheduled(services: Services, hostname: str) -> list[dict[str, Any]]:
    """The next tasks that are due, as the worker *hostname* shows those that it holds.

    Arguments are shown as in logs, so nothing is unpickled, and ``argsrepr`` hides them here too.

    Raises:
        DelayQError: the store cannot be read.
    """
    shown, size = [], 0
    for entry in islice(services.entries.waiting(0, MAX_DUE_MS + 1), SHOWN):
        task = ScheduledTask.of(entry, services.app, queue="")  # which a worker does not show
        request = {**_request(task), **_delivery(entry, task), "hostname": hostname}
        shown.append({"eta": task.due.isoformat(), "priority": PRIORITY, "request": request})
        size += len(entry.message)
        if size > SHOWN_BYTES:
            break
    return shown


def _request(task: ScheduledTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.task,
        "args": task.argsrepr,
        "kwargs": task.kwargsrepr,
        "type": task.task,
        "time_start": None,
        "acknowledged": False,
        "worker_pid": None,
    }


def _delivery(entry: Entry, task: ScheduledTask) -> dict[str, Any]:
    # Of what cannot be read, its id and its time are shown.
    properties = {} if task.reason else loads(entry.message)["properties"]
    where = properties.get("delivery_info") or {}
    told = {name: where.get(name) for name in ("exchange", "routing_key")}
    return {"delivery_info": {**told, "priority": properties.get("priority"), "redelivered": False}}

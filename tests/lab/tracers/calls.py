"""The calls of each tracer's process: three single calls in three traces, and a bulk in one.

It prints, as JSON, the trace that each call was made in, and the headers of its messages.
"""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

ITEMS = 5


def make(
    traced: Callable[[], AbstractContextManager[object]],
    trace_id: Callable[[], str],
    brokers: Callable[[], list[str]] = list,
) -> None:
    """Make the calls.

    Args:
        traced: Begins a trace.
        trace_id: Returns its id.
        brokers: Returns the kinds of brokers that the tracer has noted by the end.
    """
    # Imported late: a tracer may hook into the import of the modules it instruments.
    from celery import Celery

    from celery_delayq import DelayQ

    app = Celery("traced", broker=sys.argv[1])
    delayq = DelayQ(app)

    @app.task(name="traced")
    def task(number: int) -> None:
        """Never run here."""

    ways: dict[str, Callable[[], Any]] = {
        "delay_for": lambda: task.delay_for(60, 1),
        "apply_async": lambda: task.apply_async((1,), delayq_after=60),
        "schedule": lambda: delayq.schedule(task.s(1), after=60),
    }
    items = [((number,), {}) for number in range(ITEMS)]
    found: dict[str, Any] = {}
    # One call first, so that no measured call fills the caches.
    for way in ways.values():
        with traced():
            way()
    for name, way in ways.items():
        with traced():
            found[name] = (trace_id(), [_headers(delayq, way().id)])
    with traced():
        bulk = delayq.schedule_many(task, items, after=60)
        found["bulk"] = (trace_id(), [_headers(delayq, task_id) for task_id in bulk.ids])
    found["brokers"] = brokers()
    sys.stdout.write(json.dumps(found))


def _headers(delayq: Any, task_id: str) -> dict[str, Any]:
    message = json.loads(delayq.services.entries.find(task_id).message)
    headers: dict[str, Any] = message["headers"]
    return headers

"""A running task that puts itself off, beside one that is scheduled, in one process."""

import uuid
from contextlib import suppress

from celery import Celery
from celery.exceptions import Ignore

from celery_delayq import Defer
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.one_task import alternating
from tests.lab.benchmarks.stats import Figures

LATER = 86_400


def measure(lab: Lab) -> Figures:
    """Microseconds for each, in alternating blocks: for the store and for Celery's message."""
    with lab.app(lab.server.url()) as app:
        return put_off(app, lab.scaled(3000, 500))


def put_off(app: Celery, calls: int) -> Figures:
    @app.task(name="bench.later", bind=True, shared=False, ignore_result=True)
    def later(_self, _x, _y):
        raise Defer(after=LATER)

    requests = [_request(app, later) for _ in range(calls + 1)]

    def run() -> None:
        later.push_request(**requests.pop())
        try:
            with suppress(Ignore):
                later.run(1, 2)
        finally:
            later.pop_request()

    pair = {"put_off_us": run, "schedule_us": lambda: later.delay_for(LATER, 1, 2)}
    for call in pair.values():
        call()
    figures = alternating(pair, calls)
    assert app.delayq.counts().scheduled >= 2 * calls
    return figures


def _request(app: Celery, task) -> dict:
    """The request that a worker makes of a message."""
    task_id = str(uuid.uuid4())
    return {
        **app.amqp.as_task_v2(task_id, task.name, (1, 2)).headers,
        "called_directly": False,
        "args": (1, 2),
        "kwargs": {},
        "properties": {"delivery_tag": task_id},
        "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 0},
    }

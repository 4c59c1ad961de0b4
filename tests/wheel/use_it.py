"""Run in an environment that holds only the wheel: ``python use_it.py REDIS_URL``."""

import sys

from celery import Celery

import celery_delayq

app = Celery("wheel", broker=sys.argv[1])
delayq = celery_delayq.DelayQ(app)


@app.task
def remind(order):
    return order


held = remind.delay_for(3600, 42)
assert list(delayq.get(held.id).args) == [42]
assert held.cancel()
assert delayq.get(held.id) is None
sys.stdout.write(f"used {celery_delayq.__file__}\n")

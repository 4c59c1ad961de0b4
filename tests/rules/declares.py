"""The app of `celery -A tests.rules.declares`: it says rules at import, and by signals."""

import json
import os

from celery.signals import worker_init, worker_process_init, worker_ready

from tests.worker.tasks import app

__all__ = ["RULES", "app"]

RULES = "DELAYQ_TEST_RULES"  # when -> {name: schedule}


def say(when):
    for name, schedule in json.loads(os.environ[RULES]).get(when, {}).items():
        app.delayq.every(name, app.tasks["note"].s(), schedule)


say("import")
for signal in (worker_init, worker_process_init, worker_ready):
    signal.connect(lambda signal, **_: say(signal.name), weak=False)


@app.task(name="say")
def say_in_a_task():
    say("task")

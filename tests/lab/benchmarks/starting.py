"""The app of the workers whose start is measured; with a DelayQ if BENCHMARK_DELAYQ is set."""

import os

from celery import Celery

app = Celery("bench", broker=os.environ["BENCHMARK_BROKER"])
if "BENCHMARK_DELAYQ" in os.environ:
    from celery_delayq import DelayQ

    DelayQ(app)


@app.task(name="bench.noop", ignore_result=True)
def noop() -> None:
    pass

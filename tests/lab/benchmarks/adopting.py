"""The app of the workers that adopt; its settings come in BENCHMARK_CONF, as JSON."""

import json
import os
from typing import Any

from tests.lab.benchmarks.apps import make_app

conf = json.loads(os.environ["BENCHMARK_CONF"])
app = make_app(conf.pop("broker"), **conf)


def received(_task: Any, _app: Any, consumer: Any) -> Any:
    """Acknowledge a message, and do nothing else: the least that a worker can do."""

    def handler(_message: Any, _body: Any, ack: Any, *_: Any) -> None:
        ack(None, consumer.connection_errors)

    return handler


@app.task(name="bench.received", ignore_result=True)
def nothing() -> None:
    """Never run."""


nothing.Strategy = "tests.lab.benchmarks.adopting:received"

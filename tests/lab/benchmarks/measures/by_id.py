"""Cancel, reschedule and get, one by one, beside the bare round trip; and Redis's part of it."""

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice, repeat

import redis

from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.measures.move_profile import script_us
from tests.lab.benchmarks.measures.one_task import alternating
from tests.lab.benchmarks.stats import Figures

PROFILED = 100  # calls


def measure(lab: Lab) -> Figures:
    """Calls per second, in alternating blocks, with twice as many waiting as are touched."""
    server = lab.server
    calls = lab.scaled(4000, 500)
    with lab.app(server.url()) as app:
        ids = fill(server.socket, Template(app), shuffled_future(2 * calls))
        return by_id(app, ids[: calls + PROFILED])


def by_id(app, ids: list[str]) -> Figures:
    """Rates of each operation by id on *ids*, which are cancelled by it."""
    delayq = app.delayq
    calls = len(ids) - PROFILED
    client = redis.Redis.from_url(app.conf.broker_url)
    one = client.script_load("return 1")
    due = time.time() + 90_000
    operations = {
        "get": map(delayq.get, ids),
        "reschedule": (delayq.reschedule(each, due) for each in ids),
        "cancel": map(delayq.cancel, ids),
    }
    bare = {
        "ping": lambda: client.execute_command("PING"),
        "bare_script": lambda: client.execute_command("EVALSHA", one, 0),
    }
    figures: Figures = {
        "bare_redis_us": _redis_us(client, (bare["bare_script"]() for _ in repeat(0)))
    }
    for name, run in operations.items():
        spent = alternating({name: lambda run=run: next(run), **bare}, calls)
        figures |= {
            f"{name}_rate": 1e6 / spent[name],
            f"{name}_bare_rate": 1e6 / spent["bare_script"],
            f"{name}_ping_rate": 1e6 / spent["ping"],
            f"{name}_redis_us": _redis_us(client, run),
        }
    return figures


def _redis_us(client: redis.Redis, calls: Iterator[object]) -> float:
    return script_us(client, lambda: deque(islice(calls, PROFILED), maxlen=0)) / PROFILED

"""Hand-over into lists of the store's own Redis, by one scanner, beside the barest script."""

import time

import redis

from tests.lab.benchmarks import raw
from tests.lab.benchmarks.apps import QUEUE
from tests.lab.benchmarks.children import Child
from tests.lab.benchmarks.filling import Template, fill, shuffled_past
from tests.lab.benchmarks.lab import Lab, forget_scripts, longest_script_ms, script_p99_ms
from tests.lab.benchmarks.roles import raw_mover
from tests.lab.benchmarks.stats import Figures
from tests.support.waiting import eventually


def measure(lab: Lab) -> Figures:
    """200,000 due, in another order than they were scheduled in."""
    return both(lab, lab.scaled(200_000, 50_000))


def both(lab: Lab, count: int) -> Figures:
    bare = raw_handover(lab, count)
    return handover(lab, count, scanners=1) | {f"raw_{name}": bare[name] for name in bare}


def handover(lab: Lab, count: int, *, scanners: int, check: bool = False) -> Figures:
    """The rate, and how long the script calls took.

    Args:
        lab: Where.
        count: How many are due.
        scanners: How many processes scan.
        check: Read the whole list back, and see that each entry is there once.
    """
    server = lab.server
    client = server.client()
    with lab.app(server.url()) as app, lab.scanners(server.url(), scanners) as scanning:
        ids = fill(server.socket, Template(app), shuffled_past(count))
        forget_scripts(client)
        started = scanning.start()
        eventually(lambda: client.llen(QUEUE) >= count, timeout=300)
        seconds = time.perf_counter() - started
        scanning.stop()
        figures = _figures(client, count / seconds)
        if check:
            assert sorted(raw.ids_in(client)) == sorted(ids), "an entry was lost, or came twice"
    return figures


def raw_handover(lab: Lab, count: int) -> Figures:
    """The same moves by the barest script, from a process like a scanner's."""
    server = lab.server
    client = server.client()
    with lab.app(server.url()) as app, Child(raw_mover, server.url()) as mover:
        raw.fill(client, app, shuffled_past(count))
        forget_scripts(client)
        started = time.perf_counter()
        mover.ask("go")
        seconds = time.perf_counter() - started
        assert client.llen(raw.LIST) == count
        return _figures(client, count / seconds)


def _figures(client: redis.Redis, rate: float) -> Figures:
    return {
        "rate": rate,
        "longest_script_ms": longest_script_ms(client),
        "script_p99_ms": script_p99_ms(client),
    }

"""A preflight of 100,000 waiting tasks, beside a bare HSCAN of their records, in turn."""

import time
from collections.abc import Callable

from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab, forget_scripts, longest_script_ms
from tests.lab.benchmarks.stats import Figures, percentile

TURNS = 5
SLICE = 1000


def measure(lab: Lab) -> Figures:
    """No worker is alive, so none is waited for; the code has each task."""
    server = lab.server
    with lab.app(server.url()) as app:
        waiting = lab.scaled(100_000, 100_000)
        fill(server.socket, Template(app), shuffled_future(waiting))
        client, records = server.client(), app.delayq.services.scripts[0].keys["records"]
        bare, looked = [], []
        forget_scripts(client)
        for _ in range(TURNS):
            bare.append(_seconds(lambda: _scan(client, records, waiting)))
            looked.append(_seconds(lambda: _look(app, waiting)))
        return {
            "bare_seconds": percentile(bare, 50),
            "seconds": percentile(looked, 50),
            "longest_script_ms": longest_script_ms(client),
        }


def _scan(client, records: str, waiting: int) -> None:
    cursor, count = 0, 0
    while True:
        cursor, some = client.hscan(records, cursor, count=SLICE)
        count += len(some)
        if cursor == 0:
            break
    assert count == waiting


def _look(app, waiting: int) -> None:
    found = app.delayq.preflight()
    assert (bool(found), found.tasks) == (True, waiting)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started

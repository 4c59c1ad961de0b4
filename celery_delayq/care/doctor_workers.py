"""Checks whether the workers consume the queues of waiting tasks, and use the same store."""

from __future__ import annotations

from collections.abc import Iterator

from ..integration.workers import answers, other_stores, unheard_queues
from ..logs import counted
from ..servers.risks import ERROR, OK, WARNING, Line
from ..services import Services

_SILENT = (
    "no worker answers, so their queues and stores are unknown",
    "start a worker; with the solo pool, one answers only between tasks",
)


def workers(services: Services) -> Iterator[Line]:
    """Ask the workers two questions, a second each, and judge their answers."""
    heard = answers(services, "active_queues")
    if not heard:
        yield Line("workers", WARNING, *_SILENT)
        return
    told = answers(services, "delayq")
    wrong = [*other_stores(services, told, heard), *unheard_queues(services, heard)]
    for one in wrong:
        found, _, advice = one.partition("; ")
        yield Line("workers", ERROR, found, advice)
    if not wrong:
        answered = f"{counted(len(heard), 'worker')} answered"
        yield Line("workers", OK, f"{answered}: they use this store and all queues of tasks")

"""Checks whether the workers consume the queues of waiting tasks, and use the same store."""

from __future__ import annotations

from collections.abc import Iterator

from ..integration.workers import answers, delayq_answers, other_stores, strangers, unheard_queues
from ..logs import counted, plain
from ..servers.risks import ERROR, OK, WARNING, Line
from ..services import Services

_SILENT = (
    "no worker answers, so their queues and stores are unknown",
    "start a worker; with the solo pool, one answers only between tasks",
)


def workers(services: Services) -> Iterator[Line]:
    """Ask the workers two questions, a second each, and judge their answers.

    Silent workers get the second one again.
    """
    heard = answers(services, "active_queues")
    if not heard:
        yield Line("workers", WARNING, *_SILENT)
        return
    told = delayq_answers(services, heard)
    wrong = [*other_stores(services, told, heard), *unheard_queues(services, heard)]
    strange = strangers(services, told, heard)
    for level, sentences in ((ERROR, wrong), (WARNING, strange)):
        for one in sentences:
            found, _, advice = one.partition("; ")
            yield Line("workers", level, plain(found), plain(advice))
    if not wrong and not strange:
        answered = f"{counted(len(heard), 'worker')} answered"
        yield Line("workers", OK, f"{answered}: they use this store and all queues of tasks")

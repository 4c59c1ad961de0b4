"""Checks whether the workers consume the queues of waiting tasks, and use the same store."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.servers.connection import Connection
from ...core.servers.risks import ERROR, OK, WARNING, Line
from ...core.services import Services
from ...core.text import counted, plain
from ...operations.queues import (
    answers,
    delayq_answers,
    delivered,
    forlorn_stores,
    other_stores,
    strangers,
    unconsumed,
    unheard_queues,
)

_SILENT = (
    "no worker answers, so their queues and stores are unknown",
    "start a worker; with the solo pool, one answers only between tasks",
)


def workers(services: Services) -> Iterator[Line]:
    """Ask the workers two questions, a second each, and judge their answers.

    Silent workers get the second one again.
    """
    heard, wrong, strange = answers(services, "active_queues"), unconsumed(services), list[str]()
    if heard:
        reported = delayq_answers(services, heard)
        wrong += other_stores(services, reported, heard)
        wrong += unheard_queues(services, heard, delivered(services))
        strange = strangers(services, reported, heard)
    else:
        yield Line("workers", WARNING, *_SILENT)
    for level, sentences in ((ERROR, wrong), (WARNING, strange)):
        for sentence in sentences:
            found, _, advice = sentence.partition("; ")
            yield Line("workers", level, plain(found), plain(advice))
    if heard and not wrong and not strange:
        answered = f"{counted(len(heard), 'worker')} answered"
        yield Line("workers", OK, f"{answered}: they use this store and all queues of tasks")


def other_stores_here(services: Services, connection: Connection) -> Iterator[Line]:
    """Yield each other store in this Redis that has tasks for the app's queues, and no scanner."""
    found = forlorn_stores(services, connection)
    for sentence in found or ():
        store, _, advice = sentence.partition("; ")
        yield Line("other stores", ERROR, plain(store), plain(advice))
    if not found:
        well = "no tasks for this app's queues wait in another one in this Redis without a scanner"
        unknown = "unknown: this needs +scan, and the right to read the keys of other stores"
        yield Line("other stores", OK, unknown if found is None else well)

"""Checks whether tasks are delivered, by the checks of `health`."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.servers.risks import ERROR, OK, WARNING, Line
from ...core.services import Services
from ...core.text import plain
from ...operations.health import judged
from .. import rule_store

SHOWN_RULES = 3

# The advice for each fault that `health` finds, if its sentence has none.
_ADVICE = {
    "store": "check the rights of its Redis user, and Redis's log",
    "overdue": "celery -A proj delayq list --overdue shows them; check a worker's log",
    "refused": "celery -A proj delayq list --overdue says why; check whether their queues exist, "
    "are full, or refuse this user; for a canvas, whether its result backend answers",
    "dead": "celery -A proj delayq list --dead says why; retry or remove them",
}
# The doctor has questions of its own about these.
_ELSEWHERE = ("eviction", "memory")
_WARNINGS = ("dead", "rates")


def health(services: Services) -> Iterator[Line]:
    """Yield a line for each check of `health`."""
    for check in judged(services):
        if check.about in _ELSEWHERE:
            continue
        about, found, advice = check.about, check.wrong or check.note, _ADVICE.get(check.about, "")
        if found and about == "rules":
            found += _troubled(services)
        if found and not advice:
            found, _, advice = found.partition("; ")
        if found:
            level = ERROR if check.wrong and about not in _WARNINGS else WARNING
            yield Line("pauses" if about == "rates" else about, level, found, advice)
        elif about == "scanners":
            hosts = sorted({scanner.host for scanner in services.entries.scanners()})
            yield Line(about, OK, f"{check.well}, on {', '.join(map(plain, hosts))}")
        else:
            yield Line(about, OK, check.well)


def _troubled(services: Services) -> str:
    """Return the names of some rules whose next run is not written, and why."""
    rules = rule_store.troubled(services.entries, SHOWN_RULES)[:SHOWN_RULES]
    return "".join(f"; {plain(rule.name)}: {plain(rule.newer or rule.trouble)}" for rule in rules)

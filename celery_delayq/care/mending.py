"""Look through the store for what does not fit together, and mend it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import InvalidOption
from ..logs import logger_of
from ..services import Services
from . import checking, repairing
from .inconsistencies import Finding, Repaired

logger = logger_of(__name__)


def check(services: Services) -> Iterator[Finding]:
    """What does not fit, read slice by slice while one iterates; see :meth:`DelayQ.check`."""
    return checking.check(services.entries)


def repair(services: Services, finding: Finding) -> Repaired:
    """Mend one finding, if it is still so; see :meth:`DelayQ.repair`."""
    if not isinstance(finding, Finding):
        raise InvalidOption("finding", finding, "one that check gave")
    (repaired,) = (one for some in repair_many(services, [finding]) for one in some)
    return repaired


def repair_many(services: Services, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
    """Mend findings, some in each step; yields what became of those."""
    for some in repairing.repair(services.entries, findings):
        for one in some:
            _tell(services, one)
        yield some


def _tell(services: Services, one: Repaired) -> None:
    """Log what it means for a task, and tell whoever listens."""
    if one.what == "dead":
        logger.error("task %s is dead: %s", one.finding.id, one.reason)
        services.hooks.dead(one.finding.id, one.reason)
    elif one.what == "back":
        logger.info("task %s waits again: it had lost its place", one.finding.id)
    elif one.what == "late":
        logger.warning("task %s had lost its place, and will be skipped: too late", one.finding.id)
    elif one.what == "lost":
        logger.error("task %s is lost: it had no record; its place was removed", one.finding.id)

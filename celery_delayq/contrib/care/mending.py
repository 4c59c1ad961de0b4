"""Finds inconsistencies in the store, and repairs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.errors import InvalidOption
from ...core.services import Services
from ...core.text import logger_of
from . import checking, repairing
from .inconsistencies import Finding, Repaired

logger = logger_of(__name__)


def check(services: Services) -> Iterator[Finding]:
    """Yield inconsistencies, reading slice by slice while you iterate; see :meth:`DelayQ.check`."""
    return checking.check_store(services.entries)


def repair(services: Services, finding: Finding) -> Repaired:
    """Repair one finding, if it still holds; see :meth:`DelayQ.repair`."""
    if not isinstance(finding, Finding):
        raise InvalidOption("finding", finding, "one that check gave")
    (repaired,) = (each for some in repair_many(services, [finding]) for each in some)
    return repaired


def repair_many(services: Services, findings: Iterable[Finding]) -> Iterator[list[Repaired]]:
    """Repair findings, some in each step; yield the results of each step."""
    for some in repairing.repair_store(services.entries, findings):
        for repaired in some:
            _tell(services, repaired)
        yield some


def _tell(services: Services, repaired: Repaired) -> None:
    """Log the effect on a task, and call the hooks."""
    if repaired.what == "dead":
        logger.error("task %s is dead: %s", repaired.finding.id, repaired.reason)
        services.hooks.dead(repaired.finding.id, repaired.reason)
    elif repaired.what == "back":
        logger.info("task %s waits again, as its lost place was restored", repaired.finding.id)
    elif repaired.what == "late":
        logger.warning(
            "task %s had lost its place and will be skipped as too late", repaired.finding.id
        )
    elif repaired.what == "lost":
        logger.error(
            "task %s is lost: it had no record, so its place was removed", repaired.finding.id
        )

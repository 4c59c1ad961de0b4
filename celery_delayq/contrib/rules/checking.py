"""What ``health`` and the doctor say of rules; it needs no cronsim."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.servers.risks import ERROR, NOTE, OK, Line
from ...core.services import Services
from ...core.text import counted, lasting, plain
from ...operations.health import Check, Sight
from .. import rule_store

LOOK_EVERY = 30.0  # seconds; so often each process looks at the rules
SHOWN = 3  # rules of whose trouble the doctor tells

_LATE = (
    "a recurring rule should have written its next run {} ago: no process writes the runs of "
    "rules, or none that reads the format of this one; start a worker of your newest release that "
    "has celery_delayq[rules]"
)
_TROUBLED = (
    "the next run of {} cannot be made; celery -A proj delayq rules list says why; mend, pause or "
    "remove them"
)
_UNKNOWN = (
    "no living worker knows the task of {}: {}; remove or pause what is no longer needed, or start "
    "a worker that has the task; if another program runs it, nothing is wrong"
)


def _look(sight: Sight) -> Iterator[Line]:
    """Check that the next run of each rule is written; a process looks each half minute.

    Name those whose task no worker knows: other programs may run it.
    """
    services, counts = sight.services, sight.counts
    if not counts.rules:
        return
    wrong, unknown = _wrong(sight), _unknown(services)
    why = _why(services) if sight.in_full and (wrong or unknown) else ""
    if wrong:
        yield Line.of("rules", ERROR, wrong + why)
    if unknown and not (wrong and sight.in_full):
        yield Line.of("rules", NOTE, unknown + why)
    if not wrong and not unknown:
        yield Line("rules", OK, f"the next runs of {counted(counts.rules, 'rule')} are written")


def _wrong(sight: Sight) -> str:
    counts = sight.counts
    look_ms = counts.rule_look_ms
    late = 0 if look_ms is None else (counts.now_ms - look_ms) / 1000
    if late > sight.bounds.overdue + LOOK_EVERY:
        return _LATE.format(lasting(late))
    troubled = counts.troubled_rules
    return _TROUBLED.format(counted(troubled, "rule")) if troubled else ""


def _unknown(services: Services) -> str:
    found = rule_store.name(services.entries, full=False).unknown
    if not found.get("count"):
        return ""
    shown = ", ".join(plain(f"{name} ({task})") for name, task in found["rules"])
    more = ", ..." if found["count"] > len(found["rules"]) else ""
    return _UNKNOWN.format(counted(found["count"], "rule"), shown + more)


def _why(services: Services) -> str:
    """Return the names of some rules whose next run is not written, and why."""
    rules = rule_store.troubled(services.entries, SHOWN)[:SHOWN]
    return "".join(f"; {plain(rule.name)}: {plain(rule.newer or rule.trouble)}" for rule in rules)


RULES = Check[Sight]("rules", "whether the next runs of rules are written", _look, "delayqrules")

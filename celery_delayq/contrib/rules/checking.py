"""What ``health`` and the doctor say of rules; it needs no cronsim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...core.servers.risks import ERROR, NOTE, OK, Line
from ...core.services import Services
from ...core.text import counted, lasting, plain
from ...operations.health import MAX_OVERDUE, Alert, Check, Gauge, Numbers, Sight, between, most
from .. import rule_store

LOOK_EVERY = 30.0  # seconds; so often each process looks at the rules
SHOWN = 3  # rules of whose trouble the doctor tells

_LATE = Line(
    "rules", ERROR,
    "a recurring rule should have written its next run {} ago: no process writes the runs of "
    "rules, or none that reads the format of this one",
    "start a worker of your newest release that has celery_delayq[rules]",
)  # fmt: skip
_TROUBLED = Line(
    "rules", ERROR, "the next run of {} cannot be made",
    "celery -A proj delayq rules list says why; mend, pause or remove them",
)  # fmt: skip
_UNKNOWN = Line(
    "rules", NOTE, "no living worker knows the task of {}: {}",
    "remove or pause what is no longer needed, or start a worker that has the task; if another "
    "program runs it, nothing is wrong",
)  # fmt: skip


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
        yield replace(wrong, advice=wrong.advice + why)
    if unknown and not (wrong and sight.in_full):
        yield replace(unknown, advice=unknown.advice + why)
    if not wrong and not unknown:
        yield Line("rules", OK, f"the next runs of {counted(counts.rules, 'rule')} are written")


def _late_for(seen: Numbers) -> float:
    return max(0, between(seen.counts.now_ms, seen.counts.rule_look_ms) or 0)


def _wrong(sight: Sight) -> Line | None:
    late, troubled = _late_for(sight), sight.counts.troubled_rules
    if late > sight.bounds.overdue + LOOK_EVERY:
        return _LATE.filled(lasting(late))
    return _TROUBLED.filled(counted(troubled, "rule")) if troubled else None


def _unknown(services: Services) -> Line | None:
    found = rule_store.name(services.entries, full=False).unknown
    if not found.get("count"):
        return None
    shown = ", ".join(f"{name} ({task})" for name, task in found["rules"])
    more = ", ..." if found["count"] > len(found["rules"]) else ""
    return _UNKNOWN.filled(counted(found["count"], "rule"), shown + more)


def _why(services: Services) -> str:
    """Return the names of some rules whose next run is not written, and why."""
    rules = rule_store.troubled(services.entries, SHOWN)[:SHOWN]
    return "".join(f"; {plain(rule.name)}: {plain(rule.newer or rule.trouble)}" for rule in rules)


RULES = Check[Sight](
    "rules", "whether the next runs of rules are written", _look,
    "the next run of a recurring rule cannot be made, or was not written in time", ("overdue",),
    gauges=(
        Gauge("rules", "recurring rules", lambda seen: seen.counts.rules),
        Gauge(
            "troubled_rules", "recurring rules whose next run cannot be made",
            lambda seen: seen.counts.troubled_rules,
        ),
        Gauge(
            "rules_late_seconds",
            "for how long the next run of a recurring rule should have been written, or 0",
            _late_for,
        ),
    ),
    alerts=(
        Alert(
            "DelayqRules",
            f"{most('rules_late_seconds')} > {MAX_OVERDUE + LOOK_EVERY:g} or "
            f"{most('troubled_rules')} > 0",
            "The next run of a recurring rule is not written.",
            "It cannot be made, as `celery -A APP delayq doctor` says, or no worker with "
            "`celery_delayq[rules]` is alive.",
            "2m",
        ),
    ),
)  # fmt: skip

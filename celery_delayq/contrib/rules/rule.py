"""The plan of a rule: its signature, and when it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha1
from typing import Any

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from kombu.utils.json import dumps, loads

from ...core.clock import EPOCH
from ..rule_store import Stored, ms_of
from .timing import Timing

FORMAT = 1
MISSED = ("one", "none", "all")
SOON = timedelta(seconds=2)  # so long beat goes on with an entry, as it may be about to send it
_MS, _A_MINUTE = timedelta(milliseconds=1), timedelta(minutes=1)


@dataclass(frozen=True)
class Plan:
    """What a rule is: all that its digest is of.

    Attributes:
        signature: The fields of a signature, as Celery's JSON has them.
        timing: When it fires.
        missed: What becomes of slots at which nobody scanned: ``one``, the latest is written;
            ``none``; or ``all``.
        jitter: By up to how many seconds each run is later than its slot; always by the same.
        tags: Tags of its runs, beside its own.
        key: The unique key of its runs, or empty.
    """

    signature: str
    timing: Timing
    missed: str = "one"
    jitter: float = 0.0
    tags: tuple[str, ...] = ()
    key: str = ""

    @property
    def text(self) -> str:
        timing = [self.timing.text, self.timing.zone, self.timing.dialect]
        facts = [self.signature, timing, self.missed, self.jitter, self.tags, self.key]
        return json.dumps([FORMAT, *facts], separators=(",", ":"))

    @property
    def digest(self) -> str:
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @classmethod
    def read(cls, text: str) -> Plan:
        """Read the text of a plan.

        Raises:
            ValueError: another program, or a later version, wrote it.
        """
        made, signature, timing, missed, jitter, tags, key = json.loads(text)
        if made != FORMAT:
            raise ValueError(f"rule format {made!r} is unknown")
        return cls(signature, Timing(*timing), missed, jitter, tuple(tags), key)

    def signature_of(self, app: Celery) -> Signature[Any]:
        """Return its signature, for an app."""
        made: Signature[Any] = app.signature(loads(self.signature))
        return made

    def offset(self, name: str) -> timedelta:
        """Return by how much jitter lets the runs of a rule with this name be later."""
        part = int.from_bytes(sha1(name.encode(), usedforsecurity=False).digest()[:6], "big")
        return timedelta(milliseconds=int(self.jitter * 1000 * part / 256**6))


@dataclass(frozen=True)
class Taken:
    """An entry of beat that a rule takes over.

    Attributes:
        last_run: When beat sent it last; ``None``: the rule begins as an entry of a new beat does.
        behind: How much later beat may have sent it, without having stored that.
        deadline: How late beat sends a slot of a crontab at most; ``None``: however late.
    """

    last_run: datetime | None = None
    behind: timedelta = timedelta(0)
    deadline: timedelta | None = None

    def beginning(self, timing: Timing, delay: timedelta, now: datetime) -> dict[str, str]:
        """Return the fields of a row by which its first run is where beat's next one would be.

        Until that run, ``since``, beat sends the entry, and then no longer.
        """
        first = since = self._due(timing, self.last_run or now)
        soon = now + SOON
        if self._is_at_once(timing, since, now):
            # Beat sends it once, and counts an interval from then on.
            first = now if timing.interval else timing.latest(now, 1, since - _MS)[0]
        elif self.last_run is not None:
            if timing.interval:
                first += timing.interval * max(0, (soon - first) // timing.interval + 1)
            else:
                first = self._due(timing, max(soon, first - _MS))
            since = first
        phase = (first - EPOCH) % timing.interval if timing.interval else timedelta(0)
        return {
            "offset": str(-(-(delay + phase) // _MS)),
            "last": str(ms_of(min(soon, first - phase - (timing.interval or _A_MINUTE)))),
            "since": str(ms_of(since)),
        }

    def _due(self, timing: Timing, last_run: datetime) -> datetime:
        if timing.interval:
            return last_run + timing.interval
        return timing.next(last_run) or last_run + timedelta(days=366)

    def _is_at_once(self, timing: Timing, due: datetime, now: datetime) -> bool:
        """Whether a run is overdue that beat cannot have sent."""
        if due >= now - self.behind:
            return False
        if timing.interval or self.deadline is None:
            return True
        return timing.latest(now, 1, due - _MS)[0] >= now - self.deadline


def has_own_apply_async(task: Any) -> bool:
    """Whether a task has an ``apply_async`` of its own, which may do more than send.

    It may take a lock, look whether the task runs already, or send nothing.
    """
    first = next(kind for kind in type(task).__mro__ if "apply_async" in vars(kind))
    return first is not Task or "apply_async" in vars(task)


def text_of(signature: Signature[Any]) -> str:
    """Return a signature's fields as text."""
    return str(dumps(dict(signature.clone())))


def plan_of(rule: Stored) -> Plan:
    """Return a rule's plan, with the schedule that a person gave it, if one did.

    Raises:
        ValueError: this version cannot read it.
    """
    plan = plan_in_code(rule)
    return replace(plan, timing=Timing(*rule.edit.timing)) if rule.edit else plan


def plan_in_code(rule: Stored) -> Plan:
    """Return the plan that code says, or that an import made.

    Raises:
        ValueError: this version cannot read it.
    """
    if rule.newer:
        raise ValueError(rule.newer)
    try:
        return Plan.read(rule.row["plan"])
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error

"""The plan of a rule: its signature, and when it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha1
from itertools import islice
from typing import Any

from celery import Celery
from celery.app.task import Task
from celery.canvas import Signature
from kombu.utils.json import dumps, loads

from ..rule_store import Stored
from .timing import Timing

FORMAT = 1
MISSED = ("one", "none", "all")


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


def has_own_apply_async(task: Any) -> bool:
    """Whether a task has an ``apply_async`` of its own, which may do more than send.

    It may take a lock, look whether the task runs already, or send nothing.
    """
    first = next(kind for kind in type(task).__mro__ if "apply_async" in vars(kind))
    return first is not Task or "apply_async" in vars(task)


def text_of(signature: Signature[Any]) -> str:
    """Return a signature's fields as text."""
    return str(dumps(dict(signature.clone())))


def times(rule: Stored, now: datetime, count: int) -> list[datetime]:
    """Return the next times after *now* at which a rule's runs are due."""
    coming = plan_of(rule).timing.after(now - rule.offset)
    return [slot + rule.offset for slot in islice(coming, count)]


def plan_of(rule: Stored) -> Plan:
    """Return a rule's plan.

    Raises:
        ValueError: this version cannot read it.
    """
    if rule.newer:
        raise ValueError(rule.newer)
    try:
        return Plan.read(rule.row["plan"])
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error

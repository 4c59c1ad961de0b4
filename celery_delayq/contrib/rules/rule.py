"""A rule as the store has it, and as users see it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from hashlib import sha1
from itertools import islice
from typing import Any
from urllib.parse import quote

from celery import Celery
from celery.canvas import Signature
from kombu.utils.json import dumps, loads

from ...core.clock import EPOCH, from_ms
from .timing import Timing

FORMAT = 1
MISSED = ("one", "none", "all")
_ROW = re.compile(rb"(\d+) (\d+) (-[a-z]*) ([0-9a-f]+) \S+ (.*)", re.DOTALL)


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
    def read(cls, text: bytes) -> Plan:
        """Read the rest of a rule's row.

        Raises:
            ValueError: another program, or a later version, wrote it.
        """
        made, signature, timing, missed, jitter, tags, key = json.loads(text)
        if made != FORMAT:
            raise ValueError(f"rule format {made!r} is unknown")
        return cls(signature, Timing(*timing), missed, jitter, tuple(tags), key)

    def rest(self, name: str) -> str:
        """Return the rest of the row of a rule with this name."""
        return f"{quote(self.key or name, safe='')} {self.text}"

    def signature_of(self, app: Celery) -> Signature[Any]:
        """Return its signature, for an app."""
        made: Signature[Any] = app.signature(loads(self.signature))
        return made

    def offset(self, name: str) -> timedelta:
        """Return by how much the runs of the rule with this name are later than their slots."""
        part = int.from_bytes(sha1(name.encode(), usedforsecurity=False).digest()[:6], "big")
        return timedelta(milliseconds=int(self.jitter * 1000 * part / 256**6))


def text_of(signature: Signature[Any]) -> str:
    """Return a signature's fields as text."""
    return str(dumps(dict(signature.clone())))


@dataclass(frozen=True)
class Stored:
    """A rule in the store.

    Attributes:
        name: Its name.
        revision: Raised by each change.
        last: Its last slot: none up to that is written any more.
        flags: ``p``, paused; ``c`` or ``r``, what it wrote is to be cleared up; ``n``, it has
            written nothing yet.
        digest: Of its plan.
        text: Its plan.
        shard: The number of its shard.
    """

    name: str
    revision: int
    last: datetime
    flags: str
    digest: str
    text: bytes
    shard: int

    @classmethod
    def read(cls, name: bytes, row: bytes, shard: int) -> Stored | None:
        """Read a row; ``None``: another program wrote it."""
        found = _ROW.fullmatch(row)
        if found is None:
            return None
        revision, last, flags, digest, text = found.groups()
        return cls(
            name.decode(errors="replace"),
            int(revision),
            from_ms(int(last)),
            flags.decode(),
            digest.decode(),
            text,
            shard,
        )

    @property
    def is_paused(self) -> bool:
        return "p" in self.flags

    @property
    def writes(self) -> bool:
        """Whether it may write its next runs."""
        return not {"p", "c", "r"} & {*self.flags}

    @property
    def is_new(self) -> bool:
        """Whether it has written nothing since it was set or resumed."""
        return "n" in self.flags

    @property
    def plan(self) -> Plan:
        """Its plan.

        Raises:
            ValueError: this version cannot read it.
        """
        return Plan.read(self.text)

    def times(self, now: datetime, count: int) -> list[datetime]:
        """Return the next times after *now* at which its runs are due."""
        plan = self.plan
        offset = plan.offset(self.name)
        return [slot + offset for slot in islice(plan.timing.after(now - offset), count)]


def ms_of(moment: datetime) -> int:
    """Return a moment's unix ms, rounded up: nothing is early."""
    return -((EPOCH - moment.astimezone(timezone.utc)) // timedelta(milliseconds=1))

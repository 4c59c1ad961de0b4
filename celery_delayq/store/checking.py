"""Look through the store for what does not fit together; changes nothing.

    records <----> due, relay, refused,          one place to a record, one record to a place
       |           parked, leased, dead
       |       <-- claims, errors, holders       only of what is there
       |<--------> tags                          each tag of a record, and no other
    templates <--> template_uses                 as many as records share

Each slice is one atomic step that looks at both sides, so what is in motion fits. Only the counts
of templates span slices: see :class:`_Uses`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..logs import plain
from .scripts import Scripts

COUNT = 20  # fields of a slice: records may be large
LATE_MS = 60_000  # after which a lease that ended should have been taken back

_INDEXES = ("due", "relay", "leased", "dead", "refused", "parked", "tags")
_HASHES = ("templates", "claims", "errors", "holders")

SENTENCES = {
    "record_without_place": "a record waits nowhere, so it will not be handed over",
    "place_without_record": "a place has no record; it is dropped, or dead, when it is due",
    "dead_without_record": "a dead letter has no record, so nothing can bring it back",
    "second_place": "a second place of one record, which a later step drops",
    "parked_for_ever": "a record is parked where nothing is paused; pause and resume it",
    "unreadable_record": "a record that this version cannot read",
    "template_gone": "a record shares a template that is gone, so it will be dead when it is due",
    "lease_without_claim": "a lease without a claim; scanners take it back",
    "stale_lease": "a lease that should have ended; scanners take it back, if one is alive",
    "claim_without_record": "a claim is left of what is not here",
    "error_without_record": "an error is left of what is not here",
    "key_without_entry": "a unique key names what is not here, or has another; it is free",
    "tag_without_entry": "a tag is left of what is not here, or has another; selections pass it by",
    "entry_without_tag": "a record has a tag by which no selection finds it",
    "template_without_count": "a template that no count keeps",
    "count_too_low": "a template counts too few records, so it may go before the last of them",
    "count_too_high": "a template counts too many records, so it stays when the last has left",
}


@dataclass(frozen=True)
class Finding:
    """Something in the store that does not fit.

    Attributes:
        kind: What kind of thing, in one word with underscores.
        id: The task's id; or of a template its name, in hexadecimal digits; or a unique key.
    """

    kind: str
    id: str

    @property
    def sentence(self) -> str:
        """What is wrong, and what that means."""
        return SENTENCES[self.kind]

    def __str__(self) -> str:
        return f"{plain(self.id)}: {self.sentence}"


def check(scripts: Scripts) -> Iterator[Finding]:
    """What does not fit, read slice by slice while one iterates; each finding once."""
    uses = _Uses(scripts)
    given: set[Finding] = set()
    for part in (*_INDEXES, *_HASHES, "records"):
        for finding in uses.look(part):
            if finding not in given:
                given.add(finding)
                yield finding
    yield from uses.wrong()


class _Uses:
    """The counts of templates, held against the records that share them.

    Records older than the look only become fewer, so to find more of them than were counted when it
    began proves a count too low. One too high is proved where nothing came or went meanwhile.
    """

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._counts, self._lasts = self._read()
        self._last = min(self._lasts)
        self._seen: set[int] = set()  # hashes, which take less than the members
        self._old: Counter[bytes] = Counter()

    def look(self, part: str) -> Iterator[Finding]:
        for found, _, shared in _slices(self._scripts, part):
            for name, member in shared:
                self._count(name, member)
            for kind, field in found:
                yield _finding(kind.decode(), field)

    def _count(self, name: bytes, member: bytes) -> None:
        if int.from_bytes(member[:6], "big") // 2 <= self._last and hash(member) not in self._seen:
            self._seen.add(hash(member))
            self._old[name] += 1

    def wrong(self) -> Iterator[Finding]:
        counts, lasts = self._read()
        nothing_came = len(lasts | self._lasts) == 1
        for name, old in self._old.items():
            if old > self._counts.get(name, 0):
                yield _finding("count_too_low", name)
        for name, count in self._counts.items():
            if not nothing_came or counts.get(name) != count:
                continue
            if count > self._old[name]:
                yield _finding("count_too_high", name)
            elif not self._old[name]:
                yield _finding("template_without_count", name)

    def _read(self) -> tuple[dict[bytes, int], set[int]]:
        counts: dict[bytes, int] = {}
        lasts = set()
        for _, last, shared in _slices(self._scripts, "template_uses"):
            counts.update((name, _number(uses)) for name, uses in shared)
            lasts.add(last)
        return counts, lasts


def _slices(scripts: Scripts, part: str) -> Iterator[tuple[list[Any], int, list[Any]]]:
    cursor: Any = 0
    while True:
        cursor, found, last, shared = scripts.call(
            "check", part=part, cursor=cursor, count=COUNT, late=LATE_MS
        )
        yield _pairs(found), _number(last), _pairs(shared)
        if int(cursor) == 0:
            return


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        return 0


def _finding(kind: str, field: bytes) -> Finding:
    if kind.startswith(("count_", "template_without")):
        return Finding(kind, field.hex())
    return Finding(kind, field.decode(errors="replace"))

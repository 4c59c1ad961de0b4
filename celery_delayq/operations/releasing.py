"""Release of waiting tasks: each leaves as a plain Celery message with an ``eta``.

check all of them ---> any run of a recurring rule, or any canvas without canvas=True: refused,
    |                  nothing is sent
    |
    v
in due order: read a batch --> set each due time as the message's eta --> send them to their queues
                   ^                                                           |
                   +--------------- changed since they were read --------------+
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..core.clock import celery_time, from_ms
from ..core.errors import InvalidOption, RulesRemain
from ..core.leaves import LEAVES, leaf
from ..core.message.headers import LAUNCH
from ..core.services import Services
from ..core.store import Filter, Match, Shard, label_of
from ..core.store.record import NewRecord, Record, entry_of
from ..core.store.selection import peek
from ..core.tasks.selection import Count, Tally
from .draft import Draft
from .rewriting import Rewriting

_CANVAS = label_of(LAUNCH)
_STAYS = ("DEAD", "UNREADABLE")


class Released(Count):
    """The number of tasks that were released, or would be.

    Attributes:
        canvases: How many of these are canvases.
        beyond: How many of these are due later than the broker lets a worker hold a message.
        dead: How many others stay because they are dead.
    """

    canvases: int = 0
    beyond: int = 0
    dead: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all matching tasks were released, and none was delivered before."""
        return super().is_complete and not self.dead


class ReleaseTally(Tally):
    """Counts released tasks, step by step; and runs of recurring rules among them."""

    def __init__(self) -> None:
        super().__init__()
        self.canvases = self.beyond = self.dead = self.runs = 0

    @property
    def count(self) -> Released:
        plain = super().count
        made = Released(
            plain,
            uncertain=plain.uncertain,
            in_flight=plain.in_flight,
            unreadable=plain.unreadable,
        )
        made.canvases, made.beyond, made.dead = self.canvases, self.beyond, self.dead
        return made


class Release(Rewriting[ReleaseTally]):
    """The release of the tasks of a selection.

    Args:
        services: The app's.
        chosen: The selection's filters.
        bulk: The name of the change.
    """

    name = "release"
    releases = True

    def __init__(self, services: Services, chosen: Filter, bulk: str) -> None:
        super().__init__(services, chosen, bulk)
        self._limit = services.broker.hold_limit
        self._has_rules = services.entries.counts().rules > 0
        self._found: list[bytes] = []  # sorted by due time: due time, shard and member of each

    def count_page(self, number: int, members: Sequence[bytes], tally: ReleaseTally) -> None:
        """Count the tasks among *members* that would be released, and remember all of them."""
        shard = self._services.entries.shards[number]
        for met in peek(shard, self._chosen, members, reads=True):
            place = met.due_ms.to_bytes(6, "big") + number.to_bytes(2, "big")
            self._found.append(place + met.member)
            if met.state in _STAYS:
                tally.dead += 1
            elif met.record is not None and not met.record.is_released:
                tally.met(met.state, would=met.state != "IN_FLIGHT")
                tally.runs += self._has_rules and self._is_run(met, met.record)
                self._note(met, met.record, tally)

    def steps(self, size: int) -> Iterator[tuple[Shard, list[bytes]]]:
        """Yield the members that were counted, in due order: shard by shard of each next *size*.

        A worker takes messages in the order of its queue. If it met the far ones first, the others
        would be late.
        """
        self._found.sort()
        for first in range(0, len(self._found), size):
            of_shard = defaultdict(list)
            for found in self._found[first : first + size]:
                of_shard[int.from_bytes(found[6:8], "big")].append(found[8:])
            for number, members in of_shard.items():
                yield self._services.entries.shards[number], members

    def new_record(self, met: Match, tally: ReleaseTally) -> NewRecord | None:
        if met.state in _STAYS:
            tally.dead += 1
            return None
        if met.record is None or met.record.is_released:
            return None
        try:
            return self._new_record(met, met.record)
        except Exception:  # an invalid message fails in many ways
            tally.unreadable += 1
            return None

    def done(self, met: Match, seen: Record, tally: ReleaseTally) -> None:
        self._note(met, seen, tally)

    def _new_record(self, met: Match, record: Record) -> NewRecord:
        entry = entry_of(met.task_id, met.facts, record, met.template)
        draft = Draft(entry.message, record, self._services.app)
        if draft.is_v1 and not draft.is_readable:
            raise ValueError("its body cannot be decoded, or may not be")
        draft.set_eta(from_ms(entry.due_ms))
        grace_ms = entry.extras.grace_ms
        if grace_ms is not None:
            # Celery has no grace period, but it does not run expired tasks either.
            last = from_ms(max(entry.due_ms, met.facts.late_from_ms or 0) + grace_ms)
            expires = draft.expires
            if expires is None or celery_time(expires) > last:
                draft.set_expiry(last)
        return draft.released()

    def _is_run(self, met: Match, record: Record) -> bool:
        """Whether a recurring rule has written a task: such a run has a UUID of version 5 as id."""
        if met.task_id[14:15] != "5" or "rules" not in LEAVES:
            return False
        tags = entry_of(met.task_id, met.facts, record, met.template).extras.tags
        return bool(leaf("rules").is_run(met.task_id, tags))

    def _note(self, met: Match, record: Record, tally: ReleaseTally) -> None:
        tally.canvases += record.task_label == _CANVAS
        ahead_ms = met.due_ms - met.now_us // 1000
        tally.beyond += self._limit is not None and ahead_ms > self._limit.seconds * 1000


def refuse_runs(count: int) -> None:
    """Raise ``RulesRemain`` if there are runs of recurring rules to release."""
    if count:
        raise RulesRemain(count)


def refuse_canvases(count: int) -> None:
    """Raise ``InvalidOption`` if there are canvases to release."""
    if count:
        only = "only a worker with celery_delayq can run a canvas, and there"
        are = "is 1" if count == 1 else f"are {count}"
        raise InvalidOption("canvas", False, f"True: {only} {are}")

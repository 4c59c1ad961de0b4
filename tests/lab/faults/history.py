"""Compares the answers to callers with the messages at the queues: lost, early, twice, untrue.

    calls of one id, in order  -->  every course that its entry may have taken  -->  the best one
                                    (without a reply: it was done, or not)              |
    copies at the queues, and what the store still holds  ------------------------->  problems

All calls for one id come from one caller, one after the other, and each call that schedules has a
version of its own, which travels as the task's argument. All clocks are one machine's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Span = tuple[int, int]  # earliest and latest, in Unix ms: a caller's knowledge of a due time
NEVER = 2**63  # later than any time

# No fault: a copy that is marked as a possible duplicate.
MARKED = "twice marked"
KINDS = ("lost", "early", "twice unmarked", MARKED, "wrong answer", "left over")


@dataclass(frozen=True)
class Call:
    """One call and its answer; times in Unix ms.

    ``what``: schedule, cancel or reschedule.
    ``answer``: done, uncertain, in_flight, handed_over, not_found; of a schedule done or already;
    refused (an error that says that nothing was done), unknown (no answer came). Any other text,
    such as that of an error which should not be, is untrue.
    ``due``: the new due time, of a schedule or reschedule; from the present one if ``by``.
    """

    task_id: str
    what: str
    called: int
    answered: int
    answer: str
    version: int = 0
    due: Span = (0, 0)
    by: bool = False


@dataclass(frozen=True)
class Copy:
    """One message at a queue: whose it is, what it says of itself, and when it was first seen."""

    task_id: str
    version: int
    due: int
    seen: int
    marked: bool = False


@dataclass(frozen=True)
class Kept:
    """An entry that the store holds at the end: waiting, or dead."""

    task_id: str
    version: int
    due: int
    dead: bool = False


@dataclass(frozen=True)
class Problem:
    kind: str
    task_id: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.task_id} {self.sentence}"


@dataclass(frozen=True)
class Spell:
    """One version from its scheduling to its end.

    ``how``: waits, left or cancelled; ``unsure``: a copy may have gone before that.
    """

    version: int
    dues: tuple[Span, ...]
    how: str = "waits"
    unsure: bool = False


Course = tuple[Spell, ...]
PAST = {"waits": "waits", "cancelled": "was cancelled"}


@dataclass
class Verdict:
    """The verdict on a whole history."""

    problems: list[Problem] = field(default_factory=list)
    scheduled: int = 0
    cancelled: int = 0
    handed_over: int = 0
    dead: int = 0
    waiting: int = 0

    def count(self, kind: str) -> int:
        return sum(problem.kind == kind for problem in self.problems)

    @property
    def faults(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.kind != MARKED]

    @property
    def missing(self) -> int:
        """How many tasks the books lack (negative: have too many); 0 if they balance."""
        gone = self.handed_over + self.cancelled + self.dead + self.waiting
        return self.scheduled - gone


def judge(
    calls: Iterable[Call],
    copies: Iterable[Copy],
    kept: Iterable[Kept],
    ended: int,
    *,
    relayed: bool = False,
) -> Verdict:
    """Compare calls with the copies and the entries that are kept.

    Args:
        calls: The calls for each id, in the order in which they were made.
        copies: Every message that arrived.
        kept: Everything that the store still holds.
        ended: When the wait for the last hand-over ended, in Unix ms; no due entry is left then.
        relayed: Tasks went to another broker, so IN_FLIGHT and UNCERTAIN may be true.

    Fewer than 10,000 other ids may have left since the one in question: the store forgets.
    """
    by_id, arrived, held = (_by("task_id", facts) for facts in (calls, copies, kept))
    rules = _Rules(relayed)
    verdict = Verdict()
    for task_id in [*by_id, *((arrived.keys() | held.keys()) - by_id.keys())]:
        found = _Evidence(task_id, arrived.get(task_id, []), held.get(task_id, []), ended)
        problems, course = found.best(*rules.courses(by_id.get(task_id, [])))
        verdict.problems += problems
        verdict.scheduled += len(course)
        verdict.cancelled += sum(spell.how == "cancelled" for spell in course)
        verdict.handed_over += found.handed_over(course)
        verdict.dead += sum(one.dead for one in found.kept)
        verdict.waiting += sum(not one.dead for one in found.kept)
    return verdict


def _by(name: str, facts: Iterable[Call] | Iterable[Copy] | Iterable[Kept]) -> dict[Any, list]:
    grouped: dict[Any, list] = defaultdict(list)
    for fact in facts:
        grouped[getattr(fact, name)].append(fact)
    return grouped


@dataclass(frozen=True)
class _Rules:
    """The true answers for each course, according to the documentation of outcomes."""

    relayed: bool

    def courses(self, calls: Iterable[Call]) -> tuple[set[Course], list[Problem]]:
        """Every course that fits the answers; and the answers that fit none."""
        courses: set[Course] = {()}
        lies = []
        for call in calls:
            before = {each for one in courses for each in _gone_by(one, call.answered)}
            pairs = [pair for one in before for pair in self._answers(one, call)]
            courses = {after for answer, after in pairs if call.answer in (answer, "unknown")}
            if call.answer == "refused":
                courses = before
            if not courses:
                said = f"{call.what} was answered {call.answer.upper()}, which cannot be"
                lies.append(Problem("wrong answer", call.task_id, said))
                # The judge goes on from the state that the call left, whatever that is.
                courses = before | {after for _, after in pairs}
            elif call.answer == "unknown":
                courses |= before
        # At the end an entry may have gone at any time; if that was too early, it is called early.
        return {each for one in courses for each in _gone_by(one, NEVER)}, lies

    def _answers(self, course: Course, call: Call) -> Iterator[tuple[str, Course]]:
        """The possible answers, each with the course that follows."""
        last = course[-1] if course else None
        if call.what == "schedule":
            if last and last.how == "waits":
                yield "already", course
            else:
                yield "done", (*course, Spell(call.version, (call.due,)))
        elif last and last.how == "waits":
            yield from self._changed(course[:-1], last, call)
        elif last and (last.how == "left" or last.unsure):
            yield "handed_over", course
            if last.how == "cancelled":
                yield "not_found", course
        else:
            yield "not_found", course

    def _changed(self, earlier: Course, last: Spell, call: Call) -> Iterator[tuple[str, Course]]:
        if call.what == "cancel":
            changed = replace(last, how="cancelled")
        else:
            start, end = last.dues[-1] if call.by else (0, 0)
            due = (max(0, start + call.due[0]), max(0, end + call.due[1]))
            changed = replace(last, dues=(*last.dues, due))
        if not last.unsure:
            yield "done", (*earlier, changed)
        if self.relayed and min(due[0] for due in last.dues) <= call.answered:
            yield "uncertain", (*earlier, replace(changed, unsure=True))
            yield "in_flight", (*earlier, last)


def _gone_by(course: Course, when: int) -> Iterator[Course]:
    """The course as it is, and with its entry handed over if that was due by then."""
    yield course
    if course and course[-1].how == "waits" and course[-1].dues[-1][0] <= when:
        yield (*course[:-1], replace(course[-1], how="left"))


@dataclass(frozen=True)
class _Evidence:
    """The traces of one id at the end."""

    task_id: str
    copies: list[Copy]
    kept: list[Kept]
    ended: int

    def best(self, courses: set[Course], lies: list[Problem]) -> tuple[list[Problem], Course]:
        """The course that fits the evidence best, and the problems that remain with it."""

        def weight(pair: tuple[list[Problem], Course]) -> tuple[int, int]:
            return sum(problem.kind != MARKED for problem in pair[0]), len(pair[1])

        judged = [(list(self._against(course)), course) for course in courses]
        problems, course = min(judged, key=weight)
        return lies + problems, course

    def handed_over(self, course: Course) -> int:
        """How many copies the books count.

        They leave out marked duplicates. They also leave out a copy that went before its entry was
        cancelled or moved without certainty: such an entry counts by its present state.
        """
        unsure = {spell.version for spell in course if spell.how != "left" and spell.unsure}
        left = Counter(spell.version for spell in course if spell.how == "left")
        return sum(
            left[version] if version in unsure else max(1, sum(not copy.marked for copy in some))
            for version, some in _by("version", self.copies).items()
        )

    def _against(self, course: Course) -> Iterator[Problem]:
        spells: dict[int, list[Spell]] = defaultdict(list)
        for spell in course:
            spells[spell.version].append(spell)
        copies, kept = _by("version", self.copies), _by("version", self.kept)
        for version in sorted(spells.keys() | copies.keys() | kept.keys()):
            some = spells.get(version, [])
            yield from self._of_copies(version, some, copies.get(version, []))
            yield from self._of_kept(version, some, kept.get(version, []))

    def _problem(self, kind: str, version: int, sentence: str) -> Problem:
        return Problem(kind, self.task_id, f"version {version} {sentence}")

    def _of_copies(
        self, version: int, spells: list[Spell], copies: list[Copy]
    ) -> Iterator[Problem]:
        left = sum(spell.how == "left" for spell in spells)
        unsure = sum(spell.unsure and spell.how != "left" for spell in spells)
        allowed = max(1, left + unsure)
        unmarked = sum(not copy.marked for copy in copies)
        if len(copies) < left:
            yield self._problem("lost", version, "was due and is at no queue")
        if copies and not left and not unsure:
            how = PAST[spells[-1].how] if spells else "was never scheduled"
            yield self._problem("wrong answer", version, f"arrived, though by the answers it {how}")
        elif unmarked > allowed:
            yield self._problem("twice unmarked", version, f"arrived {unmarked} times unmarked")
        elif len(copies) > allowed:
            yield self._problem(MARKED, version, f"arrived {len(copies)} times")
        for copy in copies:
            yield from self._of_time(version, [one for one in spells if one.how == "left"], copy)

    def _of_time(self, version: int, left: list[Spell], copy: Copy) -> Iterator[Problem]:
        dues = [due for one in left for due in (one.dues if one.unsure else one.dues[-1:])]
        if copy.seen < copy.due or (dues and copy.seen < min(due[0] for due in dues)):
            due = max(copy.due, *(one[0] for one in dues)) if dues else copy.due
            yield self._problem("early", version, f"arrived {due - copy.seen} ms before its time")
        elif dues and not any(start <= copy.due <= end for start, end in dues):
            said = f"went for {copy.due}, which is not the time that its caller got"
            yield self._problem("wrong answer", version, said)

    def _of_kept(self, version: int, spells: list[Spell], kept: list[Kept]) -> Iterator[Problem]:
        waits = [spell for spell in spells if spell.how == "waits"]
        if len(kept) < len(waits):
            yield self._problem("lost", version, "waited and is not in the store")
        if len(kept) > len(waits):
            yield self._problem("wrong answer", version, "is in the store, though it should not be")
        for spell, one in zip(waits, kept, strict=False):
            start, end = spell.dues[-1]
            if not start <= one.due <= end:
                said = f"waits for {one.due}, which is not the time that its caller got"
                yield self._problem("wrong answer", version, said)
            elif one.due <= self.ended and not one.dead:
                yield self._problem("left over", version, "is due and was not handed over")

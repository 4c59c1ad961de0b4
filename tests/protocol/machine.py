"""What the store should hold: a dictionary, and the rules in words of every day.

It knows nothing of keys, scores or records. `test_machine.py` drives it and the scripts alike.
"""

from dataclasses import dataclass, field

from celery_delayq.store import Outcome

LEASE_MS = 30_000
MAX_REFUSALS = 2
WAITING, LEASED, DEAD = "waiting", "leased", "dead"


@dataclass
class Task:
    """One task that is held."""

    number: int  # of insertion
    kind: str  # "list" or "relay"
    queue: str
    due_ms: int
    operation: bytes
    shares: bool
    place: str = WAITING
    ready_ms: int = 0  # when a scanner may take it; later than due after a refusal
    lease_ends_ms: int = 0
    holder: object = None
    attempts: int = 0
    refusals: int = 0
    uncertain: bool = False
    reason: str = ""

    def tally(self) -> tuple[int, int, bool]:
        return self.attempts, self.refusals, self.uncertain

    def order(self) -> tuple[int, int]:
        return self.ready_ms, self.number


@dataclass
class Shelf:
    """All tasks, what left, and the time."""

    now_ms: int
    tasks: dict[str, Task] = field(default_factory=dict)
    left: dict[str, tuple[str, int, bytes]] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)  # queues whose list cannot be pushed to
    numbers: int = 0

    def schedule(self, *, task_id, kind, queue, due_ms, operation, shares, supersede):
        """The due time, or ``None`` for a conflict."""
        gone = self.left.get(task_id)
        if gone and gone[2] == operation:
            return gone[1]
        held = self.tasks.get(task_id)
        if held and held.operation == operation:
            return held.due_ms
        if held and not (supersede and (held.uncertain or held.place == LEASED)):
            return None
        self.numbers += 1
        self.tasks[task_id] = Task(
            self.numbers, kind, queue, due_ms, operation, shares, ready_ms=due_ms
        )
        return due_ms

    def _too_late(self, task_id) -> Outcome | None:
        task = self.tasks.get(task_id)
        if task is None:
            handed = self.left.get(task_id, ("",))[0] == "tombstones"
            return Outcome.HANDED_OVER if handed else Outcome.NOT_FOUND
        under_lease = task.place == LEASED and task.lease_ends_ms > self.now_ms
        return Outcome.IN_FLIGHT if under_lease else None

    def _certainty(self, task) -> Outcome:
        return Outcome.UNCERTAIN if task.uncertain or task.place == LEASED else Outcome.DONE

    def _leave(self, task_id, how):
        task = self.tasks.pop(task_id)
        self.left[task_id] = (how, task.due_ms, task.operation)

    def cancel(self, task_id) -> Outcome:
        if (answer := self._too_late(task_id)) is not None:
            return answer
        answer = self._certainty(self.tasks[task_id])
        self._leave(task_id, "cancelled")
        return answer

    def reschedule(self, task_id, mode, ms) -> tuple[Outcome, int | None]:
        if (answer := self._too_late(task_id)) is not None:
            return answer, None
        task = self.tasks[task_id]
        answer, lost = self._certainty(task), task.place == LEASED
        base = {"at": 0, "after": self.now_ms, "by": task.due_ms}[mode]
        task.due_ms = task.ready_ms = max(0, base + ms)
        task.place, task.holder, task.reason = WAITING, None, ""
        task.attempts = task.attempts + lost if answer is Outcome.UNCERTAIN else 0
        task.refusals, task.uncertain = 0, answer is Outcome.UNCERTAIN
        return answer, task.due_ms

    def ready(self, kind, limit) -> list[str]:
        waiting = [
            task_id
            for task_id, task in self.tasks.items()
            if task.kind == kind and task.place == WAITING and task.ready_ms <= self.now_ms
        ]
        return sorted(waiting, key=lambda task_id: self.tasks[task_id].order())[:limit]

    def move(self, limit) -> tuple[int, set[str]]:
        """How many went, and which of them became dead."""
        ready = self.ready("list", limit)
        refused = [each for each in ready if self.tasks[each].queue in self.refusing]
        for task_id in ready:
            if task_id not in refused:
                self.queues.setdefault(self.tasks[task_id].queue, []).append(task_id)
                self._leave(task_id, "tombstones")
        dead = {task_id for task_id in refused if self._refuse(self.tasks[task_id])}
        return len(ready) - len(refused), dead

    def _refuse(self, task) -> bool:
        task.attempts, task.refusals = task.attempts + 1, task.refusals + 1
        task.ready_ms = self.now_ms + 1000 * 2**task.refusals
        if task.refusals >= MAX_REFUSALS:
            task.place, task.reason = DEAD, "refused by its list"
        return task.place == DEAD

    def claim(self, limit, holder) -> list[tuple[str, tuple[int, int, bool]]]:
        claimed = self.ready("relay", limit)
        for task_id in claimed:
            task = self.tasks[task_id]
            task.place, task.holder = LEASED, holder
            task.lease_ends_ms = self.now_ms + LEASE_MS
        return [(task_id, self.tasks[task_id].tally()) for task_id in claimed]

    def held_by(self, holder, task_ids) -> list[Task]:
        tasks = [self.tasks[task_id] for task_id in task_ids if task_id in self.tasks]
        return [task for task in tasks if task.holder is holder]

    def ack(self, holder, task_ids) -> int:
        acked = [each for each in task_ids if each in self.tasks and self.held_by(holder, [each])]
        for task_id in acked:
            self._leave(task_id, "tombstones")
        return len(acked)

    def nack(self, holder, task_ids, verdict, wait_ms, uncertain) -> int:
        tasks = self.held_by(holder, task_ids)
        for task in tasks:
            task.holder, task.place = None, DEAD if verdict == "dead" else WAITING
            task.attempts += verdict != "unsent"
            task.refusals += verdict in ("refused", "dead")
            task.uncertain |= uncertain or verdict == "unknown"
            task.ready_ms = self.now_ms + wait_ms if verdict == "refused" else task.due_ms
            task.reason = "NO_ROUTE" if verdict == "dead" else ""
        return len(tasks)

    def reclaim(self) -> set[str]:
        over = {
            task_id
            for task_id, task in self.tasks.items()
            if task.place == LEASED
            and not self.now_ms < task.lease_ends_ms <= self.now_ms + LEASE_MS
        }
        for task_id in over:
            task = self.tasks[task_id]
            task.place, task.holder, task.uncertain = WAITING, None, True
            task.ready_ms, task.attempts = task.due_ms, task.attempts + 1
        return over

    def count(self, place) -> int:
        return sum(task.place == place for task in self.tasks.values())

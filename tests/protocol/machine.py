"""A model of the store's contents: a dictionary, and the rules in everyday words.

It knows nothing of keys, scores or records. `test_machine.py` drives it and the scripts alike.
"""

from dataclasses import dataclass, field

from celery_delayq.core.store import Outcome

LEASE_MS = 30_000
MAX_REFUSALS = 2
WAITING, LEASED, DEAD = "waiting", "leased", "dead"


@dataclass
class Task:
    """One task that is scheduled."""

    number: int  # the order of insertion
    kind: str  # "list" or "relay"
    queue: str
    due_ms: int
    shares: bool
    changed_us: int = 0
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
    handed_over: set[str] = field(default_factory=set)
    queues: dict[str, list[str]] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)  # queues whose list refuses a push
    numbers: int = 0

    def schedule(self, *, task_id, kind, queue, due_ms, shares, supersede):
        """The due time, or ``None`` for a conflict."""
        held = self.tasks.get(task_id)
        if held and not (supersede and (held.uncertain or held.place == LEASED)):
            return None
        self.numbers += 1
        self.handed_over.discard(task_id)
        changed = self._next_change(held)
        self.tasks[task_id] = Task(
            self.numbers, kind, queue, due_ms, shares, changed, ready_ms=due_ms
        )
        return due_ms

    def _next_change(self, task) -> int:
        return max(self.now_ms * 1000, task.changed_us + 1) if task else self.now_ms * 1000

    def _is_in_flight(self, task) -> bool:
        return task.place == LEASED and task.lease_ends_ms > self.now_ms

    def _too_late(self, task_id) -> Outcome | None:
        task = self.tasks.get(task_id)
        if task is None:
            return Outcome.HANDED_OVER if task_id in self.handed_over else Outcome.NOT_FOUND
        return Outcome.IN_FLIGHT if self._is_in_flight(task) else None

    def _certainty(self, task) -> Outcome:
        return Outcome.UNCERTAIN if task.uncertain or task.place == LEASED else Outcome.DONE

    def _leave(self, task_id):
        self.tasks.pop(task_id)
        self.handed_over.add(task_id)

    def cancel(self, task_id) -> Outcome:
        if (answer := self._too_late(task_id)) is not None:
            return answer
        answer = self._certainty(self.tasks.pop(task_id))
        self.handed_over.discard(task_id)
        return answer

    def reschedule(self, task_id, mode, ms) -> tuple[Outcome, int | None]:
        if (answer := self._too_late(task_id)) is not None:
            return answer, None
        task = self.tasks[task_id]
        answer, lost = self._certainty(task), task.place == LEASED
        base = {"at": 0, "after": self.now_ms, "by": task.due_ms}[mode]
        task.due_ms = task.ready_ms = max(0, base + ms)
        task.changed_us = self._next_change(task)
        task.place, task.holder, task.reason = WAITING, None, ""
        task.attempts = task.attempts + lost if answer is Outcome.UNCERTAIN else 0
        task.refusals, task.uncertain = 0, answer is Outcome.UNCERTAIN
        return answer, task.due_ms

    def edit(self, task_id, seen, queue, shares) -> Outcome:
        """*seen*: number and last change of the task that the caller has read."""
        if (answer := self._too_late(task_id)) is not None:
            return answer
        task = self.tasks[task_id]
        if (task.number, task.changed_us) != seen:
            return Outcome.UNCHANGED
        answer = self._certainty(task)
        task.shares, task.changed_us = shares, self._next_change(task)
        task.queue = queue if task.kind == "list" else task.queue
        if task.place == LEASED:
            task.place, task.holder, task.uncertain = WAITING, None, True
            task.ready_ms, task.attempts, task.refusals = task.due_ms, task.attempts + 1, 0
        return answer

    def ready(self, kind, limit) -> list[str]:
        waiting = [
            task_id
            for task_id, task in self.tasks.items()
            if task.kind == kind and task.place == WAITING and task.ready_ms <= self.now_ms
        ]
        return sorted(waiting, key=lambda task_id: self.tasks[task_id].order())[:limit]

    def move(self, limit) -> tuple[int, set[str]]:
        """The number of entries that went, and the ids of those that became dead."""
        ready = self.ready("list", limit)
        refused = [each for each in ready if self.tasks[each].queue in self.refusing]
        for task_id in ready:
            if task_id not in refused:
                self.queues.setdefault(self.tasks[task_id].queue, []).append(task_id)
                self._leave(task_id)
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
            self._leave(task_id)
        return len(acked)

    def nack(self, holder, task_ids, verdict, wait_ms, uncertain) -> int:
        tasks = self.held_by(holder, task_ids)
        for task in tasks:
            task.holder, task.place = None, DEAD if verdict == "dead" else WAITING
            task.attempts += verdict != "unsent"
            task.refusals += verdict in ("refused", "dead")
            task.uncertain |= uncertain or verdict == "unknown"
            waits = verdict in ("refused", "denied")
            task.ready_ms = self.now_ms + wait_ms if waits else task.due_ms
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

"""Runs that hold a key, and the words of their workers; compared with what the store holds.

delivered --in a queue--> begins --goes on--> ends
              |             |                   |
              |             +-- word: held on   +-- word: free, perhaps twice, or late
              |             +-- schedules its own id: a task that waits behind it, or its retry
              +-- its worker dies at any time, and sends no more
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.lab.simulator.books import Call, Life
from tests.lab.simulator.driver import Copy, Hold, said_in
from tests.lab.simulator.network import Request
from tests.lab.simulator.sight import Sight

MOST = 20  # runs in a world
TIDY_MS = 15_000  # after its end, a key is forgotten within a safety interval


@dataclass(eq=False)
class Run:
    """One copy of a task that holds a key.

    Attributes:
        life: The entry that it is a copy of.
        counts: Whether no other copy was there, and it is wanted.
        is_active: Whether it has begun, and not ended.
        has_ended: Whether Redis has answered to its word of that.
    """

    name: str
    hold: Hold
    life: Life
    counts: bool
    is_active: bool = False
    has_ended: bool = False

    @property
    def delivery(self) -> tuple[str, str]:
        return self.hold.id, self.hold.delivery

    def __str__(self) -> str:
        return f"{self.name} of {self.hold.id}"


class Runs:
    """Gets every delivery and every request that Redis ran, from the judge.

    Args:
        judge: The judge.
    """

    def __init__(self, judge: Any):
        self.judge = judge
        self.start: Callable[[Run], None] = lambda _: None
        self.all: dict[str, Run] = {}
        self._ends: dict[tuple[str, str], int] = {}  # when each delivery's key is free at last
        self._first: dict[tuple[str, str], int] = {}  # the same, as its hand-over has said
        self._latest_ms = 0  # that Redis's clock has shown
        # Deliveries of which a run has ended, or goes on; ids of which a marked copy has.
        self._freed: set[tuple[str, str]] = set()
        self._freed_by_marked: set[str] = set()

    def delivered(self, copy: Copy, life: Life) -> None:
        """A copy is with a worker; one is not wanted if its entry was cancelled or replaced since.

        Nothing calls it back, and its key is free for others.
        """
        if copy.hold is None or len(self.all) >= MOST:
            return
        counts = not (copy.is_marked or life.is_cancelled)
        run = Run(f"r{len(self.all) + 1}", copy.hold, life, counts)
        self.all[run.name] = run
        self.start(run)

    def began(self, run: Run) -> None:
        """No two tasks run at once under a key, until the time of the first one is over.

        If a message was published twice, the run that ends or goes on first frees the key: the
        first copy may come after that, also if its id was scheduled anew in between, and that one's
        copy is marked for it. One that begins when its own time is over holds none, either; nor one
        whose entry was cancelled or replaced after its delivery, with the outcome UNCERTAIN.
        """
        run.is_active = True
        if run.life.is_cancelled:
            return
        is_over = self._latest_ms >= self._ends.get(run.delivery, math.inf)
        if is_over or run.delivery in self._freed or run.hold.id in self._freed_by_marked:
            return
        for other in self.all.values():
            both = run.counts and other.counts and other.is_active
            both = both and other.delivery != run.delivery
            until_ms = self._ends.get(other.delivery, 0)
            both = both and other.delivery not in self._freed
            if both and other.hold.key == run.hold.key and self._latest_ms < until_ms:
                self.judge.found("exclusive", f"{run} begins while {other} runs")

    # Changes in Redis.

    def ran(self, request: Request, before: Sight, after: Sight, now_ms: int) -> None:
        self._latest_ms = max(self._latest_ms, now_ms)
        run = self.all.get(request.where.partition("/")[0]) if request.step == "hold" else None
        ms = said_in(request.text) if run is not None else None
        if run is not None and ms is not None:
            self._heard(run, ms, before, after, now_ms)
        for key, was in before.left.items():
            now = after.left.get(key)
            is_its_own = run is not None and was[:2] == run.delivery and ms == 0
            if request.call and request.call.goes_on and after.holders.get(key) == was[0]:
                self._freed.add(was[:2])
                if any(one.delivery == was[:2] and not one.counts for one in self.all.values()):
                    self._freed_by_marked.add(was[0])
                continue
            if (now is None or now[:2] != was[:2]) and was[2] > now_ms and not is_its_own:
                self.judge.found("freed", f"{key}, held by {was}, by {request.where}")
        for task_id, delivery, end_ms in after.left.values():
            self._ends[task_id, delivery] = end_ms
            self._first.setdefault((task_id, delivery), end_ms)
            copies = [one for one in self.all.values() if one.delivery == (task_id, delivery)]
            if copies and all(one.has_ended for one in copies) and end_ms > now_ms:
                self.judge.found("stuck", f"{task_id} holds its key, and has said that it ended")

    def _heard(self, run: Run, ms: int, before: Sight, after: Sight, now_ms: int) -> None:
        key = run.hold.key
        if not ms:
            self._freed.add(run.delivery)
            if not run.counts:
                self._freed_by_marked.add(run.hold.id)
        was, now = before.left.get(key), after.left.get(key)
        holders = after.holders.get(key), run.hold.id, None
        if before.holders.get(key) not in holders:
            self.judge.found("freed", f"{key}, which {before.holders[key]} waits for, by {run}")
        goes_on = ms and was and was[:2] == run.delivery and was[2] > now_ms
        if goes_on and (now is None or now[2] < now_ms + ms):
            self.judge.found("end", f"{run} goes on, and its key is held until {now}")
        is_early = goes_on and now and now[2] < was[2]
        if is_early and was[2] != self._first.get(run.delivery):
            self.judge.found("end", f"{run} goes on, and its key, held until {was}, until {now}")

    def left(self, task_id: str, before: Sight, after: Sight, by: Call | None = None) -> None:
        """An entry was delivered that held its key until then: it holds on, unless it has run.

        Args:
            task_id: The entry's.
            before, after: The step that removed it.
            by: The call of its own run that did so, if any.
        """
        view = before.views[task_id]
        if by and (view.key != by.key or before.place(task_id) == "dead"):
            return
        is_held = view.key in after.left and after.left[view.key][0] == task_id
        is_held = is_held or bool(by and by.goes_on and after.holders.get(view.key) == task_id)
        if view.holds and before.holders.get(view.key) == task_id and not is_held:
            self.judge.found("held", f"{task_id} was delivered, and its key is free")

    def came(
        self, call: Call | None, task_id: str, before: Sight, after: Sight, now_ms: int
    ) -> None:
        """An entry comes under a key that no other entry holds then, nor a run without an end."""
        key = after.views[task_id].key
        if after.place(task_id) == "behind":
            return
        if call and call.goes_on:
            was = before.left.get(call.key, ("", "", 0))
            is_its_own = was[:2] == (task_id, call.delivery) and was[2] > now_ms
            if is_its_own and not key:
                self.judge.found("held", f"{task_id} goes on without its key")
            if is_its_own:
                return
        holder = before.holders.get(key, task_id)
        is_running = call and call.run_of == holder and not call.goes_on
        if is_running and key not in before.holders:  # freed by the end of a copy of that entry
            is_running = not self._has_ended(holder, before)
        if (
            (holder != task_id or is_running)
            and before.place(holder) == "leased"
            and before.views[holder].holds
        ):
            self.judge.found("held", f"{task_id} comes under {key}; {holder} is being published")
        if key in before.left and before.left[key][2] > now_ms:
            self.judge.found("held", f"{task_id} comes under {key}; {before.left[key]} holds it")

    def _has_ended(self, task_id: str, sight: Sight) -> bool:
        """Whether a copy of the entry that has an id has said that it ended."""
        name = sight.views[task_id].name if task_id in sight.views else ""
        ended = [one.life for one in self.all.values() if one.delivery in self._freed]
        return (name, task_id) in {(life.name, life.task_id) for life in ended}

    def drained(self, sight: Sight, now_ms: int) -> None:
        for key, (task_id, _, end_ms) in sight.left.items():
            if end_ms < now_ms - TIDY_MS:
                self.judge.found("stuck", f"{key} is held by {task_id}, and was till {end_ms}")

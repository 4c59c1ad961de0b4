"""What was promised of pauses and late policies, held against what becomes of them."""

from typing import Any

from tests.simulator.books import Answer, Call, Life, lane_of
from tests.simulator.network import Request
from tests.simulator.sight import Sight, View


class Lanes:
    """Told, by the judge, of every request that Redis ran, and of what left."""

    def __init__(self, judge: Any):
        self._judge = judge
        self.ever_paused = False

    def ran(self, request: Request, before: Sight, after: Sight) -> None:
        call = request.call
        if call and call.lane:
            call.seen.setdefault(lane_of(call.lane), set()).add(after.paused.get(call.lane, ""))
        for task_id, view in after.views.items():
            if view.runs_now and after.place(task_id) == "parked" != before.place(task_id):
                self._judge.found("paused", f"{task_id} is held up, and was told to run now")
        for lane in sorted(before.paused.keys() | after.paused.keys()):
            old, new = before.paused.get(lane), after.paused.get(lane)
            # That all has come back, a scanner notes.
            if old != new and (old, new) != ("b", None):
                self._turned(request, lane, "pause" if new == "p" else "resume")
        self.ever_paused = self.ever_paused or "p" in after.paused.values()

    def _turned(self, request: Request, lane: str, kind: str) -> None:
        call = request.call
        if call is None or (call.kind, call.lane) != (kind, lane):
            self._judge.found("unasked", f"{request.where} {request.step}: {kind} of {lane}")
            return
        if call.how in ("answered", "unavailable"):
            self._judge.found("late", f"{call.name}, {kind} {lane}; it is {call.how}")
        elif call.how == "interrupted":
            self._judge.in_order(call, {lane_of(lane)}, kind)
        call.about.add(lane_of(lane))

    def leaves(self, life: Life, view: View, before: Sight, now_ms: int) -> None:
        """An entry is pushed, or claimed."""
        if "p" in before.paused.values() and not view.runs_now:
            self._judge.found("paused", f"{life} leaves, with {before.paused}")
        # The time for which it was parked does not count.
        if now_ms > view.last_ms and before.place(life.task_id) != "parked":
            self._judge.found("skipped", f"{life} leaves {now_ms - view.last_ms} ms too late")

    def told(self, call: Call, answer: Answer) -> None:
        states = call.seen.get(lane_of(call.lane), set())
        if not ({"p"} if answer.word == "PAUSED" else {"b", ""}) & states:
            self._judge.found("answer", f"{call.name} is told {answer}; it was {states}")

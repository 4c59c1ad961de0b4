"""Compares the promises about pauses and late policies with the store."""

import math
from dataclasses import dataclass
from typing import Any

from tests.lab.simulator.books import Answer, Call, Life, lane_of
from tests.lab.simulator.network import Request
from tests.lab.simulator.sight import Sight, View


@dataclass
class Span:
    """A pause of a lane: its end, and the time by which its entries had come back."""

    from_ms: int
    until_ms: float = math.inf
    over_ms: float = math.inf


class Lanes:
    """Gets every request that Redis ran, and every entry that left, from the judge."""

    def __init__(self, judge: Any):
        self._judge = judge
        self.ever_paused = False
        self._spans: dict[str, list[Span]] = {}

    def ran(self, request: Request, before: Sight, after: Sight, now_ms: int) -> None:
        call = request.call
        if call and call.lane:
            call.seen.setdefault(lane_of(call.lane), set()).add(after.paused.get(call.lane, ""))
        for task_id, view in after.views.items():
            if view.runs_now and after.place(task_id) == "parked" != before.place(task_id):
                self._judge.found("paused", f"{task_id} is held up, and is to run now")
        for lane in sorted(before.paused.keys() | after.paused.keys()):
            old, new = before.paused.get(lane), after.paused.get(lane)
            if old != new:
                self._note(self._spans.setdefault(lane, []), old, new, now_ms)
            # A scanner notes that everything has come back.
            if old != new and (old, new) != ("b", None):
                self._turned(request, lane, "pause" if new == "p" else "resume")
        self.ever_paused = self.ever_paused or "p" in after.paused.values()

    def _note(self, spans: list["Span"], old: str | None, new: str | None, now_ms: int) -> None:
        if old == "p":
            spans[-1].until_ms = now_ms
        if spans and new != "b":
            spans[-1].over_ms = min(spans[-1].over_ms, now_ms)
        if new == "p":
            spans.append(Span(now_ms))

    def is_late(self, view: View, now_ms: int) -> bool:
        """Whether an entry is too late to leave, and no pause explains it."""
        return now_ms > view.last_ms and not self._is_excused(view, now_ms, lasts=True)

    def _is_excused(self, view: View, now_ms: int, *, lasts: bool) -> bool:
        """Whether it is in time without the pauses before which it was not too late.

        Each entry is in all lanes. Times are cut to milliseconds, so the end of a pause may be a
        millisecond later. `lasts`: only lanes whose entries have not all come back.
        """
        since_ms, grace_ms = view.since_ms, view.last_ms - view.since_ms
        spans = [one for some in self._spans.values() for one in some]
        for span in sorted(spans, key=lambda one: one.from_ms):
            if view.runs_now or (lasts and span.over_ms < math.inf):
                continue
            if span.from_ms <= since_ms + grace_ms and since_ms < span.until_ms + (not lasts):
                since_ms = max(since_ms, min(span.over_ms, now_ms) + 1)
        return now_ms <= since_ms + grace_ms

    def _turned(self, request: Request, lane: str, kind: str) -> None:
        call = request.call
        if call is None or (call.kind, call.lane) != (kind, lane):
            self._judge.found("unasked", f"{request.where} {request.step}: {kind} of {lane}")
            return
        if self._judge.is_over(call):
            self._judge.found("late", f"{call.name}, {kind} {lane}; it is {call.how}")
        elif call.how == "interrupted":
            self._judge.in_order(call, {lane_of(lane)}, kind)
        call.about.add(lane_of(lane))

    def leaves(self, life: Life, view: View, before: Sight, now_ms: int) -> None:
        """An entry is pushed, or claimed."""
        if "p" in before.paused.values() and not view.runs_now:
            self._judge.found("paused", f"{life} leaves, with {before.paused}")
        is_parked = before.place(life.task_id) == "parked"
        if now_ms > view.last_ms and not (is_parked or self._is_excused(view, now_ms, lasts=False)):
            self._judge.found("skipped", f"{life} leaves {now_ms - view.last_ms} ms too late")

    def told(self, call: Call, answer: Answer) -> None:
        states = call.seen.get(lane_of(call.lane), set())
        if not ({"p"} if answer.word == "PAUSED" else {"b", ""}) & states:
            self._judge.found("answer", f"{call.name} gets {answer}; it was {states}")

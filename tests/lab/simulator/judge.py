"""Compares the package's promises with the store after each step of Redis.

A call takes effect when one of its requests changes the store. That is visible from outside: an
entry comes, has another due time, or goes. The judge knows which call sent the request.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.lab.simulator.books import (
    EFFECTS,
    RULE_KINDS,
    Answer,
    Call,
    Effect,
    Finding,
    Life,
    key_of,
)
from tests.lab.simulator.driver import Copy, copy_of
from tests.lab.simulator.keys import Keys
from tests.lab.simulator.lanes import Lanes
from tests.lab.simulator.network import Request
from tests.lab.simulator.recurring import Recurring
from tests.lab.simulator.remembered import KNOWN, Remembered
from tests.lab.simulator.runs import Runs
from tests.lab.simulator.sight import GONE, Sight, View, kind_of
from tests.lab.simulator.taken import Taken
from tests.lab.simulator.world import SECOND

SLACK_US = SECOND // 10  # that a call may take beyond its time


class Judge:
    """Gets every request that Redis ran, every message, and every answer."""

    def __init__(self, find: Callable[[Finding], None], patience_ms: int):
        self._find = find
        self._patience_ms = patience_ms
        self.prompt_from_ms: float = math.inf  # the due time from which on nothing waits longer
        # Whether Redis's clock does not show that a time has passed, as it was set back since.
        self.is_behind_since: Callable[[int], bool] = lambda _: False
        self.is_earlier: Callable[[int, int], bool] = lambda *_: False
        self.now_us: Callable[[], int] = lambda: 0
        self.has_forgotten: Callable[[int], bool] = lambda _: False
        self.owed_apart: set[str] = set()  # ids that may be owed on another shard than their own
        self.calls: dict[str, Call] = {}
        self.lives: dict[tuple[str, str], Life] = {}
        self.skipped: set[str] = set()  # ids of entries that were too late to leave
        self._keys = Keys(self)
        self._lanes = Lanes(self)
        self.taken = Taken(self)
        self.runs = Runs(self)
        self.recurring = Recurring(self)
        self._remembered = Remembered()

    def found(self, rule: str, what: str) -> None:
        self._find(Finding(rule, what))

    def stands_down(self) -> None:
        """Find nothing any more: Redis took a request for new that it has forgotten.

        The docs say so (times.md), and what comes of it is no finding either.
        """
        self._find = lambda _: None

    def place(self, sight: Sight, task_id: str) -> str:
        """Where an entry is, or was: one that the store has to remember is not gone."""
        return self._remembered.place(sight, task_id)

    def failed(self, *told: Any) -> None:
        """A scanner or a worker has logged an exception that it did not expect."""
        self.found("error", f"{told}: {sys.exc_info()[1]!r}")

    # Changes in Redis.

    def ran(self, request: Request, before: Sight, after: Sight, now_ms: int) -> None:
        self._remembered.passes(now_ms)
        if request.call:
            self._looked(request.call, before)
            self._keys.looked(request.call, before, after, now_ms)
        for message in after.arrived:
            self._pushed(message, before, now_ms)
        for task_id in sorted(before.raw.keys() | after.raw.keys()):
            if before.raw.get(task_id) != after.raw.get(task_id):
                self._changed(request, task_id, before, after, now_ms)
        self._remembered.revoked(*after.owed)
        self._keys.ran(request, before, after)
        self._lanes.ran(request, before, after, now_ms)
        self.runs.ran(request, before, after, now_ms)
        self.recurring.ran(request, before, after, now_ms)

    def _looked(self, call: Call, sight: Sight) -> None:
        """Record the state in which a request finds the subjects of its call."""
        holder = sight.means(call.key) if call.key else None
        for asked in call.asked:
            task_id = holder if call.by_key else asked
            call.seen.setdefault(asked, set()).add(self._remembered.place(sight, task_id))
            if task_id in sight.views:
                call.dues.add((asked, sight.views[task_id].due_ms))

    def _changed(
        self, request: Request, task_id: str, before: Sight, after: Sight, now_ms: int
    ) -> None:
        old, new = before.views.get(task_id), after.views.get(task_id)
        self.recurring.touched(request.call, task_id)
        if task_id in after.raw and (new is None or len(after.raw[task_id]) != 2):
            self.found("check", f"{task_id} has a record and {after.raw[task_id][1:]}")
        elif old and (new is None or new.name != old.name):
            self._left(request, task_id, before, after, now_ms)
        if new is None:
            return
        if old is None or old.name != new.name:
            self._came(request, task_id, new, now_ms)
            if request.call and request.call.kind in RULE_KINDS:
                self.recurring.came(request, task_id, before, after)
            self.runs.came(request.call, task_id, before, after, now_ms)
        elif before.place(task_id) == "behind" != after.place(task_id) and old.edited == new.edited:
            self.lives[new.name, task_id].view = new  # overdue, it is due when it comes forward
        elif old.version != new.version:
            life = self.lives[new.name, task_id]
            life.view, life.changed_by, life.sure = new, request.where.partition("/")[0], False
            life.was_due, life.copies_before = False, len(life.copies)
            self._effect(request, kind_of(old, new), life)
        if after.place(task_id) == "leased" != before.place(task_id):
            life = self.lives[new.name, task_id]
            self._is_not_early(life, "claimed", now_ms)
            if after.place(task_id) == "leased":
                self._lanes.leaves(life, new, before, now_ms)

    def _is_not_early(self, life: Life, what: str, now_ms: int) -> None:
        early_ms = life.view.due_ms - now_ms
        if early_ms > 0 and not life.was_due:
            self.found("early", f"{life} is {what} {early_ms} ms early")
        life.was_due = True

    def _came(self, request: Request, task_id: str, new: View, now_ms: int) -> None:
        if request.call and request.call.kind == "undo":
            self._came_back(request, task_id, new)
            return
        is_run = request.call is not None and request.call.kind in RULE_KINDS
        if request.call and not is_run and new.name != request.call.name_of(task_id):
            self.found("unasked", f"{task_id} of {new.name} came by {request.where}")
        if request.call and task_id in request.call.taking:
            self.taken.became(request.call, request.call.taking[task_id])
        life = self.lives.setdefault((new.name, task_id), Life(new.name, task_id, new))
        if is_run and life.is_cancelled:  # since the dump from which its rule came back
            life.view, life.is_cancelled, life.sure, life.was_due = new, False, False, False
        life.came_ms = now_ms if is_run else 0
        self._effect(request, "schedule", life)

    def _came_back(self, request: Request, task_id: str, new: View) -> None:
        """An entry that was cancelled is there again, and is the same."""
        life = self.lives.get((new.name, task_id))
        if life is None or not life.is_cancelled:
            self.found("unasked", f"{task_id} of {new.name} came back by {request.where}")
            return
        was, times = life.view, {"due_ms": new.due_ms, "last_ms": 0, "since_ms": new.since_ms}
        if replace(was, **times) != replace(new, **times):
            self.found("back", f"{life} was {was}, and is {new}")
        if new.due_ms != was.due_ms and not request.call.hurries:
            self.found("back", f"{life} was due at {was.due_ms}, and is at {new.due_ms}")
        life.view, life.is_cancelled, life.sure, life.was_due = new, False, False, False
        life.changed_by, life.copies_before = request.call.name, len(life.copies)
        self._effect(request, "undo", life)

    def _left(
        self, request: Request, task_id: str, before: Sight, after: Sight, now_ms: int
    ) -> None:
        old = before.views[task_id]
        life = self.lives[old.name, task_id]
        self._remembered.revoked(task_id)
        if request.call and request.call.run_of == task_id and before.place(task_id) != "behind":
            # Its run takes the place of an entry that may have been delivered, even if another
            # task has the id by now.
            life.changed_by, life.sure = request.call.name, False
            life.is_cancelled = not life.copies
            if life.copies:
                self.runs.left(task_id, before, after, request.call)
        elif self._keys.displaces(request.call, task_id, before, after):
            life.changed_by, life.sure, life.is_cancelled = request.call.name, False, True
            request.call.displaced[task_id] = Effect(life, old, len(life.copies))
        elif request.call is None and self._lanes.is_late(old, now_ms) and task_id in after.owed:
            life.changed_by, life.sure, life.is_cancelled = request.where, False, True
            self.skipped.add(task_id)
        elif request.call and request.call.kind in ("cancel", "clear"):
            life.changed_by, life.sure, life.is_cancelled = request.call.name, False, True
            self._effect(request, request.call.kind, life)
        elif request.call and request.call.kind in RULE_KINDS:
            life.changed_by, life.sure, life.is_cancelled = request.call.name, False, True
            self.recurring.cleared(request, task_id, before, now_ms)
            self._effect(request, "cancel", life)
        elif len(life.copies) == life.copies_before:
            self.found("lost", f"{life} went with {request.step}, and was not delivered")
        else:
            self._remembered.delivered(task_id)
            self.runs.left(task_id, before, after)

    def _effect(self, request: Request, kind: str, life: Life) -> None:
        call, task_id = request.call, life.task_id
        if call is None or kind not in EFFECTS.get(call.kind, (call.kind,)):
            self.found("unasked", f"{request.where} {request.step}: {kind} of {task_id}")
        elif self.has_forgotten(call.began_us + call.timeout_us):
            self.stands_down()
        elif call.kind not in RULE_KINDS and (
            task_id in call.effects or (call.by_key and call.effects)
        ):
            self.found("twice", f"{call.name}, {kind} {task_id}, takes effect again")
        elif call.told.get(task_id) is life:
            self.found("twice", f"{call.name}, {kind} {task_id}, whose answer says that it is done")
        elif self.is_over(call):
            self.found("late", f"{call.name}, {kind} {task_id}, takes effect; it is {call.how}")
        elif call.how == "interrupted":
            about = {task_id, *([key_of(call.key)] if call.key else [])}
            self.in_order(call, about, f"{call.kind} {task_id}")
        self._keys.took_effect(call, task_id, life.view)
        if call is not None:
            call.effects[task_id] = Effect(life, life.view, len(life.copies))

    def is_over(self, call: Call) -> bool:
        """Whether its caller knows how it ended, so that it takes no effect any more.

        If Redis's clock was set back by less than a call's time, a request may be late by so much.
        A writer's look ends even if one of its steps got no answer.
        """
        if call.how not in ("answered", "unavailable"):
            return False
        may_be_unknown = call.how == "unavailable" or call.kind == "write"
        return not (may_be_unknown and self.is_behind_since(call.ended_us))

    def in_order(self, call: Call, about: set[str], kind: str) -> None:
        """No call that began after this one's end has changed these, or found nothing there."""
        for other in self.calls.values():
            if other.began_us < call.ended_us or other is call:
                continue
            # Redis's clock was set back, before its change or since; see times.md.
            if other.ended_us is not None and self._is_unproved(call, other.ended_us):
                continue
            if about & self._keys.settled_by(other):
                what = f"{call.name}, {kind}, takes effect after {other.name}"
                self.found("order", what)

    def _is_unproved(self, call: Call, changed_us: int) -> bool:
        """Whether a change looks older than a call's request, or is still to come."""
        is_older = call.ended_us is not None and self.is_earlier(changed_us, call.ended_us)
        return is_older or self.is_earlier(self.now_us(), changed_us)

    # Messages that arrived.

    def _pushed(self, message: bytes, before: Sight, now_ms: int) -> None:
        copy = copy_of(message)
        life = self.lives.get((copy.name, copy.task_id))
        places = ("due", "refused", "behind", "parked")
        if life is None or before.place(life.task_id) not in places:
            self.found("unasked", f"{copy.task_id} is pushed, and was not there")
        else:
            self._is_not_early(life, "pushed", now_ms)
            view = before.views[life.task_id]
            if before.place(life.task_id) == "behind":  # overdue, it is due when it comes forward
                due_ms = max(view.due_ms, now_ms)
                view = replace(view, due_ms=due_ms, since_ms=due_ms, last_ms=math.inf)
                life.view = view
            self._lanes.leaves(life, view, before, now_ms)
            late_ms = now_ms - max(life.view.due_ms, life.came_ms)
            late_ms -= self._patience_ms + SLACK_US // 1000
            is_prompt = life.view.due_ms > self.prompt_from_ms and not self._lanes.ever_paused
            if late_ms > 0 and is_prompt:
                self.found("tardy", f"{life} is pushed {late_ms} ms later than that")
        self._delivered(copy)

    def published(self, _: str, body: bytes, headers: dict[str, Any]) -> None:
        self._delivered(copy_of(body, headers))

    def _delivered(self, copy: Copy) -> None:
        life = self.lives.get((copy.name, copy.task_id))
        if life is None:
            self.found("unasked", f"{copy.task_id} of {copy.name} is delivered, not scheduled")
            return
        if not copy.is_marked and any(not other for other, _ in life.copies):
            self.found("copies", f"{life} is delivered a second time, unmarked")
        if life.sure and (life.is_cancelled or copy.version != life.view.version):
            self.found("undone", f"{life} is delivered for {copy.version}, after {life.changed_by}")
        life.copies.append((copy.is_marked, copy.version))
        self.runs.delivered(copy, life)

    # Answers to callers.

    def began(self, call: Call) -> None:
        self.calls[call.name] = call
        self.taken.began(call)

    def ended(
        self, call: Call, how: str, answers: list[Answer], now_us: int, slept_us: int
    ) -> None:
        call.how, call.answers, call.ended_us = how, answers, now_us
        if now_us - call.began_us > call.timeout_us + SLACK_US + slept_us - call.slept_us:
            self.found("overtime", f"{call.name} took {(now_us - call.began_us) / SECOND:.3f} s")
        if how == "answered" and call.lane:
            self._lanes.told(call, answers[0])
        elif call.kind in RULE_KINDS:
            if how == "answered" and answers:
                self.recurring.told(call, answers[0])
        elif how == "answered" and call.kind in ("clear", "sweep"):
            self._counted(call, answers[0].due_ms)
        elif how == "answered":
            for number, (asked, one) in enumerate(zip(call.asked, answers, strict=True)):
                # An id that comes twice: the second is refused whatever became of the first.
                if asked in call.asked[:number] and one.word == "ALREADY_SCHEDULED":
                    continue
                if not self._is_true(call, asked, one):
                    self._untrue(call, asked, one)
                self._keys.told(call, asked, one)

    def told(self, call: Call, count: int) -> None:
        """A selection reports progress: *count* entries are done, and need not be done again."""
        self._counted(call, count)
        call.told |= {task_id: effect.life for task_id, effect in call.effects.items()}

    def _counted(self, call: Call, count: int | None) -> None:
        if count != len(call.effects):
            self.found("count", f"{call.name} counts {count}; it did {[*call.effects]}")

    def _untrue(self, call: Call, task_id: str, answer: Answer) -> None:
        seen = sorted(call.seen.get(task_id, ()))
        what = f"{call.name}, {call.kind} {task_id}, gets {answer.word}; it found {seen}"
        did = ", and took effect" if task_id in call.effects else ""
        self.found("answer", what + did)

    def _is_true(self, call: Call, task_id: str, answer: Answer) -> bool:
        if call.by_key:
            effect = next(iter(call.effects.values()), None)
        else:
            effect = call.effects.get(task_id)
        if answer.word == "BEHIND" and "behind" not in call.seen.get(task_id, ()):
            return False
        if answer.word in ("SCHEDULED", "DONE", "UNCERTAIN", "BEHIND", "UNDONE"):
            if effect is None:
                # Moved to its own due time, or replaced in the same step: this cannot be seen.
                moved = call.kind == "reschedule" and (task_id, answer.due_ms) in call.dues
                return moved or (len(call.ids) > 1 and task_id in call.revoked)
            is_due = answer.due_ms in (None, effect.view.due_ms)
            return is_due and (answer.word != "DONE" or self.is_sure(call, effect))
        is_so = self._is_refused if call.kind == "undo" else self._is_so
        return effect is None and is_so(answer.word, call, task_id)

    @staticmethod
    def _is_refused(word: str, call: Call, asked: str) -> bool:
        """Whether one of the requests of an undo found the state that the refusal names."""
        seen = call.seen.get(asked, set())
        if word.endswith(("waits", "taken")):
            return bool(seen - {GONE, KNOWN})
        # Its id may have been used again since.
        return word.endswith("left") or bool(seen & {GONE, KNOWN})

    def _is_so(self, word: str, call: Call, asked: str) -> bool:
        """Whether one of a call's requests found the state that the answer names."""
        seen = call.seen.get(asked, set())
        if word in ("ALREADY_SCHEDULED", "KEPT", "HELD"):
            elsewhere = asked in call.taking and call.taking[asked].message.is_asked
            found = seen - {GONE, KNOWN} or call.held or elsewhere if word != "HELD" else ()
            return bool(found or call.left) and asked not in call.taken
        if word == "TAKEN":
            return call.taking[asked].message.entries > 0
        if word == "UNCHANGED":
            return call.kind in ("edit", "release")
        if word == "IN_FLIGHT":
            return "leased" in seen
        about = [
            life for life in self.lives.values() if asked in (life.task_id, key_of(life.view.key))
        ]
        # A released entry is on its way; nothing calls it back.
        if word == "HANDED_OVER" and any(life.view.is_released for life in about):
            return True
        is_gone = GONE in seen or (KNOWN in seen and word == "HANDED_OVER")
        return is_gone and (word == "NOT_FOUND" or any(life.copies for life in about))

    def is_sure(self, call: Call, effect: Effect) -> bool:
        """Check that no copy from before the change exists, if its answer is DONE."""
        life = effect.life
        if life.changed_by != call.name:
            return not effect.copies  # another call has changed it since
        life.sure = True
        late = (
            life.copies
            if life.is_cancelled
            else [version for _, version in life.copies if version != life.view.version]
        )
        return not effect.copies and not late

    # Entries that are left.

    def waits_due(self, sight: Sight, now_ms: int) -> list[str]:
        """The due entries that are still in the store, and not dead, nor behind one that waits."""
        ahead = {
            task_id
            for key, task_id in sight.behind.items()
            if key in sight.holders and sight.views[sight.holders[key]].due_ms > now_ms
        }
        return [
            f"{task_id} of {view.name}"
            for task_id, view in sight.views.items()
            if view.due_ms <= now_ms and sight.place(task_id) != "dead" and task_id not in ahead
        ]

    def drained(self, sight: Sight, now_ms: int, findings: list[str]) -> None:
        """At the end, when every process has had the time to recover."""
        for finding in findings:
            self.found("check", finding)
        for call in self.calls.values():
            is_under_way = call.kind == "write" and self.now_us() < call.began_us + call.timeout_us
            if call.ended_us is None and not is_under_way:
                self.found("overtime", f"{call.name} has not ended")
        for entry in self.waits_due(sight, now_ms):
            self.found("left over", f"{entry} is still in the store")
        self.taken.drained()
        self.runs.drained(sight, now_ms)
        self.recurring.drained(sight)
        held = {(view.name, task_id) for task_id, view in sight.views.items()}
        for key, life in self.lives.items():
            if key not in held and not life.copies and not life.is_cancelled:
                self.found("lost", f"{life} is nowhere")

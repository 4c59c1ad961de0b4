"""Compares the promises about recurring rules with their rows and runs.

A slot is known by its time, whichever revision of its rule writes it. Its run is an entry like any
other, about which the judge's other books say the rest.
"""

from dataclasses import dataclass, replace
from typing import Any

from tests.lab.simulator.books import RULE_KINDS, Answer, Call, rule_of
from tests.lab.simulator.network import Request
from tests.lab.simulator.sight import GONE, RuleView, Sight

TARDY_MS = 15_000  # after a slot was due, a writer has looked, and a little more
TAG = "every:"


@dataclass(frozen=True)
class Written:
    """A run, as the rule of this name wrote it."""

    rule: str
    revision: int
    slot_ms: int
    name: str
    task_id: str

    def __str__(self) -> str:
        return f"{self.task_id} of {self.rule}'s slot {self.slot_ms}"


class Recurring:
    """Gets every request that Redis ran, every run that came or went, and every answer."""

    def __init__(self, judge: Any):
        self._judge = judge
        self._runs: dict[str, Written] = {}  # by their ids
        self._passed_ms: dict[str, int] = {}  # no slot of a rule up to that is to come
        self._cleared_ms: dict[str, int] = {}  # when a rule's old runs were cleared up
        self._cleared: set[str] = set()  # and the ids of these runs
        self._before_load: set[str] = set()  # ids of runs of before a load brought their rule back
        self._latest_ms = 0  # that Redis's clock has shown
        self._was_set_back = False
        # Ids that a caller has changed, and that a scanner has leased: they stay as they are.
        self._touched: set[str] = set()
        self._leased: set[str] = set()

    # Changes in Redis.

    def touched(self, call: Call | None, task_id: str) -> None:
        if call is not None and call.kind not in RULE_KINDS:
            self._touched.add(task_id)

    def came(self, request: Request, task_id: str, before: Sight, after: Sight) -> None:
        """A run is written: of a slot to come of the rule as it is, which has no other run."""
        view = after.views[task_id]
        name = next(tag for tag in view.tags if tag.startswith(TAG)).removeprefix(TAG)
        rule = before.rules.get(name)
        if rule is None or {"p", "c", "r"} & {*rule.flags}:
            self._found("slot", f"{task_id} is written, and {rule_of(name)} is {rule}")
            return
        run = Written(name, rule.revision, view.due_ms - rule.offset_ms, view.name, task_id)
        if (view.name, view.key, run.slot_ms % rule.every_ms) != (rule.plan, rule.key, 0):
            self._found("slot", f"{run} is written as {view}; the rule is {rule}")
        if run.slot_ms <= self._passed_ms[name]:
            self._found("slot", f"{run} is written, up to {self._passed_ms[name]} all were before")
        for other in self._runs.values():
            is_same = (other.rule, other.slot_ms) == (name, run.slot_ms)
            if is_same and self._lasts(other, run, before):
                self._found("slot", f"{run} is written by {request.where}; {other} was before")
        self._runs[task_id] = run
        for ids in (self._touched, self._leased, self._cleared, self._before_load):
            ids.discard(task_id)

    def _lasts(self, other: Written, run: Written, sight: Sight) -> bool:
        """Whether a run bars another one of its slot."""
        life = self._judge.lives[other.name, other.task_id]
        if other.task_id in self._before_load:
            # The dump was made before. Only the store may still know of it, by its id.
            return other.task_id == run.task_id and self._judge.place(sight, run.task_id) != GONE
        if other.revision == run.revision:
            return True
        # Somebody moved it, or brought it back: it stays when its rule changes.
        is_others = other.task_id in self._touched
        # No process could clear up before it was due.
        is_late = run.slot_ms <= self._cleared_ms.get(run.rule, 0)
        # The rule was changed when its slot was to come once more.
        return not (life.is_cancelled or is_others or is_late or self._was_set_back)

    def cleared(self, request: Request, task_id: str, before: Sight, now_ms: int) -> None:
        """A run goes with a change of its rule, or gives way to the next one of a keyed rule."""
        run = self._runs.get(task_id)
        rule = before.rules.get(run.rule) if run else None
        is_old = rule is not None and run is not None and self._is_of_before(run, rule)
        self._cleared.add(task_id)
        if run is not None and rule is not None and task_id not in self._touched:
            is_last = run.revision == rule.revision and run.slot_ms == rule.last_ms
            # By the clock as its writer read it, which may have been set back since.
            latest_ms = max(now_ms, self._latest_ms)
            is_missed = run.slot_ms + rule.every_ms + rule.offset_ms <= latest_ms
            if rule.key and rule.most == 1 and is_last and is_missed:
                return
        if not is_old or task_id in self._touched:
            what = "was changed by its owner" if task_id in self._touched else f"is of {rule}"
            self._found("cleared", f"{request.where} cancels {run or task_id}, which {what}")

    def _is_of_before(self, run: Written, rule: RuleView) -> bool:
        return run.revision < rule.revision or run.task_id in self._before_load

    def ran(self, request: Request, before: Sight, after: Sight, now_ms: int) -> None:
        self._was_set_back = self._was_set_back or now_ms < self._latest_ms
        self._latest_ms = max(self._latest_ms, now_ms)
        if request.call and request.call.kind == "write":
            request.call.keys_held |= _held(before, now_ms)
        self._leased |= {one for one in self._runs if after.place(one) == "leased"}
        for name in sorted(before.rules.keys() | after.rules.keys()):
            old, new = before.rules.get(name), after.rules.get(name)
            if request.call and request.call.rule == name:
                request.call.rules_seen |= {old, new}
                request.call.asked_to_turn |= request.step == "rule"
            if old != new:
                self._changed(request, name, before, after, now_ms)
            if new and not {"c", "r"} & {*new.flags}:
                self._is_cleared(name, new, after)
        self._are_looked_at(after)

    def _changed(
        self, request: Request, name: str, before: Sight, after: Sight, now_ms: int
    ) -> None:
        old, new, call = before.rules.get(name), after.rules.get(name), request.call
        if call is None or call.kind not in RULE_KINDS:
            self._found("unasked", f"{rule_of(name)} by {request.where} {request.step}")
            return
        if new is None:
            if old is None or "r" not in old.flags:
                self._found("unasked", f"{rule_of(name)} goes, and no call removed it")
            return
        if old is None or old.revision != new.revision:
            kind = "load" if call.kind == "load" else _kind_of(old, new)
            if call.kind == "write" and kind == "rewind" and self._was_set_back:
                call.about.add(rule_of(name))
            else:
                self._turned(call, name, kind)
            if kind in ("every", "every resume", "rewind"):  # its slots count from now on
                self._passed_ms[name] = now_ms - (old or new).offset_ms
            if kind == "load":
                self._loaded(call, name, old, new, now_ms)
        elif "c" in old.flags and "c" not in new.flags:
            self._cleared_ms[name] = now_ms
        elif old.last_ms != new.last_ms:
            self._passes(request, name, new, after, now_ms)

    def _loaded(
        self, call: Call, name: str, old: RuleView | None, new: RuleView, now_ms: int
    ) -> None:
        """A rule that is gone comes back; one that is there is another one, and begins anew."""
        dumped = {_in_order(one) for one in call.dumped if one is not None}
        if old is None:
            is_right = _in_order(new) in dumped
            self._before_load |= {one.task_id for one in self._runs.values() if one.rule == name}
        else:
            # The dump brings its runs up to its last slot.
            begun = {
                replace(old, last_ms=max(one.last_ms, now_ms - old.offset_ms))
                for one in dumped
                if one.since_ms != old.since_ms
            }
            is_right = replace(new, revision=old.revision, flags=old.flags) in begun
        if not is_right:
            self._found("loaded", f"{rule_of(name)} was {old}, is {new}; the dump has {dumped}")
        self._passed_ms[name] = new.last_ms

    def _turned(self, call: Call, name: str, kind: str) -> None:
        end_us = call.ended_us if call.how == "answered" else call.began_us + call.timeout_us
        if (call.kind, call.rule) != (kind, name):
            self._found("unasked", f"{call.name}: {kind} of {rule_of(name)}")
        elif self._judge.has_forgotten(end_us):
            self._judge.stands_down()
        elif call.turned:
            self._found("twice", f"{call.name}, {kind} {name}, takes effect again")
        elif self._judge.is_over(call):
            self._found("late", f"{call.name}, {kind} {name}, takes effect; it is {call.how}")
        elif call.how == "interrupted":
            self._judge.in_order(call, {rule_of(name)}, f"{kind} {name}")
        call.turned = True
        call.about.add(rule_of(name))

    def _passes(
        self, request: Request, name: str, rule: RuleView, after: Sight, now_ms: int
    ) -> None:
        """Each slot up to the last one has a run, or a reason to have none."""
        every_ms, passed_ms = rule.every_ms, self._passed_ms[name]
        runs = [one for one in self._runs.values() if one.task_id not in self._cleared]
        written = {one.slot_ms for one in runs if one.rule == name}
        # A run meets the holder of its key, and be it the run of the slot before.
        is_held = rule.key in (request.call.keys_held | after.holders.keys())
        for slot_ms in range(_next(passed_ms, every_ms), rule.last_ms + 1, every_ms):
            # So many later ones were over as well, so this one is none of those that are made up.
            over_ms = slot_ms + rule.most * every_ms + rule.offset_ms
            if slot_ms not in written and over_ms > self._latest_ms and not is_held:
                self._found("missed", f"{rule_of(name)} leaves out {slot_ms}, at {now_ms}: {rule}")
        self._passed_ms[name] = max(passed_ms, rule.last_ms)

    def _is_cleared(self, name: str, rule: RuleView, after: Sight) -> None:
        for run in self._runs.values():
            if run.rule != name or run.revision == rule.revision or run.task_id not in after.views:
                continue
            is_its = after.views[run.task_id].name == run.name
            if is_its and run.task_id not in self._touched and run.task_id not in self._leased:
                self._found("cleared", f"{run} waits, and was written before {rule}")

    def _are_looked_at(self, sight: Sight) -> None:
        """A writer looks at each rule, unless it has nothing to do, and at nothing else."""
        idle = {name for name, rule in sight.rules.items() if "p" in rule.flags}
        if not sight.rules.keys() - idle <= sight.rules_next <= sight.rules.keys():
            what = f"{sorted(sight.rules_next)} are looked at, of {sorted(sight.rules)}"
            self._found("ghost", f"{what}; {sorted(idle)} are paused")

    # Answers to callers.

    def told(self, call: Call, answer: Answer) -> None:
        """An answer is true; and if it comes from a step of Redis, nothing older comes after it."""
        seen = call.rules_seen
        is_so = {
            "CHANGED": call.turned,
            "SET": call.turned or any(one and one.plan == call.plan for one in seen),
            "MISSING": not call.turned or call.kind == "every",
            "SAME": not call.turned,
            "DUMPED": seen != {None},
            "LOADED": seen != {None},
            "REFUSED": False,
        }[answer.word]
        if not is_so:
            self._found("answer", f"{call.name}, {call.kind}, gets {answer}; it saw {seen}")
        if call.asked_to_turn:
            call.about.add(rule_of(call.rule))

    def settled(self, sight: Sight, now_ms: int) -> None:
        """When nothing fails any more, and every process has had the time to recover."""
        for name, rule in sight.rules.items():
            if {"c", "r"} & {*rule.flags}:
                self._found("left over", f"{rule_of(name)} is still to be cleared up: {rule}")
            due_ms = _next(rule.last_ms, rule.every_ms) + rule.offset_ms
            if not rule.flags.strip("-n") and due_ms < now_ms - TARDY_MS:
                self._found("tardy", f"{rule_of(name)} has no run for {due_ms}: {rule}")

    def drained(self, sight: Sight) -> None:
        """At the end: all rules were removed."""
        for name, rule in sight.rules.items():
            self._found("left over", f"{rule_of(name)} was removed, and there is {rule}")

    def _found(self, rule: str, what: str) -> None:
        self._judge.found(rule, what)


def _in_order(rule: RuleView) -> RuleView:
    """The same rule; the order of flags says nothing."""
    return replace(rule, flags="".join(sorted(rule.flags)))


def _held(sight: Sight, now_ms: int) -> set[str]:
    """The keys of entries, and of those that have left and hold theirs."""
    left = {key for key, (_, _, until_ms) in sight.left.items() if until_ms > now_ms}
    return left | sight.holders.keys()


def _kind_of(old: RuleView | None, new: RuleView) -> str:
    """The kind of call that makes one row of the other."""
    if old is None or old.digest != new.digest or ("r" in old.flags and "r" not in new.flags):
        return "every"
    if ("p" in old.flags) != ("p" in new.flags):
        return "every pause" if "p" in new.flags else "every resume"
    return "every remove" if "r" in new.flags else "rewind"


def _next(ms: int, every_ms: int) -> int:
    """The first slot after a time."""
    return (ms // every_ms + 1) * every_ms

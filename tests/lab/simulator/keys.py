"""Compares the promises about unique keys and tags with the store.

This comes on top of the rules for every entry: which entry has a key, which one gives way, and
that no key or tag outlives its entry.
"""

from typing import Any

from tests.lab.simulator.books import Answer, Call, key_of
from tests.lab.simulator.network import Request
from tests.lab.simulator.sight import Sight, View

# Answers of calls that changed nothing, but on which later calls may rely.
NOTHING = {"NOT_FOUND", "HANDED_OVER", "KEPT", "PAUSED", "RESUMED"}


class Keys:
    """Gets every request that Redis ran, and every answer, from the judge."""

    def __init__(self, judge: Any):
        self._judge = judge
        self._revoked: set[str] = set()  # ids that were replaced, or gave way

    # Changes in Redis.

    def ran(self, request: Request, before: Sight, after: Sight) -> None:
        self._one_has_it(after)
        self._none_loses_it(request.call, before, after)
        self._one_is_behind(after)
        self._no_ghosts(after)
        self._revokes(request.call, before, after)

    def looked(self, call: Call, before: Sight, after: Sight, now_ms: int) -> None:
        """Record the entries that a call finds under its key, its own earlier ones included."""
        left = before.left.get(call.key)
        if left and left[2] > now_ms:
            call.left.add(left[0])
        holder = before.holders.get(call.key)
        if holder and before.views[holder].holds:
            call.left.add(holder)  # perhaps it is being published, or may have been
        for sight in (before, after):
            for of in (sight.holders, sight.behind) if call.key else ():
                one = of.get(call.key)
                if one in sight.views and (of is sight.behind or sight.waits(one)):
                    call.held.add((one, sight.views[one].due_ms))

    def _one_has_it(self, sight: Sight) -> None:
        for task_id, view in sight.views.items():
            if not view.key or not sight.waits(task_id):
                continue
            if (holder := sight.holders.get(view.key)) != task_id:
                self._judge.found("unique", f"{task_id} waits; {holder} has {key_of(view.key)}")

    def _none_loses_it(self, call: Call | None, before: Sight, after: Sight) -> None:
        """One that comes back goes without its key only if another one holds that."""
        if call is not None and call.kind in ("schedule", "edit", "release"):
            return
        for task_id, view in after.views.items():
            key = before.views[task_id].key if task_id in before.views else ""
            if not key or view.key or key in after.left:
                continue
            holder = after.holders.get(key)
            if holder is None or not (after.waits(holder) or after.views[holder].holds):
                self._judge.found("unique", f"{task_id} lost {key_of(key)}, which {holder} has")

    def _one_is_behind(self, sight: Sight) -> None:
        """One waits behind another one that has its key, and it alone."""
        there = {one: view.key for one, view in sight.views.items() if sight.place(one) == "behind"}
        if there != {one: key for key, one in sight.behind.items()}:
            self._judge.found("behind", f"{there} are there, and {sight.behind} have the names")
        for key, task_id in sight.behind.items():
            holder = sight.holders.get(key)
            if key not in sight.left and holder in (None, task_id):
                self._judge.found("behind", f"{task_id} waits, and no entry has {key_of(key)}")

    def _no_ghosts(self, sight: Sight) -> None:
        for key, task_id in sight.holders.items():
            if task_id not in sight.views or sight.views[task_id].key != key:
                self._judge.found("ghost", f"{key_of(key)} is of {task_id}")
        tagged = sorted((tag, one) for one, view in sight.views.items() for tag in view.tags)
        if tagged != sorted(sight.tagged):
            self._judge.found("ghost", f"the index has {sight.tagged}, the entries {tagged}")

    def _revokes(self, call: Call | None, before: Sight, after: Sight) -> None:
        for task_id in sorted(after.owed - before.owed):
            if task_id in self._judge.skipped:
                self._judge.skipped.discard(task_id)
            elif call is None or call.kind != "schedule":
                self._judge.found("revoked", f"{task_id}, by no call")
            elif task_id in self._revoked:
                self._judge.found("revoked", f"{task_id}, again")
            self._revoked.add(task_id)
        self._revoked -= after.views.keys()
        if call:
            call.revoked |= after.owed.intersection(call.ids)
        if both := after.owed & after.views.keys() - self._judge.owed_apart:
            self._judge.found("revoked", f"{sorted(both)}, which are there")

    def displaces(self, call: Call | None, task_id: str, before: Sight, after: Sight) -> bool:
        """Whether an entry went because a call put another one in its place."""
        old = before.views[task_id]
        if call is None or call.kind != "schedule" or not call.conflict:
            return False
        if task_id not in call.ids and old.key != call.key:
            return False
        if before.place(task_id) != "dead":
            self._has_a_reason(call, old, after)
        if task_id not in after.views and task_id not in after.owed:
            self._judge.found("revoked", f"{task_id} was replaced, and waits for ever")
        return True

    def _has_a_reason(self, call: Call, old: View, after: Sight) -> None:
        policy, _, most_ms = call.conflict.partition(" ")
        news = [view for view in after.views.values() if view.name == call.name]
        reasons = {
            "replace": True,
            "earliest": any(new.due_ms < old.due_ms for new in news),
            "latest": any(new.due_ms > old.due_ms for new in news),
            "debounce": any(new.created_ms <= old.created_ms for new in news),
        }
        if not reasons.get(policy):
            self._judge.found("kept", f"{call.name}, {policy}, replaces {old}")
        last_ms = old.created_ms + int(most_ms or 1e15) + 1
        if policy == "debounce" and not any(new.due_ms <= last_ms for new in news):
            self._judge.found("debounce", f"{call.name} is due after {last_ms}")

    def took_effect(self, call: Call | None, task_id: str, view: View) -> None:
        if call is None:
            return
        call.about |= {task_id, *call.displaced}
        if view.key:
            call.about.add(key_of(view.key))

    def settled_by(self, call: Call) -> set[str]:
        """The ids and keys that nothing older may change after this call."""
        found = {one.word for one in call.answers} & NOTHING
        # A release of what is on its way is answered by a read, which leaves no fence.
        if not found or call.kind == "release":
            return call.about
        kept_only = found == {"KEPT"}
        return call.about | ({key_of(call.key)} if kept_only else call.subjects)

    # Answers to callers.

    def told(self, call: Call, asked: str, answer: Answer) -> None:
        for task_id, is_sure in answer.gone:
            effect = call.displaced.get(task_id)
            if effect and is_sure and not self._judge.is_sure(call, effect):
                self._judge.found("answer", f"{call.name} hears that {task_id} will not run")
        stays = (answer.stays, answer.due_ms)
        is_there = stays in call.held or answer.stays in call.left
        if answer.word == "KEPT" and answer.stays != asked and not is_there:
            self._judge.found("kept", f"{call.name}: {answer}; it found {call.held}")

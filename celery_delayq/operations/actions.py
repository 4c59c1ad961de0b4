"""What can be done to tasks: a row for each change, from which shell, page and docs take its words.

ACTIONS --> cli/change.py   a command each, with help, question, progress and answers
        --> contrib/web     its buttons, and their answers
        --> the docs        the table in guide/change.md

The method of the same name stands on ``DelayQ``, on selections, and may stand on results.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.store import Outcome, State

# Why a task in the store was not changed; for tasks that have left it, see `cli/output.py`.
REFUSED = {
    Outcome.IN_FLIGHT: "task {} is being published this moment; try again shortly",
    Outcome.UNCERTAIN: "task {} was changed, but an earlier attempt may have delivered it",
    Outcome.UNCHANGED: "task {} does not meet the condition; nothing was changed",
}
_NOT_DEAD = "task {} is not dead; nothing was changed"


@dataclass(frozen=True)
class Action:
    """A change of tasks.

    Attributes:
        name: Its name in URLs and forms, and of the method.
        label: The words on its button.
        done: The past form, as in "5 tasks cancelled" and "task a was cancelled".
        says: What it does: the first sentence of the command's help.
        examples: Lines of the shell.
        verb: The verb in "cancel 5 tasks?", if it is not the name.
        dead: Whether the page offers it for dead tasks.
        waiting: Whether the page offers it for waiting tasks.
        takes: The kind of the value that the page asks for: a ``time``; ``fields``, for one task
            only; or an option of an edit.
        undone: Whether an undo brings the tasks back; moved ones only of a change of many.
        of_one: Whether it can change a single task; else only a selection, and not on the page.
        unchanged: The sentence for a task that does not meet a condition.
    """

    name: str
    label: str
    done: str
    says: str
    examples: tuple[str, ...]
    verb: str = ""
    dead: bool = True
    waiting: bool = True
    takes: str = ""
    undone: bool = False
    of_one: bool = True
    unchanged: str = REFUSED[Outcome.UNCHANGED]

    @property
    def command(self) -> str:
        """The name of its command."""
        return self.name.replace("_", "-")

    def suits(self, state: State) -> bool:
        """Return whether the page offers it for a task in this state."""
        return self.dead if state is State.DEAD else self.waiting


#: By name, in the order of the help.
ACTIONS = {
    action.name: action
    for action in (
        Action(
            "cancel", "Cancel", "cancelled", "Cancel scheduled tasks.",
            ("cancel order-42 order-43", "cancel --tag user:7 --dry-run",
             "cancel - --yes < ids.txt"),
            dead=False, undone=True,
        ),
        Action(
            "reschedule", "Reschedule", "rescheduled", "Give scheduled tasks another due time.",
            ("reschedule order-42 +2h", "reschedule order-42 2030-01-31T09:00 --local",
             "reschedule --tag user:7 --only later by:+1d --yes"),
            takes="time", undone=True,
        ),
        Action(
            "run_now", "Run now", "made due now",
            "Deliver tasks now, even if they are paused or dead.",
            ("run-now order-42",), verb="run", dead=False,
        ),
        Action(
            "edit", "Edit", "edited", "Edit scheduled tasks.",
            ("edit order-42 --args '[42, \"mail\"]'",
             "edit --key topup:7 --expires by:+30m --priority 3",
             "edit --queue old --new-queue new",
             "edit --task shop.mail --to-task shop.send_mail --dry-run"),
            dead=False, takes="fields",
        ),
        Action(
            "retry", "Retry", "made due now", "Try to deliver dead tasks again.",
            ("retry order-42", "retry --dead --queue mail"), waiting=False, unchanged=_NOT_DEAD,
        ),
        Action(
            "remove", "Remove", "removed", "Delete dead tasks, even unreadable ones.",
            ("remove order-42", "remove --dead --dry-run"),
            waiting=False, undone=True, unchanged=_NOT_DEAD,
        ),
        Action(
            "release", "Release", "released", "Send tasks now, as plain Celery messages.",
            ("release --all --dry-run", "release --queue mail"), of_one=False,
        ),
    )
}  # fmt: skip

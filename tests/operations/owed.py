"""The further duties of a method of ``DelayQ`` that changes tasks.

claim   A task whose lease has run out may still be acked: that late ack must not take away what the
        method left.
hook    Signals, metrics and events hear of the change by a function of ``Hooks``.
metric  A counter of it.
event   What the history says of it.
page    An action of the page, or one of its views; the terminal's commands stand in ``table.py``.

Each is a name, or the reason for which there is none.

Below them are the duties towards the data of an entry.
"""

from dataclasses import dataclass, fields

REASON = "none: "
_ONE_TASK = f"{REASON}it changes no task"
_NEW = f"{REASON}a new task has no lease"
_DEAD = f"{REASON}a dead task has none"
_SHELL = f"{REASON}the terminal does"


@dataclass(frozen=True)
class Owed:
    """The names, or reasons; one that is left out is an error that names it."""

    claim: str
    hook: str
    metric: str
    event: str
    page: str


# Of lanes, keys and stores, not of tasks.
_NOTHING = {"claim": _ONE_TASK, "hook": _ONE_TASK, "metric": _ONE_TASK}

OWED = {
    "schedule": Owed(_NEW, "scheduled", "scheduled", "scheduled", f"{REASON}an app schedules"),
    "schedule_many": Owed(_NEW, "scheduled", "scheduled", "scheduled", f"{REASON}an app does"),
    "load": Owed(
        _NEW,
        f"{REASON}its tasks are old",
        f"{REASON}as before",
        f"{REASON}their past is not here",
        _SHELL,
    ),
    "cancel": Owed("kept", "cancelled", "cancelled", "cancelled", "cancel"),
    "remove": Owed(_DEAD, "cancelled", "cancelled", "removed", "remove"),
    "undo": Owed(
        f"{REASON}the task had left, and its lease with it", "undone", "undone", "undone", "undo"
    ),
    "every": Owed(*[f"{REASON}a writer makes the tasks"] * 5),
    "reschedule": Owed("kept", "rescheduled", "rescheduled", "rescheduled", "reschedule"),
    "run_now": Owed("kept", "rescheduled", "rescheduled", "run_now", "run_now"),
    "retry": Owed(_DEAD, "rescheduled", "rescheduled", "retried", "retry"),
    "edit": Owed("kept", "edited", "edited", "edited", "edit"),
    "free": Owed(**_NOTHING, event=_ONE_TASK, page="key"),
    "pause": Owed(**_NOTHING, event="paused", page="paused"),
    "resume": Owed(**_NOTHING, event="resumed", page="paused"),
    "repair": Owed(
        claim=f"{REASON}it reads the lease itself",
        hook=f"{REASON}the store was wrong, not a task",
        metric=f"{REASON}so is this",
        event="repaired",
        page=_SHELL,
    ),
    "hand_over": Owed(
        claim=f"{REASON}it takes the lease",
        hook="handed_over",
        metric="handed_over",
        event="handed_over",
        page=f"{REASON}a scanner does",
    ),
}

NAMES = [one.name for one in fields(Owed)]

_CHANGE = "each change of an entry has a time of its own"
_AGAIN = "it waits again, and what kept it is over"
_DUE = "it has another due time"
_RELATIVE = "the worker gets it as a time"
_WORKER = "from now on, lateness is up to the worker"
_SENT = "it is sent now, with its due time as eta"

#: A duty towards the data of an entry -> the fields that it changes, and why. `test_data.py` takes
#: all fields from their classes, and tries that each other one is kept.
KEEPS = {
    "edit": {
        "changed_us": _CHANGE,
        "message's body": "it has the new arguments",
        "message's argsrepr": "JSON has no tuples",
        "message's kwargsrepr": "it shows the new arguments",
    },
    "reschedule": {
        "changed_us": _CHANGE,
        "due_ms": _DUE,
        "message's delayq_due": _DUE,
        "message's expires": "it is relative to the due time",
        **dict.fromkeys(("place", "next_try_ms", "refusals", "error"), _AGAIN),
    },
    "release": {
        "changed_us": _CHANGE,
        **dict.fromkeys(("due_ms", "message's delayq_due", "message's eta"), _SENT),
        **dict.fromkeys(("flags", "is_released"), _SENT),
        "expires_ms": _RELATIVE,
        **dict.fromkeys(("grace_ms", "excused_ms"), _WORKER),
        **dict.fromkeys(("place", "next_try_ms", "refusals", "error"), _AGAIN),
    },
    "undo": {
        "changed_us": _CHANGE,
        "excused_ms": "the time in which it was cancelled makes no task late",
    },
    "dump and load": {"changed_us": _CHANGE},
    "reshard": {},
}

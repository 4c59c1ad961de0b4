"""Each method that changes tasks pays its debts in `owed.py`, or that says why it has none."""

import pytest

from celery_delayq.contrib.metrics.names import metrics
from celery_delayq.contrib.web.actions import ACTIONS
from celery_delayq.contrib.web.app import VIEWS
from celery_delayq.core.hooks import Hooks
from celery_delayq.core.store import What
from tests.app.support import FAR, LONG_AGO
from tests.operations.owed import NAMES, OWED, REASON
from tests.operations.table import OPERATIONS
from tests.support.places import at, take

CHANGING = [
    name for one in OPERATIONS if one.by == "caller" and one.changes for name in one.face
] + ["hand_over"]

# A call of each method, on the task "a": as the table has it, but for these.
CALLS = {
    name: lambda delayq, call=call: call(delayq, "a")
    for one in OPERATIONS
    for name, call in one.face.items()
} | {
    "schedule": lambda delayq: delayq.schedule(delayq.app.signature("t"), at=FAR),
    "schedule_many": lambda delayq: delayq.schedule_many(
        delayq.app.signature("t"), [((), {}, FAR)]
    ),
    "every": lambda delayq: delayq.every("r", delayq.app.signature("t"), 3600),
    "undo": lambda delayq: (delayq.cancel("a"), delayq.undo("a")),
    "hand_over": lambda delayq: delayq.hand_over(),
    "resume": lambda delayq: (delayq.pause(queue="celery"), delayq.resume(queue="celery")),
}
ON_THE_DEAD = ("remove", "retry")


def paid(name):
    """The methods that owe this, each with its name for it."""
    found = [(method, getattr(owed, name)) for method, owed in OWED.items()]
    return [(method, what) for method, what in found if not what.startswith(REASON)]


def test_every_method_that_changes_something_says_what_it_owes():
    missing = sorted({*CHANGING} - OWED.keys())
    assert not missing, (
        f"{', '.join(missing)}: say in tests/operations/owed.py what it owes: {', '.join(NAMES)}"
    )
    assert sorted(OWED) == sorted({*CHANGING})


@pytest.mark.parametrize("name", NAMES)
def test_each_name_that_a_method_owes_exists(name):
    there = {
        "claim": {"kept"},
        "hook": set(Hooks.__dataclass_fields__),
        "metric": {one.name for one in metrics()},
        "event": {one.value for one in What},
        "page": {one.name for one in ACTIONS.values()} | {*VIEWS},
    }[name]
    wrong = [(method, what) for method, what in paid(name) if what not in there]
    assert not wrong, f"no {name} has that name: give it, or `{REASON}` and why"


@pytest.fixture
def delayq(delayq_app, url):
    return delayq_app(url, delayq_history=100, delayq_undo=(60, 10)).delayq


def prepared(delayq, method):
    """The task "a", in the state that the method is about."""
    app = delayq.app
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)
    if method in ON_THE_DEAD:
        take(delayq, "dead", "a")


@pytest.mark.parametrize(("method", "hook"), paid("hook"))
def test_a_method_calls_its_hook(delayq, method, hook):
    prepared(delayq, method)
    heard = []
    asked = {"hears_handed_over": lambda: True} if hook == "handed_over" else {}
    delayq.services.hooks.add(Hooks(**{hook: lambda *_: heard.append(hook)}, **asked))
    CALLS[method](delayq)
    assert heard, f"{method} owes the hook {hook}"


@pytest.mark.parametrize(
    ("method", "event"), [(one, what) for one, what in paid("event") if one != "repair"]
)
def test_a_method_has_its_event_in_the_history(delayq, method, event):
    prepared(delayq, method)
    CALLS[method](delayq)
    assert event in [one.what for one in delayq.history()], f"{method} owes the event {event}"


@pytest.mark.parametrize("method", [method for method, _ in paid("claim")])
def test_a_late_ack_takes_nothing_away(delayq, method):
    [entry] = at(delayq, "lapsed")
    CALLS[method](delayq)
    before = delayq.get("a")

    for steps in delayq.services.steps_by_shard():
        steps.ack([entry])
        steps.close()

    assert delayq.get("a") == before, f"{method} owes the claim: a late ack took the task away"
    assert [*delayq.check()] == []

"""An entry in each place in which one can be: the one driver of all tests of a script.

``enter(store, "refused", "a", extras=KEY)`` schedules ``a`` and takes it there. The entry is due,
so nothing else that is due may be in the store.
"""

from celery_delayq.core.store.extras import Extras
from celery_delayq.core.store.record import lane_for
from tests.store.support import NOW_MS

WAITING = ("due", "relay", "refused", "parked")
LEFT = ("leased", "lapsed", "dead")  # it waits no longer
PLACES = (*WAITING, *LEFT)
# In its place only beside a task that was delivered and holds its key: see ``enter_behind``.
BEHIND = "behind"


def enter(store, place, task_id="a", due_ms=NOW_MS, *, wait=60.0, **options):
    """Take a new entry to a place of ``PLACES``; returns its claims, if a scanner has or had it."""
    options = {"share": True, **options}
    if place in ("due", "parked"):
        store.schedule(task_id, due_ms, **options)
    else:
        store.schedule_relayed(task_id, due_ms, **options)
    if place == "parked":
        queue = options.get("queue", "celery")
        store.entries.pause(lane_for(queue=queue), queue)
        store.steps().hand_over()
    claims = [] if place in ("due", "relay", "parked") else _claim(store, task_id)
    if place == "lapsed":
        store.lease_out()
    if place in ("refused", "dead"):
        store.steps().nack(place, claims, wait=wait, reason="NO_ROUTE")
    assert store.places(task_id) == ["leased" if place == "lapsed" else place]
    return claims


def _claim(store, task_id):
    claims = store.steps(lease=1).claim(1).entries
    assert [one.task_id for one in claims] == [task_id]
    return claims


def enter_behind(store, task_id="a", due_ms=NOW_MS, *, key="k", holder="holder", **options):
    """Take a new entry behind a task that is delivered and holds its key for 1,000 s."""
    store.schedule(holder, extras=Extras(key, hold="f1000000"), share=True)
    store.steps().hand_over()
    store.schedule(
        task_id,
        due_ms,
        extras=Extras(key, hold="w1000000"),
        share=True,
        conflict="replace",
        **options,
    )
    assert store.places(task_id) == [BEHIND]

"""A task that holds its key after it was delivered, workers' words about it, and one behind it."""

import json
from itertools import count

import pytest

from celery_delayq.core import clock
from celery_delayq.core.clock import When
from celery_delayq.core.store import NewEntry
from celery_delayq.core.store.keys import target_of_key
from celery_delayq.core.store.record import Extras, header_for
from celery_delayq.core.store.schedule import Addition
from celery_delayq.errors import AlreadyScheduled
from tests.store.support import FAR_MS, NOW_MS, new_record
from tests.support.waiting import PATIENCE

SECOND = 1000
FINISHED = Extras("k", hold=f"f{60 * SECOND}")
WINDOW = Extras("k", hold=f"w{60 * SECOND}")
LATE = Extras("k", grace_ms=1, hold=FINISHED.hold)
END_MS = NOW_MS + 60 * SECOND
LOOK_MS = 60 * SECOND  # a scanner looks again at a holder that waits itself
KEY = target_of_key("k")

_numbers = count(1)


@pytest.fixture
def shard_steps(store):
    return store.steps(lease=5)


@pytest.fixture
def hold(store, shard_steps):
    """The task `a` was delivered, and holds the key."""
    return deliver(store, shard_steps)


@pytest.fixture
def second(store, hold):
    """The task `b` is behind it."""
    behind(store)


@pytest.fixture
def claimed(store, shard_steps):
    """The task `a`, which holds the key, is being published."""
    return publish(store, shard_steps)


def schedule(store, task_id="new", due_ms=FAR_MS, extras=FINISHED, **options):
    return store.schedule(task_id, due_ms, extras=extras, **options)


def answer(store, conflict, extras=FINISHED, task_id="new", due_ms=FAR_MS, **options):
    """Schedule a task; return the receipt or the error."""
    record = new_record(task_id, header_for("L", "celery"), share=True).with_extras(extras)
    [told] = store.entries.schedule(
        [NewEntry(task_id, When("at", due_ms), record, conflict)], Addition(**options)
    )
    return told


def deliver(store, shard_steps, task_id="a", extras=FINISHED):
    """Deliver an entry with the key; return the header of its message."""
    schedule(store, task_id, NOW_MS, extras)
    assert shard_steps.hand_over().handed_over == 1
    return header(store)


def publish(store, shard_steps):
    return store.at("leased", by=shard_steps, extras=FINISHED)


def header(store):
    """The newest message's header about its key."""
    message = json.loads(store.raw.lindex("celery", 0))
    return message["headers"].get("delayq_hold")


def say(store, hold, ms=0, lease=0, **others):
    """A worker's word; return how the key is held after it."""
    hold = {**hold, **others}
    word = (hold["id"], hold["key"], hold["delivery"], ms, lease)
    store.entries.hold([word], clock.monotonic() + PATIENCE)
    return ends(store)


def row(store):
    """The holder's row: its entry, or the id and the delivery of a task that was delivered."""
    return store.raw.hget(store.keys["holders"], "k")


def ends(store):
    """Until when a delivered task holds the key; ``None``: it does not."""
    score = store.raw.zscore(store.keys["held"], "k")
    return int(score) if b"\xff" in (row(store) or b"") else None


def is_free(store, **options):
    """Schedule another task under the key; return whether that was possible."""
    try:
        schedule(store, f"next{next(_numbers)}", **options)
    except AlreadyScheduled as error:
        return error.holder != "a"
    return True


def going_on(hold):
    """The options by which a running task schedules itself and takes its key along."""
    return {"extras": Extras("k", hold=f"f{hold['ms']}"), "run": hold["delivery"]}


def behind(store, task_id="b", due_ms=NOW_MS, extras=FINISHED, conflict="replace", **options):
    """Schedule a task that goes behind the holder."""
    due_ms = schedule(store, task_id, due_ms, extras, conflict=conflict, **options)
    assert store.places(task_id) == ["behind"]
    store.check()
    return due_ms


def delivered(store, shard_steps):
    """The ids that the next step of a scanner delivers."""
    before = len(store.arrived())
    shard_steps.hand_over()
    store.check()
    return store.arrived()[before:]

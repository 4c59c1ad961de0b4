"""The thread that stores owed states: no fault of a backend or Redis stops it, only its end."""

import threading

import pytest
from celery import states

from celery_delayq.core.handover.scanner import Outbox
from celery_delayq.core.store import Cancelled, Outcome
from celery_delayq.errors import StoreUnavailable
from tests.relay.house import LONG_AGO
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.core


class Owing:
    """An engine that owes this many states."""

    def __init__(self, *pages):
        self.pages = list(pages)
        self.settled = []
        self.closed = threading.Event()

    def owed(self):
        page = self.pages.pop(0) if self.pages else []
        if isinstance(page, Exception):
            raise page
        return [Cancelled(name, Outcome.DONE, b"1", b"{}") for name in page]

    def mark_stored(self, cancelled):
        self.settled += [one.task_id for one in cancelled]
        return {"anew"}

    def close(self):
        self.closed.set()


def test_a_stored_state_is_settled_and_any_other_stays():
    shard_steps = Owing("abc")
    outbox = Outbox([shard_steps], lambda one: one.task_id != "b")
    assert not outbox.drain()
    assert shard_steps.settled == ["a", "c"]


def test_with_nothing_owed_nothing_is_settled():
    shard_steps = Owing()
    assert not Outbox([shard_steps], lambda _: True).drain()
    assert shard_steps.settled == []


@pytest.fixture
def at_once(limits):
    limits(outbox_s=0.001)


@pytest.mark.usefixtures("at_once")
def test_an_outbox_goes_on_after_redis_was_away_and_ends_when_it_is_told_to():
    shard_steps = Owing(StoreUnavailable("owed", "away"), "ab", "c")
    seen, done = [], threading.Event()

    def mark(one):
        seen.append(one.task_id)
        if one.task_id == "c":
            done.set()
        return True

    outbox = Outbox([shard_steps], mark)
    outbox.start()
    assert done.wait(30)
    outbox.stop(10)
    assert shard_steps.closed.wait(30)
    assert seen == ["a", "b", "c"]
    assert shard_steps.settled == ["a", "b", "c"]


@pytest.mark.usefixtures("at_once")
def test_a_stopping_outbox_waits_no_longer_than_for_the_task_at_hand():
    shard_steps, entered, leave = Owing("abc"), threading.Event(), threading.Event()

    def mark(_):
        entered.set()
        return leave.wait(30)

    outbox = Outbox([shard_steps], mark)
    outbox.start()
    assert entered.wait(30)
    outbox.stop(0)
    leave.set()
    outbox.stop(PATIENCE)
    assert shard_steps.settled == ["a"]


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "relayed"])
def test_revoked_is_stored_at_once_for_a_task_that_is_skipped(house, redis_server, limits, relayed):
    limits(outbox_s=10 * PATIENCE)
    store = redis_server.url(1 if relayed else 0)
    one = house(result_backend=redis_server.url(), delayq_url=store)
    late = {"delayq_at": LONG_AGO, "delayq_late": "skip", "delayq_grace": 60}
    result = one.task.apply_async(**late)
    one.start()
    eventually(lambda: result.state == states.REVOKED)

"""The outcomes of cancel and reschedule for an entry in flight, and the effect of a late ack."""

import pytest
from celery._state import _task_stack
from kombu import Queue

from celery_delayq import Outcome, State
from tests.relay.house import LONG_AGO, end_leases
from tests.support.waiting import eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.fixture
def house(make_house, redis_server):
    made = make_house("memory://")
    with redis_server.client() as made.store:
        yield made


@pytest.fixture
def claimed(house):
    """An entry under a lease: the engine that holds it, and its claim."""
    shard_steps = house.relay().steps
    house.due_now(task_id="a")
    [claim], *_ = shard_steps.claim(10)
    return shard_steps, claim


def test_meanwhile_it_is_in_flight_and_stays(house, claimed):
    assert house.delayq.cancel("a") is Outcome.IN_FLIGHT
    assert house.delayq.reschedule("a", after=60) is Outcome.IN_FLIGHT
    assert house.delayq.state("a") is State.IN_FLIGHT
    assert house.counts() == (0, 1, 0)


def test_after_the_ack_it_was_handed_over(house, claimed):
    shard_steps, claim = claimed
    assert shard_steps.ack([claim]) == 1
    assert house.delayq.cancel("a") is Outcome.HANDED_OVER
    assert house.delayq.reschedule("a", after=60) is Outcome.HANDED_OVER
    assert house.counts() == (0, 0, 0)


def test_given_back_unsent_it_can_be_cancelled_for_certain(house, claimed):
    shard_steps, claim = claimed
    shard_steps.nack("unsent", [claim])
    assert house.delayq.cancel("a") is Outcome.DONE


def test_refused_it_can_be_cancelled_for_certain(house, claimed):
    shard_steps, claim = claimed
    shard_steps.nack("refused", [claim], wait=60)
    assert house.delayq.cancel("a") is Outcome.DONE


def test_after_an_unknown_attempt_cancelling_is_uncertain(house, claimed):
    shard_steps, claim = claimed
    shard_steps.nack("unknown", [claim])
    assert house.delayq.cancel("a") is Outcome.UNCERTAIN
    assert house.counts() == (0, 0, 0)


def test_after_an_unknown_attempt_moving_is_uncertain_and_moves(house, claimed):
    shard_steps, claim = claimed
    shard_steps.nack("unknown", [claim])
    assert house.delayq.reschedule("a", at=LONG_AGO + 1) is Outcome.UNCERTAIN
    assert house.relay_once() == 1
    [message] = house.take()
    assert message.headers["delayq_redelivered"] is True
    assert message.headers["delayq_due"] == (LONG_AGO + 1) * 1000


def test_once_its_lease_ran_out_it_can_be_cancelled_but_uncertainly(house, claimed):
    end_leases(house.store)
    assert house.delayq.cancel("a") is Outcome.UNCERTAIN
    shard_steps, claim = claimed
    assert shard_steps.ack([claim]) == 0


def test_once_its_lease_ran_out_it_can_be_moved_but_uncertainly(house, claimed):
    end_leases(house.store)
    assert house.delayq.reschedule("a", after=3600) is Outcome.UNCERTAIN
    shard_steps, claim = claimed
    assert shard_steps.ack([claim]) == 0, "the new version is not the old claim's to remove"
    assert house.counts() == (1, 0, 0)


def test_a_late_ack_leaves_what_another_scanner_claimed(house, claimed):
    end_leases(house.store)
    second = house.relay().steps
    assert second.reclaim() == ["a"]
    [again], *_ = second.claim(10)
    first, claim = claimed
    assert again.uncertain
    assert first.ack([claim]) == 0
    assert first.nack("unsent", [claim]) == 0
    assert house.counts() == (0, 1, 0)
    assert second.ack([again]) == 1


def test_a_cancel_that_came_too_late_can_still_revoke(house, claimed):
    shard_steps, claim = claimed
    shard_steps.ack([claim])
    assert house.delayq.cancel("a", revoke=True) is Outcome.HANDED_OVER


def test_a_task_that_runs_before_its_ack_may_schedule_itself_again(house, claimed):
    """A worker may be faster than the scanner that has just published."""
    _task_stack.push(house.task)
    house.task.push_request(id="a", called_directly=False)
    house.task.apply_async(task_id="a", delayq_after=3600)
    house.task.pop_request()
    _task_stack.pop()
    shard_steps, claim = claimed
    assert shard_steps.ack([claim]) == 0
    assert house.counts() == (1, 0, 0)
    assert house.delayq.cancel("a") is Outcome.DONE


@pytest.mark.parametrize("broker", ["memory://"])
def test_the_whole_way_without_a_broker_process(make_house, broker):
    house = make_house(broker)
    house.declare(Queue(house.queue))
    wanted = [house.due_now(number, task_id=f"{number}").id for number in range(5)]
    house.start()
    assert [message.headers["id"] for message in house.take(count=5)] == wanted
    eventually(lambda: house.counts() == (0, 0, 0))

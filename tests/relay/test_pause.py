"""Pausing tasks that go through RabbitMQ: the claim parks them."""

import pytest

from celery_delayq import State

pytestmark = pytest.mark.libraries


def test_a_paused_task_is_not_published_until_it_is_resumed(rabbit):
    rabbit.delayq.pause(task=rabbit.task)
    held = rabbit.due_now()
    assert rabbit.relay_once() == 0
    assert rabbit.delayq.state(held.id) is State.PAUSED
    assert rabbit.delayq.counts().paused == 1

    rabbit.delayq.resume(task=rabbit.task)

    assert rabbit.relay_once() == 1
    assert rabbit.delayq.handed_over(held.id) is not None


def test_hand_over_parks_all_that_is_paused_and_publishes_the_rest(rabbit):
    rabbit.delayq.pause(task="another")
    rabbit.delayq.pause(task=rabbit.task)
    for _ in range(3):
        rabbit.due_now()
    assert rabbit.delayq.hand_over() == 0
    assert rabbit.delayq.counts().paused == 3
    rabbit.delayq.resume(task=rabbit.task)
    assert rabbit.delayq.hand_over() == 3

"""An edited task arrives through another broker like a plain call with the new values."""

import json
from datetime import datetime, timedelta, timezone

import pytest

from celery_delayq import Outcome
from tests.relay.house import LONG_AGO
from tests.support.copies import attempts_at, publish

pytestmark = pytest.mark.libraries


@pytest.fixture(params=["rabbit", "other_redis"])
def house(request):
    return request.getfixturevalue(request.param)


def call_of(message):
    args, kwargs, _ = json.loads(message.body)
    return args, kwargs


def test_the_broker_gets_the_new_arguments_and_priority(rabbit):
    rabbit.due_now(1, task_id="a", priority=1)

    assert rabbit.delayq.edit("a", args=["ü"], kwargs={"y": 2}, priority=5) is Outcome.DONE

    rabbit.relay_once()
    [message] = rabbit.take()
    assert call_of(message) == (["ü"], {"y": 2})
    assert message.properties["priority"] == 5
    assert message.headers["argsrepr"] == "['ü']"


def test_a_new_expiry_is_the_broker_s_time_to_live(rabbit):
    rabbit.due_now(task_id="a")
    expires = datetime.now(timezone.utc) + timedelta(seconds=600)

    assert rabbit.delayq.edit("a", expires=expires)

    rabbit.relay_once()
    [message] = rabbit.take()
    assert 570_000 < int(message.properties["expiration"]) <= 600_000


def test_another_redis_gets_it_in_the_list_of_its_new_priority(other_redis):
    other_redis.due_now(1, task_id="a")

    assert other_redis.delayq.edit("a", args=[2], priority=6)

    other_redis.relay_once()
    assert other_redis.ids(f"{other_redis.queue}") == ["a"]
    # kombu reads all lists of a queue; the message was in this one.
    other_redis.due_now(1, task_id="b")
    other_redis.delayq.edit("b", priority=6)
    other_redis.relay_once()
    assert other_redis.client.llen(f"{other_redis.queue}\x06\x166") == 1


def test_an_edit_after_an_attempt_without_an_answer_is_uncertain_and_a_hand_over_of_its_own(house):
    house.due_now(1, task_id="a")
    [first] = attempts_at(house.delayq, "a", 1, ack=False)
    publish(house.delayq, first)

    assert house.delayq.edit("a", args=[2]) is Outcome.UNCERTAIN
    house.relay_once()

    old, new = house.take(count=2)
    names = [one.headers["delayq_hand_over"] for one in (old, new)]
    assert len(set(names)) == 2
    assert new.headers["delayq_redelivered"] is True
    assert [one.headers["delayq_due"] for one in (old, new)] == [LONG_AGO * 1000] * 2
    assert [one.headers["argsrepr"] for one in (old, new)] == ["(1,)", "[2]"]


def test_a_task_being_published_is_not_edited(house):
    house.due_now(1, task_id="a")
    house.delayq.services.steps_by_shard()[0].claim(1)

    assert house.delayq.edit("a", args=[2]) is Outcome.IN_FLIGHT

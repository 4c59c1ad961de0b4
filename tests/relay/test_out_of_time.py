"""A relay checks its lease before each message: after a long halt it sends no more."""

import itertools

import pytest

from tests.relay.house import new_name

pytestmark = pytest.mark.libraries


@pytest.fixture(params=["rabbitmq", "redis", "memory"])
def house(request, make_house, rabbitmq_server, start_redis):
    brokers = {
        "rabbitmq": lambda: rabbitmq_server.url,
        "redis": lambda: start_redis().url(),
        "memory": lambda: "memory://",
    }
    return make_house(brokers[request.param]())


def test_it_runs_out_between_two_messages_of_a_window(house):
    """The scanner is stopped after its second look at the time."""
    queues = [new_name() for _ in range(5)]
    for number, queue in enumerate(queues):
        house.due_now(task_id=f"{number}", queue=queue)
    relay, looks = house.relay(), itertools.count(1)
    batch = relay.batch(lambda: next(looks) > 2)
    assert (batch.claimed, batch.sent) == (5, 2)
    assert house.counts() == (3, 0, 0)
    assert [house.ids(queue) for queue in queues[:2]] == [["0"], ["1"]]
    assert relay.batch(lambda: False).sent == 3
    assert [house.ids(queue) for queue in queues[2:]] == [["2"], ["3"], ["4"]]

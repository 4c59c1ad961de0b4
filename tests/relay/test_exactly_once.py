"""Without faults the relay delivers each task exactly once, also if a batch ends early."""

import itertools

import pytest
from kombu.transport import memory

from tests.relay.house import new_name
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.mark.operations
def test_scanners_share_what_is_due_and_repeat_nothing(rabbit):
    wanted = rabbit.due_now_many(2000)
    rabbit.start(5)
    eventually(lambda: rabbit.counts() == (0, 0, 0), timeout=2 * PATIENCE)
    arrived = rabbit.take(count=2000)
    assert sorted(message.headers["id"] for message in arrived) == wanted
    assert {message.headers["delayq_attempt"] for message in arrived} == {1}
    assert not any("delayq_redelivered" in message.headers for message in arrived)
    assert rabbit.left() == 0


def test_tasks_that_fall_due_while_scanners_run_leave_once_and_never_early(rabbit):
    rabbit.start(3)
    start_ms = rabbit.delayq.counts().now_ms + 300
    wanted = [
        rabbit.task.apply_async(task_id=f"{number:03}", delayq_at=(start_ms + number) / 1000).id
        for number in range(300)
    ]

    def all_there():
        there, now_ms = rabbit.left(), rabbit.delayq.counts().now_ms
        assert there <= max(0, now_ms - start_ms + 1), "a task was early"
        return there == 300

    eventually(all_there)
    assert sorted(rabbit.ids()) == wanted


@pytest.mark.operations
def test_tasks_being_published_as_a_thread_ends_are_uncertain_and_the_rest_goes_again(
    make_house, monkeypatch, limits
):
    limits(first_window=2)
    house = make_house("memory://")
    ids = house.due_now_many(3)
    put, puts = memory.Channel._put, []

    def put_and_end(channel, queue, message, **options):
        put(channel, queue, message, **options)
        puts.append(message["headers"]["id"])
        if len(puts) == 2:
            raise SystemExit(3)

    monkeypatch.setattr(memory.Channel, "_put", put_and_end)

    with pytest.raises(SystemExit):
        house.relay().batch(lambda: False)

    assert puts == ids[:2]
    assert house.counts() == (3, 0, 0)
    house.relay_all()
    again = house.take(count=5)[2:]
    marks = {one.headers["id"]: "delayq_redelivered" in one.headers for one in again}
    assert marks == dict(zip(ids, [True, True, False], strict=True))


BROKERS = {
    "rabbitmq": lambda request: request.getfixturevalue("rabbitmq_server").url,
    "redis": lambda request: request.getfixturevalue("start_redis")().url(),
    "memory": lambda _: "memory://",
}


@pytest.mark.parametrize("broker", BROKERS)
def test_a_stop_in_a_window_ends_it_after_the_message_at_hand_and_gives_back_the_rest_untried(
    make_house, request, broker
):
    """The scanner is stopped after its second look at the time, as if its lease ran out."""
    house = make_house(BROKERS[broker](request))
    queues = [new_name() for _ in range(5)]
    for number, queue in enumerate(queues):
        house.due_now(task_id=f"{number}", queue=queue)
    relay, looks = house.relay(), itertools.count(1)
    batch = relay.batch(lambda: next(looks) > 2)
    assert (batch.claimed, batch.sent) == (5, 2)
    assert house.counts() == (3, 0, 0)
    assert [house.ids(queue) for queue in queues[:2]] == [["0"], ["1"]]
    assert relay.batch(lambda: False).sent == 3
    left = [house.take(queue)[0].headers for queue in queues[2:]]
    assert [(one["id"], one["delayq_attempt"]) for one in left] == [("2", 1), ("3", 1), ("4", 1)]


@pytest.mark.operations
@pytest.mark.parametrize(("slow", "windows"), [(-1.0, 8), (PATIENCE, 2)])
def test_a_window_that_took_long_makes_the_next_one_half_as_large_and_else_twice(
    other_redis, limits, slow, windows
):
    """On a Redis, a window is one push: of 4, 2, 1, 1 ... messages, or of 4 and 8."""
    limits(broker_slow_s=slow, first_window=4)
    wanted = other_redis.due_now_many(12)
    assert other_redis.relay().batch(lambda: False).sent == 12
    assert other_redis.client.info("commandstats")["cmdstat_lpush"]["calls"] == windows
    assert other_redis.ids() == wanted

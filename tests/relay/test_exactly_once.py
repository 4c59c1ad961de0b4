"""Without faults the relay delivers each task exactly once, however many scanners there are."""

import threading

import pytest
from kombu import Queue

from celery_delayq.core.handover.publishers import OneByOne
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]


@pytest.mark.operations
@pytest.mark.parametrize("count", [2, 5])
def test_scanners_share_what_is_due_and_repeat_nothing(rabbit, count):
    wanted = rabbit.due_now_many(2000)
    rabbit.start(count)
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


def test_each_task_arrives_once_with_batches_of_one(make_house, rabbitmq_server, monkeypatch):
    monkeypatch.setattr("celery_delayq.core.handover.relay.BATCH", 1)
    house = make_house(rabbitmq_server.url)
    house.declare(Queue(house.queue))
    wanted = [house.due_now(task_id=f"{number:02}").id for number in range(50)]
    house.start()
    assert [message.headers["id"] for message in house.take(count=50)] == wanted


@pytest.mark.operations
def test_a_stop_in_the_midst_gives_back_the_rest(rabbit, monkeypatch):
    for name in ("FIRST_WINDOW", "WINDOW"):
        monkeypatch.setattr(f"celery_delayq.core.handover.link.{name}", 10)
    wanted = rabbit.due_now_many(900)
    attempt, tried, stopping = OneByOne._attempt, [], threading.Event()

    def held_up(publisher, entry):
        tried.append(entry.task_id)
        assert len(tried) <= 50 or stopping.wait(PATIENCE)
        return attempt(publisher, entry)

    monkeypatch.setattr(OneByOne, "_attempt", held_up)
    scanner = rabbit.start()
    eventually(lambda: len(tried) > 50)
    scanner._stopping.set()
    stopping.set()
    scanner.stop(2 * PATIENCE)
    waiting, in_flight, dead = rabbit.counts()
    assert (in_flight, dead) == (0, 0)
    assert waiting > 0
    assert waiting + rabbit.left() == 900
    # An entry that was given back was not tried: its next attempt is the first.
    rabbit.start()
    messages = rabbit.take(count=900)
    assert sorted(message.headers["id"] for message in messages) == wanted
    assert {message.headers["delayq_attempt"] for message in messages} == {1}

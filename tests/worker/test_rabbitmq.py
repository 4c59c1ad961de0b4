"""A worker with RabbitMQ as its broker: tasks wait in Redis and go through a relay."""

import pytest
from celery import chord

from tests.support.waiting import eventually

pytestmark = pytest.mark.libraries


@pytest.fixture(scope="module")
def rabbit(standing, server, rabbitmq_server):
    return standing(
        *("-P", "prefork", "-c", "2"),
        broker_url=rabbitmq_server.url,
        delayq_url=server.url(),
        delayq_capture_eta=True,
    )


def test_it_runs_once_and_never_early(rabbit):
    results = [rabbit.tasks["note"].delay_for(delay, delay) for delay in (0.3, 0.1)]
    for result in results:
        [run] = rabbit.wait_runs(result)
        assert run["at"] >= run["due"] == pytest.approx(result.due.timestamp(), abs=0.0001)
        assert (run["attempt"], run["redelivered"], run["queue"]) == (1, None, rabbit.queue)
    assert [len(rabbit.runs(result)) for result in results] == [1, 1]


def test_a_retry_at_once_overtakes_the_ack_and_is_no_conflict(rabbit):
    """The worker may run it and schedule it again before the scanner has acknowledged it."""
    results = [rabbit.tasks["persist"].delay_for(0, 3, 0) for _ in range(10)]
    for result in results:
        assert result.get(timeout=30) == 3
        assert [run["retries"] for run in rabbit.runs(result)] == [0, 1, 2, 3]


def test_a_retry_is_not_marked_by_the_attempt_it_came_from(rabbit):
    runs = rabbit.wait_runs(rabbit.tasks["persist"].delay_for(0, 1, 0.1), 2)
    assert [(run["attempt"], run["redelivered"]) for run in runs] == [(1, None), (1, None)]
    assert runs[1]["due"] > runs[0]["due"]


def test_it_schedules_itself_again_under_its_own_id(rabbit):
    runs = rabbit.wait_runs(rabbit.tasks["again"].delay_for(0, 3, 0), 4)
    assert [run["left"] for run in runs] == [3, 2, 1, 0]


def test_a_chord(rabbit):
    add, total = rabbit.tasks["add"], rabbit.tasks["total"]
    result = chord([add.s(1, 1), add.s(2, 2)], total.s()).delay_for(0.1)
    assert result.get(timeout=30) == 6


def test_of_ten_calls_under_one_key_the_last_one_runs(rabbit):
    note, window = rabbit.tasks["note"], {"after": 3600, "key": "window", "conflict": "debounce"}
    *others, last = [rabbit.delayq.schedule(note.s(number), **window) for number in range(10)]
    assert rabbit.delayq.run_now(last)

    assert last.get(timeout=30) == [9]
    assert len(rabbit.runs(last)) == 1
    assert {result.state for result in others} == {"REVOKED"}
    assert [run for result in others for run in rabbit.runs(result)] == []


def test_nothing_is_left(rabbit):
    def counted():
        counts = rabbit.delayq.counts()
        return counts.scheduled, counts.in_flight, counts.dead

    # A task may have run before the scanner acknowledges it.
    eventually(lambda: counted() == (0, 0, 0))

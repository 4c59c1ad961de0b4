"""Tasks wait in Redis beyond the 15 minutes of SQS, and a relay sends them when they are due."""

from datetime import timedelta

import pytest

from celery_delayq import Outcome, State
from celery_delayq.core.handover import relay
from celery_delayq.errors import MessageTooLarge
from tests.relay.house import end_leases
from tests.support.waiting import eventually

MINUTES = 20  # SQS itself delays a message for 15 at most


def later(house, *args, **options):
    """The id of a task that is due in twenty minutes."""
    return house.task.apply_async(args, delayq_after=60 * MINUTES, **options).id


def captured(house, *args, **options):
    house.app.conf.delayq_capture_eta = True
    return house.task.apply_async(args, countdown=60 * MINUTES, **options).id


@pytest.fixture(params=[later, captured], ids=["delayq_after", "countdown"])
def schedule(request):
    return request.param


def ids(house):
    return [message.id for message in house.take()]


def is_fifo(house):
    return house.queue.endswith(".fifo")


def test_a_task_due_in_twenty_minutes_waits_in_the_store_and_is_sent_when_due(
    sqs, sqs_server, schedule
):
    task_id = schedule(sqs, 42)
    sqs.relay_once()
    assert (sqs.counts(), sqs.queue in sqs_server.queues()) == ((1, 0, 0), False)

    assert sqs.delayq.run_now(task_id) is Outcome.DONE
    sqs.relay_once()

    [message] = sqs.take()
    assert (message.id, message.args) == (task_id, [42])
    assert (message.headers["eta"], sqs.counts()) == (None, (0, 0, 0))


def test_a_waiting_task_is_moved_and_cancelled(sqs, schedule):
    moved, cancelled = schedule(sqs, 1), schedule(sqs, 2)
    due = sqs.delayq.get(moved).due

    assert sqs.delayq.reschedule(moved, by=timedelta(hours=1)) is Outcome.DONE
    assert sqs.delayq.cancel(cancelled) is Outcome.DONE

    assert sqs.delayq.get(moved).due == due + timedelta(hours=1)
    sqs.delayq.run_now(moved)
    sqs.relay_once()
    assert ids(sqs) == [moved]


def test_due_tasks_of_a_group_arrive_in_due_order(sqs):
    if not is_fifo(sqs):
        pytest.skip("a standard queue promises no order")
    scheduled = sqs.due_now_many(25)
    sqs.relay_once()
    assert ids(sqs) == scheduled


def test_the_options_of_a_fifo_queue_survive_the_store(sqs, schedule):
    task_id = schedule(sqs, MessageGroupId="orders", MessageDeduplicationId=sqs.queue)
    sqs.delayq.run_now(task_id)
    sqs.relay_once()
    [message] = sqs.take()
    assert message.attributes["MessageGroupId"] == "orders"
    if is_fifo(sqs):
        assert message.attributes["MessageDeduplicationId"] == sqs.queue


def test_a_task_whose_lease_ran_out_after_sending_is_in_a_fifo_queue_once(
    sqs, redis_server, monkeypatch
):
    sqs.due_now(task_id="a")
    first = sqs.relay()
    first.steps.hand_over()
    monkeypatch.setattr(first.steps, "ack", len)  # as if it died before that

    first.batch(lambda: False)
    end_leases(redis_server.client())
    sqs.start()
    eventually(lambda: sqs.counts() == (0, 0, 0))

    assert ids(sqs) == ["a"] * (1 if is_fifo(sqs) else 2)


def test_a_task_that_is_scheduled_again_under_its_id_is_another_message(sqs):
    for _ in range(2):
        sqs.due_now(task_id="a")
        sqs.relay_once()
    assert ids(sqs) == ["a", "a"]


@pytest.fixture
def impatient(monkeypatch):
    """Two attempts, almost without a wait between them."""
    monkeypatch.setattr(relay, "MAX_REFUSALS", 2)
    monkeypatch.setattr(relay, "LONGEST_WAIT", 0.05)


def too_large(house):
    # kombu writes it in base64 twice.
    house.due_now("x" * 700_000, task_id="bad")


def group_of_another_type(house):
    house.due_now(task_id="bad", MessageGroupId=5)


@pytest.mark.parametrize(
    ("bad", "reason"), [(too_large, "1048576"), (group_of_another_type, "MessageGroupId")]
)
def test_a_message_that_sqs_refuses_is_dead_with_its_reason_and_others_pass(
    sqs, impatient, bad, reason
):
    bad(sqs)
    sqs.due_now(task_id="good")
    sqs.start()
    eventually(lambda: sqs.counts() == (0, 0, 1))
    assert ids(sqs) == ["good"]
    dead = sqs.delayq.get("bad")
    assert dead.state is State.DEAD
    assert reason in dead.reason


def test_the_limit_that_the_docs_name_keeps_messages_out_that_sqs_refuses(sqs):
    sqs.app.conf.delayq_max_message = 750_000
    task_id = sqs.due_now("x" * 550_000).id
    with pytest.raises(MessageTooLarge):
        sqs.due_now("x" * 570_000)
    sqs.relay_once()
    assert ids(sqs) == [task_id]

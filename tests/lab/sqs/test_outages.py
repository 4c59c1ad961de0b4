"""SQS is away, hangs, has enough, or fails: tasks wait, and none is lost or dead."""

import time
from functools import partial

import pytest

from celery_delayq import Outcome
from celery_delayq.core.handover import relay, scanner
from celery_delayq.errors import BrokerDown
from tests.lab.faults.proxy import Proxy
from tests.lab.sqs.answers import answering
from tests.lab.sqs.conftest import OPTIONS
from tests.support.waiting import PATIENCE, eventually

ACCOUNT = "123456789012"


@pytest.fixture
def proxy(sqs_server):
    with Proxy(sqs_server.port) as one:
        yield one


@pytest.fixture
def house_at(make_house, sqs_server, queue):
    """Make a house with SQS at another port of loopback, of which it knows the queue's address."""
    attributes = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
    sqs_server.client.create_queue(QueueName=queue, Attributes=attributes)

    def make(port, *, is_predefined=True):
        queues = {queue: {"url": f"http://127.0.0.1:{port}/{ACCOUNT}/{queue}"}}
        more = {"predefined_queues": queues} if is_predefined else {}
        house = make_house(
            sqs_server.url(port),
            task_default_queue=queue,
            broker_transport_options={**OPTIONS, **more},
        )
        house.take = partial(sqs_server.take, queue)
        return house

    return make


@pytest.fixture(params=[True, False], ids=["predefined", "found"])
def behind(request, house_at, proxy):
    """A house whose relay has sent a message through a proxy."""
    house = house_at(proxy.port, is_predefined=request.param)
    house.due_now(task_id="warm")
    house.warm = house.relay()
    house.warm.steps.hand_over()
    house.warm.batch(lambda: False)
    house.take()
    return house


def fails(house):
    house.warm.steps.hand_over()
    with pytest.raises(BrokerDown):
        house.warm.batch(lambda: False)


def is_marked(message):
    return message.headers.get("delayq_redelivered", False)


def test_tasks_wait_unmarked_while_no_connection_is_made(behind, proxy):
    proxy.refuse()
    for _ in range(10):  # more than a message may be refused
        behind.due_now()
        fails(behind)
    assert behind.counts() == (10, 0, 0)

    proxy.accept()
    behind.start()

    eventually(lambda: behind.counts() == (0, 0, 0))
    taken = behind.take()
    assert len(taken) == 10
    # The first attempt may have been on a connection that was open.
    assert sum(map(is_marked, taken)) <= 1


def test_a_message_without_an_answer_is_sent_again_and_marked(behind, proxy):
    behind.due_now(task_id="a")
    proxy.lose(b'"MessageBody"', 1)  # the request is there by then
    fails(behind)
    assert behind.delayq.cancel("a") is Outcome.UNCERTAIN

    behind.due_now(task_id="b")
    fails(behind)
    proxy.lose(b"", 0)
    behind.start()

    eventually(lambda: behind.counts() == (0, 0, 0))
    taken = [(message.id, is_marked(message)) for message in behind.take()]
    again = [] if behind.queue.endswith(".fifo") else [("b", True)]
    assert taken == [("a", False), ("b", False), *again]


def test_a_server_that_hangs_has_the_time_of_a_lease_and_no_more(
    make_house, house_at, proxy, monkeypatch
):
    monkeypatch.setattr(scanner, "PUBLISH_TIMEOUT", 0.5)
    house = house_at(proxy.port)
    house.warm = house.relay()
    house.due_now(task_id="a")
    proxy.stall()
    began = time.monotonic()
    fails(house)
    assert time.monotonic() - began < PATIENCE, "botocore's own limit is a minute"
    assert house.counts() == (1, 0, 0)

    proxy.resume()
    house.start()
    eventually(lambda: house.counts() == (0, 0, 0))
    assert {message.id for message in house.take()} == {"a"}


@pytest.mark.parametrize(
    ("status", "code", "is_uncertain"),
    [(400, "ThrottlingException", False), (503, "ServiceUnavailable", True)],
)
def test_an_error_of_the_service_is_no_refusal_of_a_message(
    house_at, sqs_server, status, code, is_uncertain
):
    with answering(status, code) as port:
        house = house_at(port)
        house.due_now(task_id="a")
        house.warm = house.relay()
        for _ in range(10):
            fails(house)
    found = house.delayq.get("a")
    assert (house.counts(), found.next_try) == ((1, 0, 0), None)
    expected = Outcome.UNCERTAIN if is_uncertain else Outcome.DONE
    assert house.delayq.cancel("a") is expected


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "AccessDenied"),
        (400, "AccessDeniedException"),
        (403, "ExpiredToken"),
        (403, "InvalidClientTokenId"),
        (403, "SignatureDoesNotMatch"),
        (400, "UnrecognizedClientException"),
        (400, "KMS.AccessDeniedException"),
    ],
)
def test_a_task_waits_for_a_right_however_often_it_is_denied(
    house_at, status, code, caplog, monkeypatch
):
    monkeypatch.setattr(relay, "MAX_REFUSALS", 1)
    with answering(status, code) as port:
        house = house_at(port)
        house.due_now(task_id="a")
        house.relay_once()
    assert house.counts() == (1, 0, 0)
    assert house.delayq.get("a").next_try
    assert "task a: attempt 1 was refused, next in 2 s" in caplog.text
    assert code in caplog.text

"""The link to the store breaks between two steps of a relay; the broker works all the time."""

import time

import pytest
import redis
from kombu import Queue

from celery_delayq.core import clock
from celery_delayq.core.store.scripts import load
from celery_delayq.errors import StoreUnavailable
from tests.lab.faults.proxy import Proxy
from tests.relay.house import end_leases, new_name
from tests.support.network import CUT
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.libraries


@pytest.fixture
def store_proxy(redis_server, redis_url):
    with Proxy(redis_server.port) as one:
        yield one


@pytest.fixture
def house(make_house, rabbitmq_server, redis_server, store_proxy):
    """A house whose store is behind a proxy; its scripts are loaded, its scanner runs."""
    made = make_house(
        rabbitmq_server.url,
        delayq_url=f"redis://127.0.0.1:{store_proxy.port}/0",
        delayq_safety_interval=0.3,
        task_publish_retry=False,
        task_default_queue=new_name(),
    )
    made.declare(Queue(made.queue))
    made.start()
    made.due_now(task_id="warm")
    made.take()
    eventually(lambda: made.counts() == (0, 0, 0))
    with redis_server.client() as made.client:
        yield made


def settled(house):
    return eventually(lambda: house.counts() == (0, 0, 0))


def redelivered(message):
    return message.headers.get("delayq_redelivered", False)


def test_a_lost_answer_to_an_ack_repeats_nothing(house, store_proxy):
    store_proxy.cut_after = load()["ack"].sha.encode()
    house.due_now(task_id="a")
    [message] = house.take()
    assert not redelivered(message)
    settled(house)
    house.due_now(task_id="b")
    assert house.take()[0].headers["id"] == "b"
    assert store_proxy.cuts == 1
    assert house.left() == 0


def test_a_lost_answer_to_a_claim_loses_nothing(house, store_proxy):
    """No scanner knows of the claim; its lease runs out, and the task gets a needless mark."""
    store_proxy.cut_after = load()["claim"].sha.encode()
    house.due_now(task_id="a")
    eventually(lambda: house.counts() == (0, 1, 0))
    end_leases(house.client)
    [message] = house.take()
    assert redelivered(message)
    assert message.headers["delayq_attempt"] == 2
    settled(house)
    assert store_proxy.cuts == 1
    assert house.left() == 0


def test_a_store_that_is_away_for_the_ack_makes_a_marked_copy(
    make_house, rabbitmq_server, between, monkeypatch
):
    def monotonic():
        """The time of that call is over once it was cut; all others have time."""
        return time.monotonic() + 2 * PATIENCE * (between.asked["ack"] > 0)

    house = make_house(rabbitmq_server.url, delayq_url=between.url())
    house.declare(Queue(house.queue))
    house.due_now(task_id="a")
    between.before("ack", lambda: CUT)
    with monkeypatch.context() as patch:
        patch.setattr(clock, "monotonic", monotonic)
        with pytest.raises(StoreUnavailable, match=r"^ack failed: "):
            house.relay().batch(lambda: False)
    assert between.asked["ack"] >= 1
    assert house.counts() == (0, 1, 0)
    between.before("ack", lambda: None)
    with redis.Redis.from_url(between.url()) as client:
        end_leases(client)
    house.start()
    first, second = house.take(count=2)
    assert [redelivered(first), redelivered(second)] == [False, True]
    assert [one.headers["delayq_attempt"] for one in (first, second)] == [1, 2]
    settled(house)
    assert house.left() == 0

"""The broker goes down and comes back: no task is lost, and no attempt is counted."""

import logging
import re

import pytest
from kombu import Connection, Queue

from celery_delayq.core.handover.relay import Link
from celery_delayq.errors import BrokerDown
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.core, pytest.mark.libraries]


def attempts(messages):
    """The attempt and the mark of a possible copy, in the headers of these messages."""
    return {
        (message.headers["delayq_attempt"], message.headers.get("delayq_redelivered"))
        for message in messages
    }


def test_nothing_is_claimed_while_it_is_down(make_house, between):
    house = make_house("amqp://127.0.0.1:1//", delayq_url=between.url())
    house.due_now()
    with pytest.raises(BrokerDown):
        house.relay().batch(lambda: False)
    assert between.asked["schedule"] == 1
    assert between.asked["claim"] == 0
    assert house.counts() == (1, 0, 0)


def test_a_connection_idle_for_long_is_not_trusted(behind, proxy, limits):
    """A link may be dead without an error; so after some seconds of silence a new one is opened."""
    limits(broker_idle_s=0.0)
    relay = behind.relay()
    behind.due_now(task_id="a")
    relay.batch(lambda: False)
    proxy.deaden()
    behind.due_now(task_id="b")
    relay.batch(lambda: False)
    messages = behind.take(count=2)
    assert [message.headers["id"] for message in messages] == ["a", "b"]
    assert attempts(messages) == {(1, None)}


def test_a_connection_lost_in_the_midst_of_a_batch_loses_no_task(behind, proxy):
    # So the time-out for missing confirms is longer than the test waits.
    behind.app.conf.delayq_lease = 10 * PATIENCE
    for number in range(200):
        behind.due_now("x" * 2000, task_id=f"{number:03}")
    proxy.cut_after = b"150"
    behind.start()
    eventually(lambda: behind.counts() == (0, 0, 0))
    assert proxy.cuts == 1
    messages = behind.take(count=behind.left())
    assert {message.headers["id"] for message in messages} == {f"{n:03}" for n in range(200)}
    once = set()
    # The broker may read the last pieces of the lost connection after those of the next one.
    for message in sorted(messages, key=lambda one: one.headers["delayq_attempt"]):
        if message.headers["id"] in once:
            assert message.headers["delayq_redelivered"] is True, "a copy without a mark"
        once.add(message.headers["id"])


def test_a_restart_of_the_broker_is_survived(make_house, rabbitmq_server, caplog):
    caplog.set_level(logging.INFO)
    house = make_house(rabbitmq_server.url)
    house.declare(Queue(house.queue))
    house.start()
    house.due_now(task_id="before")
    house.take()
    # The message arrives before the broker confirms it; only the confirm shows that the link works.
    eventually(lambda: house.counts() == (0, 0, 0))
    rabbitmq_server.kill()
    try:
        house.due_now(task_id="meanwhile")
        url = f"amqp://127.0.0.1:{rabbitmq_server.port}//"
        eventually(lambda: f"lost the broker {url} of broker_url (" in caplog.text, 30)
    finally:
        rabbitmq_server.start()
    house.due_now(task_id="after")
    # Messages taken off the queue before the node died may be there again.
    arrived = set()
    eventually(lambda: arrived.update(house.ids()) or {"meanwhile", "after"} <= arrived, 60)
    eventually(lambda: house.counts() == (0, 0, 0))
    # Overdue entries may be leased when it comes back; scanner/test_loop.py counts them.
    eventually(lambda: re.search(rf"broker {url} is back after \d+ s", caplog.text))


def test_the_third_of_three_hosts_is_found(make_house, rabbitmq_server):
    dead = [f"amqp://127.0.0.1:{free_port()}" for _ in range(2)]
    house = make_house(";".join([*dead, rabbitmq_server.url]), where=rabbitmq_server.url)
    house.due_now(task_id="a")
    house.relay_once()
    assert house.ids() == ["a"]


# A link that is closed.


@pytest.fixture
def made():
    """The connections that a link made; references keep the garbage collector from closing them."""
    return []


def link_to(url, made):
    class Kept(Connection):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    return Link(lambda: Kept(url), timeout=PATIENCE)


def test_a_link_that_is_closed_has_let_go_of_redis(start_redis, made):
    server = start_redis()
    client = server.client()
    before = client.info("clients")["connected_clients"]
    link = link_to(server.url(), made)
    link.prepare()
    assert client.info("clients")["connected_clients"] > before

    link.close()

    eventually(lambda: client.info("clients")["connected_clients"] == before)


def test_a_link_that_is_closed_has_let_go_of_rabbitmq(rabbitmq_server, made):
    link = link_to(rabbitmq_server.url, made)
    link.prepare()
    transports = [one.connection.transport for one in made if one.connected]
    assert [one.sock.fileno() >= 0 for one in transports] == [True]

    link.close()

    assert [one.sock for one in transports] == [None]

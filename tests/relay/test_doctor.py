"""The doctor's findings about RabbitMQ: whether it confirms, and the consumers of queues."""

import pytest
from amqp import Channel
from kombu import Connection, Consumer, Exchange, Queue

from celery_delayq.contrib.care import access
from celery_delayq.core import clock
from celery_delayq.core.servers.risks import Line
from tests.relay.house import new_name
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.libraries


@pytest.fixture
def look(make_house, rabbitmq_server, limits):
    """The doctor's findings about an app with these queues; a busy broker has time to answer."""
    limits(doctor_connect_s=PATIENCE, doctor_answer_s=PATIENCE)

    def look(*queues, url=rabbitmq_server.url, **conf):
        house = make_house(url, rabbitmq_server.url, task_queues=queues, **conf)
        return [*access.broker(house.delayq.services)]

    return look


@pytest.fixture
def declared(rabbitmq_server):
    """Declare queues that are deleted after the test, and consume from some."""
    with Connection(rabbitmq_server.url) as connection:
        channel = connection.channel()

        def declare(*queues, listened=()):
            for queue in queues:
                queue(channel).declare()
            for queue in listened:
                Consumer(channel, [queue], on_message=print).consume()

        yield declare


def queue(**options):
    name = new_name()
    return Queue(name, Exchange(name), routing_key=name, **options)


def test_a_broker_is_reached_and_confirms(look, rabbitmq_server, declared):
    heard = queue()
    declared(heard, listened=[heard])

    where = f"amqp, virtual host / on 127.0.0.1:{rabbitmq_server.port}"
    assert look(heard) == [
        Line("broker", "ok", f"{where} is up, and it confirms messages"),
        Line("queues", "ok", f"{heard.name}: a worker listens to each"),
    ]


def test_queues_that_nobody_listens_to_are_warned_of_and_none_is_made(
    look, declared, rabbitmq_server
):
    heard, deaf, absent = queue(), queue(), queue()
    declared(heard, deaf, listened=[heard])

    _, *found = look(heard, deaf, absent)

    assert found == [
        Line(
            "queues",
            "warning",
            f"no worker listens to {deaf.name}",
            "start a worker with -Q, or remove them from the app",
        ),
        Line("queues", "ok", f"{absent.name}: created by the first message"),
    ]
    assert absent.name not in rabbitmq_server.control("list_queues", "name")


def test_the_doctor_does_not_call_another_connection_s_exclusive_queue_absent(look, declared):
    heard, locked, absent = queue(), queue(exclusive=True), queue()
    declared(heard, locked, listened=[heard])

    _, *found = look(heard, locked, absent)

    assert [(line.level, line.found.partition(": ")[0]) for line in found] == [
        ("warning", f"{locked.name} cannot be checked"),
        ("ok", absent.name),
    ]
    assert "RESOURCE_LOCKED" in found[0].found
    assert found[0].advice


def test_a_broker_that_accepts_nothing_is_an_error(look, rabbitmq_server, monkeypatch):
    # Connecting may take long; only the wait for a missing confirm is short.
    publish, published = Channel.basic_publish, []

    def noted(channel, *message, **options):
        published.append(message)
        return publish(channel, *message, **options)

    monkeypatch.setattr(Channel, "basic_publish", noted)
    now = clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: now() + bool(published) * (PATIENCE - 0.5))
    rabbitmq_server.control("set_vm_memory_high_watermark", "0")
    try:
        [line] = look(queue())
    finally:
        rabbitmq_server.control("set_vm_memory_high_watermark", "0.4")

    assert (line.name, line.level) == ("broker", "error")
    assert " accepts no messages, so due tasks wait: it confirms nothing: " in line.found


def test_a_wrong_password_is_an_error_that_does_not_show_it(look, rabbitmq_server):
    [line] = look(queue(), url=f"amqp://guest:hunter2@127.0.0.1:{rabbitmq_server.port}//")

    assert line.level == "error"
    assert "hunter2" not in line.found

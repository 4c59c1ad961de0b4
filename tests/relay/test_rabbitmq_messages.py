"""Messages on RabbitMQ are those of a plain `apply_async`, plus this package's headers."""

from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pytest
from celery.utils import uuid
from kombu import Exchange, Queue

from celery_delayq import Outcome
from celery_delayq.core import clock
from celery_delayq.errors import InvalidOption
from tests.app.support import OWN_HEADERS
from tests.relay.house import LONG_AGO, call_of, new_name

pytestmark = pytest.mark.libraries

# `message_id` is ours: a relayed message has the id of its delivery there.
OF_ITS_OWN = ("application_headers", "expiration", "message_id")


def without(names, values):
    return {name: value for name, value in values.items() if name not in names}


def comparable(message):
    """A message without this package's headers, and without values that depend on the time."""
    body = message.body
    return (
        body.encode() if isinstance(body, str) else bytes(body),
        without((*OWN_HEADERS, "delayq_expires_ms"), message.headers),
        without(OF_ITS_OWN, message.properties),
        message.content_type,
        message.content_encoding,
    )


def both(house, args=(), kwargs=None, **options):
    """Send the same call plainly and delayed; check that both arrive alike."""
    sent = {"args": args, "kwargs": kwargs, "task_id": uuid(), **options}
    house.task.apply_async(**sent)
    [plain] = house.take()
    house.task.apply_async(**sent, delayq_at=LONG_AGO)
    house.relay_once()
    [held] = house.take()
    assert comparable(held) == comparable(plain)
    assert plain.properties["message_id"]
    assert held.headers["delayq_hand_over"]
    assert house.counts() == (0, 0, 0)
    return held


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": 5},
        {"headers": {"tenant": "a", "deep": {"list": [1, 2.5, None, True]}}},
        {"serializer": "pickle"},
        {"compression": "zlib"},
        {"compression": "bzip2", "serializer": "pickle"},
        {"time_limit": 30, "soft_time_limit": 20},
        {"ignore_result": True},
        {"stamped_headers": ["wave"], "wave": "3"},
        {"delivery_mode": 1},
        {"reply_to": "answers", "group_id": "g"},
        {"timestamp": 1893456000, "type": "t", "app_id": "a", "correlation_id": "own"},
        {"timeout": 60, "mandatory": True, "timezone": timezone.utc},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_an_option_arrives_as_celery_sends_it(rabbit, options):
    both(rabbit, args=(1, "ä", 2**60), kwargs={"x": [1.5, None]}, **options)


def test_a_body_of_megabytes_arrives_whole(rabbit):
    rabbit.delayq.app.conf.delayq_max_message = 50_000_000
    message = both(rabbit, args=("ö" * 3_000_000,))
    assert len(message.body) > 5_000_000


def test_an_edited_task_arrives_with_its_new_arguments_priority_and_time_to_live(rabbit):
    rabbit.due_now(1, task_id="a", priority=1)
    new = {"args": ["ü"], "kwargs": {"y": 2}, "priority": 5, "expires": in_ten_minutes()}
    assert rabbit.delayq.edit("a", **new) is Outcome.DONE
    rabbit.relay_once()
    [message] = rabbit.take()
    assert call_of(message) == (["ü"], {"y": 2})
    assert message.properties["priority"] == 5
    assert message.headers["argsrepr"] == "['ü']"
    assert 570_000 < int(message.properties["expiration"]) <= 600_000


# Expiry.


def in_ten_minutes():
    return datetime.now(timezone.utc) + timedelta(minutes=10)


@pytest.mark.parametrize("hours", [0, 1, -1])
def test_expiration_counts_from_the_hand_over_by_redis_s_clock(rabbit, monkeypatch, hours):
    """The clock of the scanner's machine may be wrong by hours."""
    expires = in_ten_minutes()
    rabbit.due_now(expires=expires)
    wrong = clock.utc_now() + timedelta(hours=hours)
    monkeypatch.setattr(clock, "utc_now", lambda: wrong)
    rabbit.relay_once()
    [message] = rabbit.take()
    left = expires - datetime.now(timezone.utc)
    assert left // timedelta(milliseconds=1) <= int(message.properties["expiration"]) <= 600_000
    assert message.headers["expires"] == expires.isoformat()


def test_an_expiration_of_the_call_s_own_counts_from_the_delivery(rabbit):
    assert rabbit.relayed(expiration=600).properties["expiration"] == "600000"


def test_an_expiry_beyond_what_rabbitmq_can_count_is_the_worker_s_alone(rabbit):
    expires = datetime(2100, 1, 1, tzinfo=timezone.utc)
    message = rabbit.relayed(expires=expires)
    assert "expiration" not in message.properties
    assert message.headers["expires"] == expires.isoformat()


def test_a_task_that_expired_while_it_waited_is_not_refused(rabbit):
    rabbit.due_now(expires=datetime.now(timezone.utc) - timedelta(seconds=5))
    rabbit.relay_once()
    assert rabbit.counts() == (0, 0, 0)


# Options that AMQP cannot carry.

UNKNOWN_TO_AMQP = {
    "headers": {"tenant": uuid4()},
    "app_id": 7,
    "timestamp": datetime(2030, 1, 1, tzinfo=timezone.utc),
}


@pytest.mark.parametrize("name", UNKNOWN_TO_AMQP)
def test_the_call_refuses_an_option_that_amqp_cannot_carry_as_celery_does(rabbit, name):
    given = {name: UNKNOWN_TO_AMQP[name]}
    with pytest.raises(Exception, match=r"not handled|no len|not an integer"):
        rabbit.task.apply_async(**given)

    with pytest.raises(InvalidOption, match=f"^{name} is .* what AMQP can carry"):
        rabbit.due_now(**given)
    assert rabbit.counts() == (0, 0, 0)


# Queues and order.


def test_a_declared_queue_is_declared_as_the_app_says(make_house, rabbitmq_server):
    name = new_name()
    as_said = {
        "durable": False,
        "queue_arguments": {"x-max-priority": 5, "x-message-ttl": 60_000},
    }
    queue = Queue(name, Exchange(name), routing_key=name, **as_said)
    house = make_house(rabbitmq_server.url, task_queues=[queue], task_default_queue=name)
    house.due_now(task_id="a")
    house.relay_once()
    # Declared otherwise, this would be refused by the broker.
    house.declare(Queue(name, **as_said))
    assert house.ids(name) == ["a"]

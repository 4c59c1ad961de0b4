"""The identity of a message, the same at each delivery."""

import pytest
from celery.app.task import Context
from kombu import Message

from celery_delayq.core.message.headers import give_identity, identity_of, may_come_again

pytestmark = pytest.mark.libraries

HAND_OVER = {"delayq_hand_over": "1.1"}


def from_sqs(times):
    """The properties that kombu adds to an SQS message; its tag is the receipt of the delivery."""
    facts = {"ApproximateReceiveCount": str(times)}
    return {"sqs_message": {"MessageId": "s", "Attributes": facts}}


@pytest.mark.parametrize(
    ("headers", "properties", "own"),
    [
        (HAND_OVER, {"delivery_tag": "t", "message_id": "m"}, "1.1"),
        ({}, {"delivery_tag": "t", "message_id": "m"}, "t"),
        ({}, {"message_id": "m"}, "m"),
        ({}, {"delivery_tag": "t", "delivery_info": from_sqs(1)}, "s"),
    ],
)
def test_the_hand_over_names_it_or_the_tag_or_the_message_id(headers, properties, own):
    assert identity_of("a", headers, properties) == ("a", own)
    assert identity_of("a", Context(headers), properties) == ("a", own)


@pytest.mark.parametrize(
    ("task_id", "properties"),
    [
        ("a", {}),
        ("a", {"delivery_tag": 7}),
        ("a", {"message_id": ["m"]}),
        (None, {"message_id": "m"}),
    ],
)
def test_a_message_that_no_property_identifies_has_no_identity(task_id, properties):
    assert identity_of(task_id, {}, properties) is None


def test_each_message_is_given_another_one_and_the_users_own_is_kept():
    first, second, own = {}, {}, {"message_id": "m"}
    for properties in (first, second, own):
        give_identity(properties)
    assert first["message_id"] != second["message_id"]
    assert own == {"message_id": "m"}


@pytest.mark.parametrize(
    ("delivery_info", "headers", "again"),
    [
        ({"redelivered": True}, {}, True),
        ({"redelivered": False}, {"delayq_redelivered": True}, True),
        ({"redelivered": False}, {}, False),
        (None, {}, False),
        (from_sqs(1), {}, False),
        (from_sqs(2), {}, True),
        # As the oldest kombu receives it without a hub.
        ({"sqs_message": {"MessageId": "s"}}, {}, False),
    ],
)
def test_the_broker_or_the_relay_says_that_it_may_have_come_before(delivery_info, headers, again):
    message = Message(delivery_info=delivery_info, headers=headers)
    message.delivery_info = delivery_info
    assert may_come_again(message) is again

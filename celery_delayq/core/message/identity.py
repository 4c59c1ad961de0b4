"""Identifies a message, in every worker and at every delivery.

A task's id is not enough: a retry has the same id, and a caller may use its own id again.
"""

from __future__ import annotations

import uuid
from typing import Any

from .headers import HAND_OVER_HEADER, REDELIVERED_HEADER

#: A standard property of AMQP, the only one that names a message for good.
MESSAGE_ID = "message_id"


def identity_of(task_id: Any, headers: Any, properties: Any) -> tuple[str, str] | None:
    """Return texts that no other message has, the task's id first; ``None`` if there are none.

    Args:
        task_id: The task's id.
        headers: The message's headers, or its task's request, which contains them.
        properties: The message's properties.
    """
    # All copies of a relayed message name the same delivery. kombu gives each message a tag, except
    # on AMQP; a message without either was sent by a process without a DelayQ.
    own = headers.get(HAND_OVER_HEADER) or tag_of(properties) or properties.get(MESSAGE_ID)
    # Any program may have written these.
    return (task_id, own) if isinstance(task_id, str) and isinstance(own, str) else None


def tag_of(properties: Any) -> Any:
    """Return kombu's tag of a message, the same at each delivery; ``None`` on AMQP."""
    # On SQS, kombu's tag is the receipt, and each delivery has another.
    received = _received_from_sqs(properties.get("delivery_info"))
    return received["MessageId"] if received else properties.get("delivery_tag")


def was_redelivered(info: Any) -> bool:
    """Whether the broker says that it has delivered a message before.

    Args:
        info: The message's ``delivery_info``.
    """
    # Without a hub, the oldest kombu does not ask SQS for this count.
    facts = (_received_from_sqs(info) or {}).get("Attributes", {})
    times = int(facts.get("ApproximateReceiveCount", 1))
    return times > 1 or bool((info or {}).get("redelivered"))


def may_come_again(message: Any) -> bool:
    """Whether a received message may have been delivered before."""
    marked = message.headers.get(REDELIVERED_HEADER)
    return bool(marked) or was_redelivered(message.delivery_info)


def _received_from_sqs(info: Any) -> Any:
    """Return SQS's own data of a message that it delivered."""
    return (info or {}).get("sqs_message")


def give_identity(properties: dict[str, Any]) -> None:
    """Add a name to the properties of a message for AMQP."""
    properties.setdefault(MESSAGE_ID, str(uuid.uuid4()))

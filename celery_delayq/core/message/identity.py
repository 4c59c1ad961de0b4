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
    own = (
        headers.get(HAND_OVER_HEADER)
        or properties.get("delivery_tag")
        or properties.get(MESSAGE_ID)
    )
    # Any program may have written these.
    return (task_id, own) if isinstance(task_id, str) and isinstance(own, str) else None


def may_come_again(message: Any) -> bool:
    """Whether a received message may have been delivered before."""
    info = message.delivery_info or {}
    return bool(info.get("redelivered") or message.headers.get(REDELIVERED_HEADER))


def give_identity(properties: dict[str, Any]) -> None:
    """Add a name to the properties of a message for AMQP."""
    properties.setdefault(MESSAGE_ID, str(uuid.uuid4()))

"""Which message it is, whichever worker is given it, and however often.

A task's id does not tell: a retry has the same one, and an id of one's own may be sent anew.
"""

from __future__ import annotations

import uuid
from typing import Any

from .headers import HAND_OVER_HEADER, REDELIVERED_HEADER

#: A standard property of AMQP, which has no other name for a message that lasts.
MESSAGE_ID = "message_id"


def identity_of(task_id: Any, headers: Any, properties: Any) -> tuple[str, str] | None:
    """Texts that no other message has, the task's id first; ``None`` where nothing tells.

    Args:
        task_id: The task's id.
        headers: The message's headers, or the request of its task, which has them.
        properties: The message's properties.
    """
    # All copies of what was relayed have one hand-over. kombu gives each message that is not AMQP's
    # a tag; what came without either was sent by a process without a DelayQ.
    own = (
        headers.get(HAND_OVER_HEADER)
        or properties.get("delivery_tag")
        or properties.get(MESSAGE_ID)
    )
    # Anybody may have written these.
    return (task_id, own) if isinstance(task_id, str) and isinstance(own, str) else None


def may_come_again(message: Any) -> bool:
    """Whether a message that is received may have been delivered before."""
    info = message.delivery_info or {}
    return bool(info.get("redelivered") or message.headers.get(REDELIVERED_HEADER))


def give_identity(properties: dict[str, Any]) -> None:
    """Let the properties of a message that goes to AMQP name it."""
    properties.setdefault(MESSAGE_ID, str(uuid.uuid4()))

"""What AMQP can carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidOption

_HEADERS = "application_headers"


def check_encodable(message: Mapping[str, Any]) -> None:
    """Refuse a message that AMQP cannot carry, as publishing it would.

    Raises:
        InvalidOption: a property or a header has no form in AMQP.
    """
    # Only apps that publish by AMQP come here, so py-amqp is there.
    from amqp.basic_message import Message
    from amqp.serialization import dumps

    values = {**message["properties"], _HEADERS: message["headers"]}
    for name, kind in Message.PROPERTIES:
        value = values.get(name)
        if value is not None:
            try:
                dumps(kind, [value])
            except Exception as error:
                option = "headers" if name == _HEADERS else name
                raise InvalidOption(option, value, f"what AMQP can carry ({error})") from None

"""The body of a message that waits, decoded as far as the app accepts it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kombu import serialization
from kombu.compression import decompress
from kombu.transport import virtual
from kombu.utils.json import loads

#: Serializers that make data only. What others make may run somebody's code when it is read.
DATA = {"json", "msgpack", "yaml"}


def body_of(envelope: dict[str, Any], accept: Any) -> Any:
    """The decoded body of a message, or ``None`` if it may not, or cannot, be decoded."""
    try:
        encoding = envelope["properties"].get("body_encoding")
        body = envelope["body"]
        if encoding:
            body = virtual.Channel.codecs[encoding].decode(body)
        compression = envelope["headers"].get("compression")
        if compression:
            body = decompress(body, compression)
        return serialization.loads(
            body,
            envelope["content-type"],
            envelope["content-encoding"],
            accept=serialization.prepare_accept_content(accept),
        )
    except Exception:
        # Refused, damaged, compressed by what is not installed: hidden, like what may not be read.
        return None


def data_of(envelope: dict[str, Any], accept: Any) -> Any:
    """As :func:`body_of`, for what only wants to show it: ``None`` of a pickle, accepted or not."""
    with suppress(Exception):  # an envelope of somebody else's may lack it, or have another type
        if serializer_of(envelope["content-type"]) in DATA:
            return body_of(envelope, accept)
    return None


def serializer_of(content_type: str) -> str:
    """The name of the serializer that makes bodies of a type.

    Raises:
        KeyError: there is none.
    """
    name: str = serialization.registry.type_to_name[content_type]
    return name


def message_body(message: bytes, accept: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Headers, properties and decoded body of a message that waits."""
    envelope = loads(message)
    return envelope["headers"], envelope["properties"], body_of(envelope, accept)

"""Decodes the body of a waiting message, if the app accepts its content type."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kombu import serialization
from kombu.compression import decompress
from kombu.transport import virtual
from kombu.utils.json import loads

#: Serializers that write only data. Reading the output of another may run foreign code.
DATA = {"json", "msgpack", "yaml"}


def body_of(envelope: dict[str, Any], accept: Any) -> Any:
    """Return the decoded body of a message; ``None`` if it may not or cannot be decoded."""
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
        # Refused, damaged, or compressed by a method that is not installed: treated as not allowed.
        return None


def data_of(envelope: dict[str, Any], accept: Any) -> Any:
    """As :func:`body_of`, but only to show it: ``None`` for a pickle, even if accepted."""
    with suppress(Exception):  # another program's message may lack it, or have another type
        if serializer_of(envelope["content-type"]) in DATA:
            return body_of(envelope, accept)
    return None


def serializer_of(content_type: str) -> str:
    """Return the name of the serializer for a content type.

    Raises:
        KeyError: none has it.
    """
    name: str = serialization.registry.type_to_name[content_type]
    return name


def is_serializer(name: object) -> bool:
    """Return whether a serializer has this name."""
    return name in serialization.registry.name_to_type


def message_body(message: bytes, accept: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Headers, properties and decoded body of a waiting message."""
    envelope = loads(message)
    return envelope["headers"], envelope["properties"], body_of(envelope, accept)

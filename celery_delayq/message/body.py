"""The body of a message that waits, decoded as far as the app accepts it."""

from __future__ import annotations

from typing import Any

from kombu import serialization
from kombu.compression import decompress
from kombu.transport import virtual
from kombu.utils.json import loads


def body_of(envelope: dict[str, Any], accept: Any) -> Any:
    """The decoded body of a message, or ``None`` if it may not, or cannot, be decoded."""
    encoding = envelope["properties"].get("body_encoding")
    body = envelope["body"]
    try:
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


def message_body(message: bytes, accept: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Headers, properties and decoded body of a message that waits."""
    envelope = loads(message)
    return envelope["headers"], envelope["properties"], body_of(envelope, accept)

"""The body of a message that waits, decoded as far as the app accepts it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from kombu import serialization
from kombu.transport import virtual
from kombu.utils.json import loads

#: Serializers that make data only. What others make may run somebody's code when it is read.
DATA = {"json", "msgpack", "yaml"}
LARGEST = 32_000_000  # bytes that a body may have when it is decompressed

Inflate = Callable[[bytes, int], bytes]


def body_of(envelope: dict[str, Any], accept: Any) -> Any:
    """The decoded body of a message, or ``None`` if it may not, or cannot, be decoded."""
    try:
        encoding = envelope["properties"].get("body_encoding")
        body = envelope["body"]
        if encoding:
            body = virtual.Channel.codecs[encoding].decode(body)
        compression = envelope["headers"].get("compression")
        if compression:
            body = _inflated(body, compression)
        return serialization.loads(
            body,
            envelope["content-type"],
            envelope["content-encoding"],
            accept=serialization.prepare_accept_content(accept),
        )
    except Exception:
        # Refused, damaged, too large, compressed by what is not installed: hidden, like what may
        # not be read.
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


def _inflated(body: bytes, compression: str) -> bytes:
    """A body decompressed, but not without end: a few bytes can stand for gigabytes.

    Raises:
        ValueError: it has more than :data:`LARGEST` bytes.
    """
    text = _INFLATE[compression](body, LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return text


# The modules are those that kombu takes. A Python may have been built without any of them.


def _with(module: str, decompressor: str) -> Inflate:
    def inflate(body: bytes, most: int) -> bytes:
        text: bytes = getattr(import_module(module), decompressor)().decompress(body, most)
        return text

    return inflate


def _brotli(body: bytes, most: int) -> bytes:
    # Versions before 1.2 know no limit, and then it is hidden.
    decompressor = import_module("brotli").Decompressor()
    text: bytes = decompressor.process(body, output_buffer_limit=most)
    return text


def _zstd(body: bytes, most: int) -> bytes:
    for module in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return _with(module, "ZstdDecompressor")(body, most)
    text: bytes = import_module("zstandard").ZstdDecompressor().stream_reader(body).read(most)
    return text


# By what kombu writes into a message. What another codec made is not looked into, as there is no
# telling how large it is.
_INFLATE: dict[str, Inflate] = {
    "application/x-gzip": _with("zlib", "decompressobj"),
    "application/x-bz2": _with("bz2", "BZ2Decompressor"),
    "application/x-lzma": _with("lzma", "LZMADecompressor"),
    "application/x-brotli": _brotli,
    "application/zstd": _zstd,
}

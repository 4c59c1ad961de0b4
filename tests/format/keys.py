"""All keys of a Redis as JSON, and back: their types and raw contents."""

import base64
from typing import Any

import redis

Frozen = dict[str, dict[str, Any]]


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def raw(text: str) -> bytes:
    return base64.b64decode(text)


def read(client: redis.Redis) -> Frozen:
    """Every key, in the order of their names."""
    return {key.decode(): _read(client, key) for key in sorted(client.keys("*"))}


def _read(client: redis.Redis, key: bytes) -> dict[str, Any]:
    kind = client.type(key).decode()
    if kind == "hash":
        fields = sorted(client.hgetall(key).items())
        return {"hash": [[text(field), text(value)] for field, value in fields]}
    if kind == "zset":
        members = client.zrange(key, 0, -1, withscores=True)
        return {"zset": [[text(member), score] for member, score in members]}
    if kind in ("list", "set"):
        members = client.lrange(key, 0, -1) if kind == "list" else sorted(client.smembers(key))
        return {kind: [text(member) for member in members]}
    return {"string": text(client.get(key))}


def write(client: redis.Redis, frozen: Frozen) -> None:
    """Put all of it into a Redis."""
    for key, content in frozen.items():
        ((kind, value),) = content.items()
        if kind == "hash":
            client.hset(key, mapping={raw(field): raw(one) for field, one in value})
        elif kind == "zset":
            client.zadd(key, {raw(member): score for member, score in value})
        elif kind == "list":
            client.rpush(key, *map(raw, value))
        elif kind == "set":
            client.sadd(key, *map(raw, value))
        else:
            client.set(key, raw(value))

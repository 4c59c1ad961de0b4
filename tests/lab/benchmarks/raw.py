"""The raw limit: the barest script and pipeline that could do the same work.

No format, no trace, no heartbeat, no destination, no failure: ids in a ZSET, messages in a
HASH, and one list. No scanner can be faster.
"""

import re
import uuid
from collections.abc import Iterator

import redis
from celery import Celery

from tests.lab.benchmarks.apps import QUEUE

DUE, MESSAGES, LIST = "raw:due", "raw:messages", "raw:list"
BATCH = 200

MOVE = """
local time = redis.call('TIME')
local now = string.format('%.0f', math.floor(time[1] * 1000 + time[2] / 1000))
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #ids == 0 then return 0 end
redis.call('LPUSH', KEYS[3], unpack(redis.call('HMGET', KEYS[2], unpack(ids))))
redis.call('HDEL', KEYS[2], unpack(ids))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
return #ids
"""


def move_all(client: redis.Redis) -> None:
    """Move all due entries, batch after batch."""
    move = client.register_script(MOVE)
    while move(keys=[DUE, MESSAGES, LIST], args=[BATCH]):
        pass


def message_of(app: Celery, client: redis.Redis) -> tuple[bytes, bytes]:
    """The message that Celery itself pushes for the no-op task, and the id in it."""
    result = app.noop.apply_async((1, 2), queue="raw:sample")
    message = client.rpop("raw:sample")
    return message, result.id.encode()


def fill(client: redis.Redis, app: Celery, due_ms: list[int]) -> None:
    """One id and one message for each due time, in that order."""
    message, old = message_of(app, client)
    for start in range(0, len(due_ms), 1000):
        pipe = client.pipeline(transaction=False)
        ids = [str(uuid.uuid4()) for _ in due_ms[start : start + 1000]]
        pipe.zadd(DUE, dict(zip(ids, due_ms[start : start + 1000], strict=True)))
        pipe.hset(MESSAGES, mapping={each: message.replace(old, each.encode()) for each in ids})
        pipe.execute()


def ids_in(client: redis.Redis, key: str = QUEUE) -> Iterator[str]:
    """The task ids of all messages in a list."""
    for start in range(0, client.llen(key), 2000):
        for message in client.lrange(key, start, start + 1999):
            yield re.search(rb'"id": "([^"]+)"', message)[1].decode()


def delivery_tag(message: bytes) -> bytes:
    """The tag that kombu gave a message, by which it knows it among those not acknowledged."""
    return re.search(rb'"delivery_tag": "([^"]+)"', message)[1]

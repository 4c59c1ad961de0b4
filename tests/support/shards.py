"""The number of shards in the suite's stores, and the shard of an entry.

DELAYQ_TEST_SHARDS  how many; 1 by default
"""

import os

import pytest

from celery_delayq.core.store import Keys
from celery_delayq.core.store.keys import shard_of
from celery_delayq.core.store.record import FORM

SHARDS = int(os.environ.get("DELAYQ_TEST_SHARDS", "1"))

with_one_shard = pytest.mark.skipif(
    SHARDS > 1, reason="two shards have no order, and templates are each one's"
)


def keys_of(task_id: str) -> Keys:
    """The keys of an id's own shard, under the default prefix."""
    return Keys("delayq", shard_of(task_id, SHARDS), SHARDS)


def each(name: str) -> list[str]:
    """A key by its name, in each shard."""
    return [Keys("delayq", shard, SHARDS)[name] for shard in range(SHARDS)]


def total(count, name: str) -> int:
    """The sum over all shards of ``redis.zcard``, or of another count, for a key."""
    return sum(map(count, each(name)))


def put_message(redis, task_id: str, message: bytes) -> None:
    """Replace a waiting task's message by these bytes, which no program of this package wrote.

    The store adds the due time and two closing braces.
    """
    records = keys_of(task_id)["records"]
    record = redis.hget(records, task_id)
    header_end = record.index(b":") + 1
    header_end += int(record[2 : header_end - 1])
    redis.hset(records, task_id, record[: header_end + FORM] + b"I" + message)

"""The lists of a broker's Redis that messages wait in, and the hash of those that a consumer has.

list --take--> not acknowledged --settle--> gone, or back at the end that is consumed next
| whoever took it died
+--> kombu gives it back to its list, after its visibility time-out
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..servers import Connection, packed

# What is written comes before what is removed: a script that Redis stops loses nothing.
_TAKE = """
local list, unacked, index, taken = KEYS[1], KEYS[2], KEYS[3], {}
for at = 2, #ARGV, 3 do
  local tag, message = ARGV[at], ARGV[at + 1]
  local is_taken = redis.call('HSETNX', unacked, tag, ARGV[at + 2]) == 1
  if is_taken then
    redis.call('ZADD', index, ARGV[1], tag)
    is_taken = redis.call('LREM', list, -1, message) == 1
    if not is_taken then
      redis.call('ZREM', index, tag)
      redis.call('HDEL', unacked, tag)
    end
  end
  taken[#taken + 1] = is_taken and 1 or 0
end
return taken
"""
_SETTLE = """
local list, unacked, index = KEYS[1], KEYS[2], KEYS[3]
for at = 1, #ARGV, 2 do
  local tag, message = ARGV[at], ARGV[at + 1]
  if redis.call('HEXISTS', unacked, tag) == 1 then
    if message ~= '' then redis.call('RPUSH', list, message) end
    redis.call('ZREM', index, tag)
    redis.call('HDEL', unacked, tag)
  end
end
"""


@dataclass(frozen=True)
class Waiting:
    """A message in a list.

    ``raw``: as it stands there.
    ``tag``: its delivery tag.
    ``kept``: what kombu keeps of it until it is acknowledged.
    """

    raw: bytes
    tag: str
    kept: str


class Lists:
    """What a broker's queues hold; it takes messages as kombu's consumers do.

    Args:
        connection: To the broker's Redis.
        unacked: The names of the hash and of the index of what is not acknowledged.
    """

    def __init__(self, connection: Connection, unacked: tuple[str, str]) -> None:
        self._connection = connection
        self._unacked = unacked

    def length(self, key: str) -> int:
        """How many messages a list has.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        count: int = self._connection.execute("adopt", packed(["LLEN", key]))
        return count

    def part(self, key: str, start: int, count: int) -> list[bytes]:
        """Up to *count* messages, next first, behind the *start* that come before them.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        ends = -start - count, -start - 1
        found: list[bytes] = self._connection.execute("adopt", packed(["LRANGE", key, *ends]))
        return found[::-1]

    def take(self, key: str, messages: Sequence[Waiting]) -> list[bool]:
        """Take messages out of their list, in one step; which of them were there.

        Raises:
            StoreError: Redis cannot be reached, or refuses. What it took comes back by itself.
        """
        flat: list[bytes | str] = []
        for one in messages:
            flat += (one.tag, one.raw, one.kept)
        return [bool(one) for one in self._run(_TAKE, key, str(time.time()), *flat)]

    def settle(self, key: str, done: Sequence[Waiting], refused: Sequence[Waiting]) -> None:
        """Acknowledge messages, and put others back to the end that is consumed next.

        Raises:
            StoreError: Redis cannot be reached, or refuses. They come back by themselves.
        """
        flat: list[bytes | str] = []
        for one in done:
            flat += (one.tag, b"")
        for one in reversed(refused):
            flat += (one.tag, one.raw)
        self._run(_SETTLE, key, *flat)

    def _run(self, script: str, key: str, *arguments: bytes | str) -> list[int]:
        command = ["EVAL", script, 3, key, *self._unacked, *arguments]
        told: list[int] = self._connection.execute("adopt", packed(command))
        return told

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

"""Lists of messages in a broker's Redis, read from the end that is consumed next."""

from __future__ import annotations

from .connection import Connection, packed


class Lists:
    """What a broker's queues hold.

    Args:
        connection: To the broker's Redis.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

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

    def remove(self, key: str, message: bytes) -> bool:
        """Take exactly this message out; whether it was there.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        return bool(self._connection.execute("adopt", packed(["LREM", key, -1, message])))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

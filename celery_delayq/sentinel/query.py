"""Asking sentinels who is the master of a group: one after another, each in a share of the time.

first the one that was right last --> next --> ...      until one names a master that can be used
        |                              |
        away, silent, no sentinel, one that knows too few others: why is noted
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

from .. import clock
from ..servers.endpoint import Address, Endpoint
from ..servers.moving import FAILED, WRONG


@dataclass(frozen=True)
class MasterQuery:
    """The sentinels of a group.

    Args:
        name: The master's.
        sentinels: Where they are, and how each lets one in.
        ask: Seconds that one of them may take for each step.
        others: How many others one has to know, or else it is not believed.
    """

    name: str
    sentinels: tuple[Endpoint, ...]
    ask: float
    others: int

    def named(
        self, first: int, until: float, errors: list[str], left: Address | None = None
    ) -> Iterator[tuple[int, Address]]:
        """Which sentinel names whom, while one iterates.

        Args:
            first: The number of the one to ask first.
            until: When to give up, by the monotonic clock.
            errors: Gets what others said instead.
            left: Who counts only where no sentinel names another, and comes last.
        """
        names_left = []
        is_another = False
        for number, address in self._answers(first, until, errors):
            if address == left:
                names_left.append((number, address))
            else:
                is_another = True
                yield number, address
        if not is_another:
            yield from names_left

    def _answers(
        self, first: int, until: float, errors: list[str]
    ) -> Iterator[tuple[int, Address]]:
        numbers = list(range(len(self.sentinels)))
        for turn, number in enumerate(numbers[first:] + numbers[:first]):
            sentinel = self.sentinels[number]
            # Each of them gets a share of what is left, and so does the master.
            seconds = min(self.ask, clock.seconds_left(until) / (len(self.sentinels) - turn + 1))
            try:
                address = self._answer_of(sentinel, seconds)
            except FAILED as error:
                errors.append(f"{sentinel.where}: {error}")
            except WRONG as error:
                errors.append(f"{sentinel.where}: it answers as no sentinel does ({error!r})")
            else:
                if address is not None:
                    yield number, address

    def check(self, connection: Any) -> None:
        """See whether the sentinel that a connection leads to is to be believed.

        Raises:
            redis.exceptions.ResponseError: it knows too few others.
        """
        if self.others and self._others_of(connection) < self.others:
            raise redis.ResponseError(f"it knows fewer than {self.others} other sentinels")

    def unknown(self, errors: list[str]) -> str:
        """Why nobody was named, where these are the errors."""
        hosts = ", ".join(one.where for one in self.sentinels)
        if not errors:
            return f"the sentinels {hosts} know no master {self.name!r}"
        others = len(self.sentinels) - len(errors)
        rest = "; the others know none of that name" if others else ""
        return f"no sentinel tells who is the master {self.name!r}: {'; '.join(errors)}{rest}"

    def _answer_of(self, sentinel: Endpoint, seconds: float) -> Address | None:
        connection = sentinel.connection(seconds)
        try:
            connection.connect()
            self.check(connection)
            told = _asked(connection, "GET-MASTER-ADDR-BY-NAME", self.name)
        finally:
            connection.disconnect()
        return None if not told else (told[0].decode(), int(told[1]))

    def _others_of(self, connection: Any) -> int:
        told = _asked(connection, "MASTER", self.name)
        return int(dict(zip(told[::2], told[1::2], strict=False)).get(b"num-other-sentinels", 0))


def _asked(connection: Any, *question: str) -> Any:
    connection.send_command("SENTINEL", *question)
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        if "unknown command" in str(error):
            raise redis.ResponseError("it is a Redis, and no sentinel") from error
        raise

"""Asks sentinels for the master of a group, one after another, each with a share of the time.

first the one that was right last --> next --> ...      until one names a usable master
        |                              |
        down, silent, no sentinel, or one that knows too few others: the reason is noted
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

from ...core import clock
from ...core.servers.endpoint import Address, Endpoint
from ..moving import FAILED, WRONG


@dataclass(frozen=True)
class MasterQuery:
    """The sentinels of a group.

    Args:
        name: The master's name.
        sentinels: Their addresses and logins.
        ask: Seconds that one of them may take for each step.
        others: How many other sentinels a sentinel must know to be trusted.
    """

    name: str
    sentinels: tuple[Endpoint, ...]
    ask: float
    others: int

    def named(
        self, first: int, until: float, errors: list[str], left: Address | None = None
    ) -> Iterator[tuple[int, Address]]:
        """Ask sentinels while you iterate; yield the number of each and the master it names.

        Args:
            first: The number of the sentinel to ask first.
            until: When to give up, by the monotonic clock.
            errors: Gets the errors of the others.
            left: The previous master, yielded last, for the case that no sentinel names another.
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
            # Each sentinel gets a share of the time left, and so does the master.
            seconds = min(self.ask, clock.seconds_left(until) / (len(self.sentinels) - turn + 1))
            try:
                address = self._answer_of(sentinel, seconds)
            except FAILED as error:
                errors.append(f"{sentinel.where}: {error}")
            except WRONG as error:
                errors.append(f"{sentinel.where}: not a sentinel's answer ({error!r})")
            else:
                if address is not None:
                    yield number, address

    def check(self, connection: Any) -> None:
        """Check that the sentinel behind a connection can be trusted.

        Raises:
            redis.exceptions.ResponseError: it knows too few others.
        """
        if self.others and self._others_of(connection) < self.others:
            raise redis.ResponseError(f"it knows fewer than {self.others} other sentinels")

    def unknown(self, errors: list[str]) -> str:
        """Return why no master was named, given these errors."""
        hosts = ", ".join(sentinel.where for sentinel in self.sentinels)
        if not errors:
            return f"the sentinels {hosts} know no master {self.name!r}"
        others = len(self.sentinels) - len(errors)
        rest = "; the others know no such master" if others else ""
        return f"no sentinel names the master {self.name!r}: {'; '.join(errors)}{rest}"

    def _answer_of(self, sentinel: Endpoint, seconds: float) -> Address | None:
        connection = sentinel.connection(seconds)
        try:
            connection.connect()
            self.check(connection)
            address = _asked(connection, "GET-MASTER-ADDR-BY-NAME", self.name)
        finally:
            connection.disconnect()
        return None if not address else (address[0].decode(), int(address[1]))

    def _others_of(self, connection: Any) -> int:
        facts = _asked(connection, "MASTER", self.name)
        return int(dict(zip(facts[::2], facts[1::2], strict=False)).get(b"num-other-sentinels", 0))


def _asked(connection: Any, *question: str) -> Any:
    connection.send_command("SENTINEL", *question)
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        if "unknown command" in str(error):
            raise redis.ResponseError("it is a Redis, not a sentinel") from error
        raise

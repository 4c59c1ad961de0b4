"""The real Redis: it runs a request at the world's time, and shows what is there afterwards."""

from typing import Any

import redis

from tests.lab.simulator.driver import Inside
from tests.lab.simulator.network import Request
from tests.lab.simulator.sight import Sight
from tests.lab.simulator.world import SECOND, START_US, World


class Lab:
    """A Redis of the suite's own, and connections to it; emptied for each world."""

    def __init__(self, redis_server: Any):
        self.inside = Inside(redis_server)
        self._connection, self._ears = self.inside.connection(), self.inside.connection()
        self._channels: set[str] = set()

    def ask(self, *commands: bytes) -> list[Any]:
        """Send commands together; the error of a failed one is among the answers."""
        self._connection.send_packed_command([b"".join(commands)])
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:
        try:
            return self._connection.read_response(disable_decoding=True)
        except redis.ResponseError as error:
            return error

    def subscribe(self, *channels: str) -> None:
        for channel in sorted(set(channels) - self._channels):
            self._ears.send_command("SUBSCRIBE", channel)
            self._ears.read_response()
            self._channels.add(channel)

    def unsubscribe(self, *channels: str) -> None:
        for channel in sorted(self._channels.intersection(channels)):
            self._ears.send_command("UNSUBSCRIBE", channel)
            while self._ears.read_response()[0] != b"unsubscribe":
                pass  # a word that was on its way
            self._channels.remove(channel)

    def forget_channels(self) -> None:
        self.unsubscribe(*self._channels)

    def published(self) -> list[str]:
        """The channels that something was published to since the last look, in order."""
        channels = []
        # The answer to this comes after everything that was published.
        self._ears.send_command("PING")
        while (told := self._ears.read_response())[0] == b"message":
            channels.append(told[1].decode())
        return channels

    def close(self) -> None:
        self._ears.disconnect()
        self._connection.disconnect()
        self.inside.close()


class Server:
    """That Redis in one world."""

    def __init__(self, world: World, lab: Lab, *, drift: float, shards: int, then: int):
        self._inside = lab.inside
        self._inside.empty(shards, then)
        self._lab = lab
        self._world = world
        self._ahead_us = START_US
        self._steps = [(0, START_US)]  # when its clock was set, in true time, and how far ahead
        self._rate = 1 + world.decisions.dice("redis").uniform(-drift, drift)
        self._queued = 0
        self.sight = Sight()
        # A resharding puts what is owed on the shard of its id, and an entry on that of its key.
        self.owed_apart: set[str] = set()
        self._inside.set_clock(self.now_us)

    @property
    def now_us(self) -> int:
        return self._ahead_us + round(self._world.now_us * self._rate)

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def step_clock(self, us: int) -> None:
        self._ahead_us += us
        self._steps.append((self._world.now_us, self._ahead_us))
        self._world.say("redis", f"its clock is set {us / SECOND:+.6f} s")

    def is_behind_since(self, us: int) -> bool:
        """Whether its clock is not beyond a time that has passed, as it was set back meanwhile.

        So it looks to a request that was made before. A caller may know the time from long ago.
        """
        furthest_us = max(ahead_us for at_us, ahead_us in self._steps if at_us <= us)
        return self._world.now_us - us <= furthest_us - self._ahead_us

    def is_earlier(self, us: int, before_us: int) -> bool:
        """Whether its clock showed no later time at a time than before, as it was set back."""
        return self._shown(us) <= self._shown(before_us)

    def _shown(self, us: int) -> int:
        _, ahead_us = max(step for step in self._steps if step[0] <= us)
        return us + ahead_us

    def has_forgotten(self, end_us: int) -> bool:
        """Whether it may have forgotten a call that is over, and take a request of it for new.

        Its clock was set back, so that the request looks in time, and answers may look old.
        """
        return self._world.now_us > end_us and self.is_behind_since(end_us)

    def forget_scripts(self) -> None:
        self._world.say("redis", "forgets its scripts")
        self._inside.forget_scripts()

    def run(self, request: Request) -> Any:
        """The answer of Redis; an error is returned, not raised."""
        _, reply, *rest = self._lab.ask(
            self._inside.clock(self.now_us), request.text, *self._inside.look(self._queued)
        )
        if self._inside.has_moved(rest[0]):
            self.owed_apart |= self.sight.owed
            rest = self._lab.ask(*self._inside.look(self._queued))
        self.sight = self._inside.seen(rest, self.sight)
        self._queued += len(self.sight.arrived)
        return reply

    def findings(self) -> list[str]:
        """The findings of the package's own check of the store."""
        self._inside.set_clock(self.now_us)
        return self._inside.check()

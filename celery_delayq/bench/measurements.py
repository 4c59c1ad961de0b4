"""What was measured of a Redis, and what limits it: the longest part of a call.

a call:  this process | its bytes on the wire | round trip | Redis's CPU | somebody else
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Limit(str, Enum):
    """What a call spends most of its time on."""

    REDIS = "redis"
    ROUND_TRIP = "round_trip"
    BANDWIDTH = "bandwidth"
    CALLER = "this_process"
    #: None of these: somebody else had Redis, or the processors.
    OTHERS = "others"


@dataclass(frozen=True)
class Link:
    """The way to Redis and back; times in seconds."""

    median: float
    p99: float
    per_byte: float

    @property
    def bytes_per_second(self) -> float | None:
        """``None``: too fast to be told from the round trip."""
        return 1 / self.per_byte if self.per_byte > 0 else None


@dataclass(frozen=True)
class Measure:
    """One kind of call, made again and again; times in seconds.

    Attributes:
        calls: How many there were.
        tasks: How many tasks they dealt with.
        seconds: How long they took together, what this process did for them included.
        longest: How long the longest took.
        size: Bytes that were sent for a call.
        caller: CPU time of this process.
        redis: CPU time of Redis; ``None`` where it does not tell.
    """

    calls: int
    tasks: int
    seconds: float
    longest: float
    size: float
    caller: float
    redis: float | None

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.tasks / self.seconds

    @property
    def call(self) -> float:
        """Seconds of a call, on average."""
        return self.seconds / self.calls

    @property
    def redis_busy(self) -> float | None:
        """Which share of the time Redis computed."""
        return None if self.redis is None else min(1.0, self.redis / self.seconds)

    @property
    def caller_busy(self) -> float:
        """Which share of the time this process computed."""
        return min(1.0, self.caller / self.seconds)

    def limit(self, link: Link) -> Limit:
        """What a call spends most of its time on."""
        parts = {
            Limit.CALLER: self.caller / self.calls,
            Limit.ROUND_TRIP: min(link.median, self.call),
            Limit.BANDWIDTH: self.size * link.per_byte,
        }
        rest = max(0.0, self.call - sum(parts.values()))
        if self.redis is None:
            # Where Redis does not tell, what nothing else explains is taken for its work.
            parts[Limit.REDIS] = rest
        else:
            parts[Limit.REDIS] = self.redis / self.calls
            parts[Limit.OTHERS] = max(0.0, rest - parts[Limit.REDIS])
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True)
class Figures:
    """All that was measured.

    Attributes:
        direct: Whether this app's tasks go to their lists as they did here, by a script.
        memory: Bytes of Redis's memory per waiting task; ``None`` where it does not tell.
    """

    direct: bool
    link: Link
    one: Measure
    cancel: Measure
    bulk: Measure
    hand_over: Measure
    memory: float | None

    def facts(self) -> dict[str, object]:
        """The same for a machine; times in ms."""
        link = self.link
        return {
            "direct": self.direct,
            "round_trip_ms": {"median": _ms(link.median), "p99": _ms(link.p99)},
            "bytes_per_second": link.bytes_per_second and round(link.bytes_per_second),
            "schedule_one": _facts(self.one, link),
            "cancel_one": _facts(self.cancel, link),
            "schedule_many": _facts(self.bulk, link),
            "hand_over": _facts(self.hand_over, link),
            "memory_bytes_per_task": self.memory and round(self.memory),
        }


def _facts(measure: Measure, link: Link) -> dict[str, object]:
    busy = measure.redis_busy
    return {
        "tasks": measure.tasks,
        "per_second": round(measure.rate),
        "call_ms": _ms(measure.call),
        "longest_call_ms": _ms(measure.longest),
        "redis_busy": None if busy is None else round(busy, 3),
        "this_process_busy": round(measure.caller_busy, 3),
        "limit": measure.limit(link).value,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)

"""How busy a Redis was between two looks."""

import time
from dataclasses import dataclass

import redis


@dataclass(frozen=True)
class Load:
    """The load of a Redis over a while.

    Attributes:
        seconds: How long it was.
        cpu: The share of one core that Redis used.
        scripts: Script calls of clients, a second.
        script_us: Redis's time for each of them.
        commands: All commands a second, those inside of scripts too.
    """

    seconds: float
    cpu: float
    scripts: float
    script_us: float
    commands: float

    def __str__(self) -> str:
        return (
            f"Redis {100 * self.cpu:.2f} % of a core, {self.scripts:,.1f} script calls/s of "
            f"{self.script_us:.0f} us, {self.commands:,.0f} commands/s, over {self.seconds:.0f} s"
        )


class Gauge:
    """Reads the counters of a Redis when it is made, and returns the load since then."""

    def __init__(self, client: redis.Redis):
        self._client = client
        self._begun, self._before = time.monotonic(), self._read()

    def load(self) -> Load:
        seconds = time.monotonic() - self._begun
        cpu, calls, usec, commands = (
            after - before for after, before in zip(self._read(), self._before, strict=True)
        )
        return Load(
            seconds, cpu / seconds, calls / seconds, usec / max(1, calls), commands / seconds
        )

    def _read(self) -> tuple[float, float, float, float]:
        cpu, stats = self._client.info("cpu"), self._client.info("commandstats")
        scripts = stats.get("cmdstat_evalsha", {"calls": 0, "usec": 0})
        done = self._client.info("stats")["total_commands_processed"]
        used = cpu["used_cpu_user"] + cpu["used_cpu_sys"]
        return used, scripts["calls"], scripts["usec"], done

"""A thousand scanners on one Redis: idle, at due times, and after Redis was killed."""

import time
from threading import Event

import redis

from tests.lab.benchmarks.filling import Template, fill
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures
from tests.lab.recurring.gauge import Gauge
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

PROCESSES = 10
SETTLED = 30.0  # seconds after which each scanner knows how many there are
EVERY = 0.05  # seconds between two looks at a Redis to which scanners come back
DOWN = {"short": 0.0, "long": 10.0}  # seconds; in the long one, pauses reach their maximum


def measure(lab: Lab) -> Figures:
    """Redis's load, and how soon all scanners are back after it answers again."""
    count = lab.scaled(1000, 200)
    with (
        lab.another_server("--maxclients", "20000", "--appendonly", "yes") as server,
        lab.app(server.url()) as app,
        lab.scanners(server.url(), PROCESSES, threads=count // PROCESSES) as scanning,
    ):
        client = server.client()
        template = Template(app)
        before = connections(client)
        scanning.start()
        # Each has one for its commands, and one on which it waits.
        eventually(lambda: connections(client) >= before + 2 * count, timeout=120)
        Event().wait(SETTLED)
        figures: Figures = {"connections": connections(client) - before}
        figures |= _idle(client, lab.scaled(30, 10))
        figures |= _due(server, template, figures["idle_scripts_per_s"], lab.scaled(20, 5))
        for name, seconds in DOWN.items():
            server.kill()
            Event().wait(seconds)
            server.start()
            found = _back(server, count)
            figures |= {f"{name}_{figure}": value for figure, value in found.items()}
        scanning.stop()
    return figures


def connections(client: redis.Redis) -> int:
    return client.info("clients")["connected_clients"]


def _idle(client: redis.Redis, seconds: float) -> Figures:
    gauge = Gauge(client)
    Event().wait(seconds)
    load = gauge.load()
    return {
        "idle_redis_cpu_percent": 100 * load.cpu,
        "idle_scripts_per_s": load.scripts,
        "idle_commands_per_s": load.commands,
    }


def _due(server: RedisServer, template: Template, idle: float, count: int) -> Figures:
    """One task falls due each second: script calls for each, beside those of idle scanners."""
    start_ms = int((time.time() + 3) * 1000)
    fill(server.socket, template, range(start_ms, start_ms + 1000 * count, 1000))
    Event().wait(max(0.0, start_ms / 1000 - 0.5 - time.time()))
    gauge = Gauge(server.client())
    Event().wait(count)
    load = gauge.load()
    return {
        "due_scripts": (load.scripts - idle) * load.seconds / count,
        "due_redis_cpu_percent": 100 * load.cpu,
    }


def _back(server: RedisServer, count: int) -> Figures:
    """Watch a Redis from its first answer until all scanners are back."""
    whole = 2 * count + 1  # theirs, and this watch's
    client = server.client()
    began = time.monotonic()
    seen, slowest = [(0.0, 0, 0)], 0.0
    while (found := client.info())["connected_clients"] < whole:
        asked = time.monotonic()
        seen.append(
            (asked - began, found["total_connections_received"], found["total_commands_processed"])
        )
        assert asked - began < 120, f"{found['connected_clients']} of {whole} are back"
        client.ping()
        slowest = max(slowest, time.monotonic() - asked)
        Event().wait(EVERY)
    back = time.monotonic() - began
    seen.append((back, found["total_connections_received"], found["total_commands_processed"]))
    return {
        "back_s": back,
        "connections_per_s": _most_in_a_second(seen, 1),
        "commands_per_s": _most_in_a_second(seen, 2),
        "redis_cpu_s": found["used_cpu_user"] + found["used_cpu_sys"],
        "slowest_ping_ms": 1000 * slowest,
    }


def _most_in_a_second(seen: list[tuple[float, int, int]], which: int) -> float:
    """The largest growth of a counter within one second."""
    return max(
        later[which] - earlier[which]
        for earlier in seen
        for later in seen
        if 0 <= later[0] - earlier[0] <= 1
    )

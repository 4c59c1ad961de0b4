"""The cost of an idle scanner: commands it sends, and CPU on both sides."""

import socket
from threading import Event

from tests.lab.benchmarks.children import cpu_seconds
from tests.lab.benchmarks.filling import Template, fill, shuffled_future
from tests.lab.benchmarks.lab import Lab
from tests.lab.benchmarks.stats import Figures
from tests.support.redis_server import RedisServer


def measure(lab: Lab) -> Figures:
    """One scanner, 10,000 entries waiting for tomorrow."""
    server = lab.server
    seconds = lab.scaled(60, 15)
    with lab.app(server.url()) as app, lab.scanners(server.url()) as scanning:
        fill(server.socket, Template(app), shuffled_future(10_000))
        scanning.start()
        Event().wait(2)
        before = cpu_seconds(scanning.pids[0])
        commands = commands_sent(server, seconds)
        used = cpu_seconds(scanning.pids[0]) - before
        scanning.stop()
    return {"commands_per_s": commands / seconds, "cpu_percent": 100 * used / seconds}


def commands_sent(server: RedisServer, seconds: float) -> int:
    """How many commands clients send in *seconds*; commands inside scripts do not count."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(server.socket)
        monitor.sendall(b"MONITOR\r\n")
        Event().wait(seconds)
        seen, monitor_ended = b"", False
        monitor.settimeout(0.1)
        while not monitor_ended:
            try:
                seen += monitor.recv(1 << 20)
            except TimeoutError:
                monitor_ended = True
    # A line looks like: +1700000000.123456 [0 127.0.0.1:50000] "EVALSHA" "..."
    return sum(b" [" in line and b" lua] " not in line for line in seen.splitlines())

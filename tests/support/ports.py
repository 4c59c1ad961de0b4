"""A free port on the loopback interface."""

import random
import socket

# Below the range that systems give to outgoing connections: there, a client that keeps trying the
# port of a stopped server can be given that very port, and even be connected to itself.
LOWEST, HIGHEST = 15_000, 32_000


def free_port() -> int:
    while True:
        port = random.randint(LOWEST, HIGHEST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if _binds(probe, port):
                return port


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True

"""A free port on the loopback interface, which no other process of the suite is given."""

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

# Below the range that systems give to outgoing connections: there, a client that keeps trying the
# port of a stopped server can be given that very port, and even be connected to itself.
LOWEST, HIGHEST = 15_000, 32_000
FILE = Path(tempfile.gettempdir(), f"delayq-ports-{os.getuid()}")

_given: set[int] = set()


def free_port() -> int:
    """It stays this process's own: a server that is stopped finds it free when it starts again."""
    while True:
        port = random.randint(LOWEST, HIGHEST)
        if port not in _given and _is_reserved(port) and _is_free(port):
            _given.add(port)
            return port


def _is_reserved(port: int) -> bool:
    # The system releases the lock, of one byte, when the process ends.
    try:
        fcntl.lockf(_file(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _file(_owner: int) -> IO[bytes]:
    return FILE.open("ab")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

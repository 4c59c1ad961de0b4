#!/usr/bin/env python3
"""The `redis-server` of ``./tests/run late MS COMMAND``: a Redis whose answers come late.

client ---> SlowLink ---> Redis, at a socket that nobody else knows
       <-- later --

Its process becomes Redis, so a signal and the exit status are Redis's. A child of it forwards, at
the port and the socket of the command line, and ends with Redis. Servers with TLS, Redis Cluster
and sentinels answer as always.
"""

import contextlib
import os
import socket
import sys
from pathlib import Path

from slow_link import SlowLink
from waiting import eventually

AS_ALWAYS = {"--cluster-enabled", "--tls-port", "--sentinel"}
FREE_WITHIN = 5.0  # seconds in which the child of an earlier Redis lets go of the port


def main():
    redis, *options = os.environ["DELAYQ_LATE_REDIS"], *sys.argv[1:]
    if "--port" in options and not AS_ALWAYS.intersection(options):
        _forward(options)
    os.execv(redis, [redis, *options])


def _forward(options):
    """Fork the child that forwards, and turn *options* into those of the Redis behind it."""
    port = options[options.index("--port") + 1]
    path = _option(options, "--unixsocket")
    behind = str(Path(_option(options, "--dir") or Path.cwd(), "late.sock"))
    # Now, so that clients can connect as soon as Redis logs that it is ready.
    listening = [_listening(socket.AF_INET, ("127.0.0.1", int(port)))]
    if path:
        Path(path).unlink(missing_ok=True)
        listening.append(_listening(socket.AF_UNIX, path))
    # Redis keeps the one end open as long as it lives.
    ended, lives = os.pipe()
    if os.fork() == 0:
        os.close(lives)
        seconds = float(os.environ["DELAYQ_LATE_MS"]) / 1000
        with contextlib.ExitStack() as links:
            for one in listening:
                links.enter_context(SlowLink(behind, seconds, one))
            os.read(ended, 1)
            os._exit(0)
    os.set_inheritable(lives, True)
    # The last one counts.
    options += ["--port", "0", "--unixsocket", behind, "--replica-announce-port", port]


def _option(options, name):
    return options[options.index(name) + 1] if name in options else None


def _listening(family, address):
    def listening():
        with contextlib.suppress(OSError):
            return socket.create_server(address, family=family, backlog=511)

    return eventually(listening, FREE_WITHIN, f"{address} is free")


if __name__ == "__main__":
    main()

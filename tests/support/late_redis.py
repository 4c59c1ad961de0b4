#!/usr/bin/env python3
"""The `redis-server` of ``./tests/run late MS COMMAND``: a Redis whose answers come late.

client ---> SlowLink ---> Redis, at a socket that nobody else knows
       <-- later --

Its process becomes Redis, so a signal and the exit status are Redis's. A child of it forwards, at
the port and the socket of the command line, and ends with Redis. Servers with TLS, Redis Cluster
and sentinels answer as always.
"""

import contextlib
import errno
import os
import socket
import sys
import time

from slow_link import SlowLink

AS_ALWAYS = {"--cluster-enabled", "--tls-port", "--sentinel"}
PATIENCE = 5.0  # seconds until the child of an earlier Redis has let go of the port


def main():
    redis, *options = os.environ["DELAYQ_LATE_REDIS"], *sys.argv[1:]
    if "--port" in options and not AS_ALWAYS.intersection(options):
        _forward(options)
    os.execv(redis, [redis, *options])


def _forward(options):
    """Fork the child that forwards, and turn *options* into those of the Redis behind it."""
    port = options[options.index("--port") + 1]
    path = _option(options, "--unixsocket")
    behind = os.path.join(_option(options, "--dir") or os.getcwd(), "late.sock")
    # Now, so that clients can connect as soon as Redis logs that it is ready.
    listening = [_listening(socket.AF_INET, ("127.0.0.1", int(port)))]
    if path:
        if os.path.exists(path):
            os.unlink(path)
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
    begun = time.monotonic()
    while True:
        try:
            return socket.create_server(address, family=family, backlog=511)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > begun + PATIENCE:
                raise
        time.sleep(0.01)


if __name__ == "__main__":
    main()

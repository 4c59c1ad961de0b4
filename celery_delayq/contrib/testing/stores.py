"""Stores for isolated apps: a Redis inside this process, or a prefix of a real one.

The one inside is fakeredis with its TCP server on loopback, so this package talks to it as it does
in production. Each process starts one on first use. Each test has a prefix of its own, and deletes
its keys at the end.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from importlib import import_module
from threading import Thread
from typing import Any

from ...core.errors import CannotIsolate
from ...core.servers.connection import packed
from ...core.servers.pool import PerProcess
from ...core.store.keys import KEYS
from ...core.store.scripts import Scripts
from .moved import clock_key

#: Names a real Redis, if neither the caller nor pytest's options do.
VARIABLE = "DELAYQ_TEST_REDIS"

_NEEDS = (
    "an isolated store needs fakeredis with Lua: pip install 'celery_delayq[testing]'; or name a "
    f"Redis by the environment's {VARIABLE}, pytest's --delayq-redis, or redis="
)


def url_of(redis: str | None) -> str:
    """Return the URL of the Redis for a test.

    Args:
        redis: A real one's; by default the one that the environment names, or else fakeredis.

    Raises:
        CannotIsolate: fakeredis is missing.
    """
    return redis or os.environ.get(VARIABLE) or _served.get()


def new_prefix() -> str:
    """Return a prefix that no other test has, in any process."""
    return f"delayq-test-{os.urandom(6).hex()}"


def delete_all(key_sets: Sequence[Scripts]) -> None:
    """Delete the keys of these sets, each by its name, and no others."""
    for scripts in key_sets:
        names = [*(scripts.keys[name] for name in KEYS), clock_key(scripts)]
        scripts.connection.execute("delete", packed(["UNLINK", *names]))


def _serve() -> str:
    try:
        import_module("lupa")  # fakeredis runs scripts with it
        from fakeredis import TcpFakeServer
    except ImportError as error:
        raise CannotIsolate(_NEEDS) from error
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    # A forgotten connection must not keep the process from ending.
    server.daemon_threads = True
    server.block_on_close = False
    Thread(target=server.serve_forever, args=(0.05,), name="delayq-test-redis", daemon=True).start()
    atexit.register(_end, server, os.getpid())
    return f"redis://127.0.0.1:{server.server_address[1]}/0"


def _end(server: Any, pid: int) -> None:
    if os.getpid() == pid:
        server.shutdown()
        server.server_close()


_served = PerProcess(_serve)  # a forked child has the server's sockets only

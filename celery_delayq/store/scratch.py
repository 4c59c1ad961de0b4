"""Keys of a measurement's own in a Redis, removed at its end.

Everything is named ``{<prefix>:bench-<8 hex digits>:0}:…``. A prefix of the settings has no colon,
so no app and no scanner ever looks there; and the access rights to an app's own keys cover these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from ..errors import KeysLeft, StoreError, StoreUnavailable
from .connection import Connection, packed
from .keys import KEYS, Keys
from .scripts import Scripts

LIFETIME_MS = 600_000  # of what a killed process leaves behind
ATTEMPTS = 3  # at removing the keys
SAMPLES = 100  # of a key's fields that Redis weighs

_WAITING = ("due", "records", "templates", "template_uses")
_NOTHING = "return 1"
_MARK = "for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end"


class ScratchKeys:
    """Keys of one's own, removed at the end of a ``with``.

    Args:
        connection: To the Redis.
        prefix: The app's; the keys' names begin with it.
    """

    def __init__(self, connection: Connection, prefix: str) -> None:
        keys = Keys(f"{prefix}:bench-{os.urandom(4).hex()}")
        self.name = keys["due"].removesuffix("due")
        self.list = f"{self.name}list"
        self.arrived = 0
        self._connection = connection
        self.scripts = Scripts(connection, keys)
        self._names = [*(keys[name] for name in KEYS), self.list]
        self._can_mark = True

    def __enter__(self) -> None:
        # What could not be removed afterwards is not written.
        try:
            self._send("bench", "UNLINK", *self._names)
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise StoreError(
                "bench", f"{error.why}; it takes the rights to {self.name}*"
            ) from error

    def __exit__(self, *_: object) -> None:
        # The fresh connection that this brings is read after the old one: should the last command
        # still be under way, it comes before its keys are removed.
        self.close()
        for left in reversed(range(ATTEMPTS)):
            try:
                self._send("unlink", "UNLINK", *self._names)
            except StoreError as error:
                if not (left and isinstance(error, StoreUnavailable)):
                    raise KeysLeft("unlink", error.why, self.name) from error
            else:
                return

    def close(self) -> None:
        """Let go of the connection to Redis."""
        self._connection.close()

    def round_trip(self, payload: bytes = b"") -> float:
        """Seconds that a script takes which does nothing with *payload*."""
        command = packed(["EVAL", _NOTHING, 0, payload])
        began = time.perf_counter()
        self._connection.execute("round trip", command)
        return time.perf_counter() - began

    def tidy(self) -> None:
        """Count and remove what arrived in the list; give the keys a time to live.

        A key that is made anew has none, so this is called again and again.
        """
        if count := self._send("bench", "LLEN", self.list):
            self._send("bench", "UNLINK", self.list)
            self.arrived += count
        if self._can_mark:
            names, count = self._names, len(self._names)
            answer = self._allowed("EVAL", _MARK, count, *names, LIFETIME_MS)
            self._can_mark = answer is not False

    def memory(self) -> int | None:
        """Bytes of Redis's memory that waiting entries take; ``None`` where it does not tell."""
        names = [self.scripts.keys[name] for name in _WAITING]
        sizes = [self._allowed("MEMORY", "USAGE", name, "SAMPLES", SAMPLES) for name in names]
        return None if False in sizes else sum(size or 0 for size in sizes)

    def spare(self) -> int | None:
        """Bytes until Redis is full; ``None`` if it has no limit, or does not tell."""
        told = self._info("memory")
        limit = told.get("maxmemory", 0)
        return int(limit - told.get("used_memory", 0)) if limit else None

    def cpu(self) -> float | None:
        """Seconds of CPU that Redis took so far; ``None`` where it does not tell."""
        told = self._info("cpu")
        # The thread that runs the commands is what can be too busy; before Redis 7 all are one sum.
        for suffix in ("_main_thread", ""):
            names = [f"used_cpu_user{suffix}", f"used_cpu_sys{suffix}"]
            if all(name in told for name in names):
                return sum(told[name] for name in names)
        return None

    def _info(self, section: str) -> dict[str, float]:
        told = self._allowed("INFO", section) or b""
        return dict(_numbers(told.decode(errors="replace").splitlines()))

    def _allowed(self, *command: str | int) -> Any:
        """The answer to a command that this can do without; ``False`` where Redis refuses it."""
        try:
            return self._send("bench", *command)
        except StoreUnavailable:
            raise
        except StoreError:
            return False

    def _send(self, step: str, *command: str | int) -> Any:
        return self._connection.execute(step, packed(command))


def _numbers(lines: Iterable[str]) -> Iterable[tuple[str, float]]:
    for line in lines:
        name, _, value = line.partition(":")
        try:
            yield name, float(value)
        except ValueError:
            continue

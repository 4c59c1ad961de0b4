"""The facts that a Redis reports about itself.

    HELLO ---> product, version, role                 every user may send it
    INFO ----> memory, persistence, replicas          a hosted Redis may refuse it
    CONFIG --> save points, how often it syncs        most hosted ones refuse it

A fact that it does not report is ``None``, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import StoreError, StoreUnavailable
from .connection import Connection, packed

SETTINGS = ("save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write")
_LINE = re.compile(r"^(\w+):([^\r\n]*)", re.MULTILINE)


def ask(connection: Connection, *command: bytes | str | int) -> Any:
    """Return Redis's answer, or ``None`` if Redis, or a proxy, refuses this user the command.

    Raises:
        StoreUnavailable: no answer came in time.
    """
    try:
        return connection.execute("doctor", packed(command))
    except StoreUnavailable:
        # A proxy may close the connection on a command that it does not allow.
        _see_it_is_there(connection)
    except StoreError:
        pass
    return None


def _see_it_is_there(connection: Connection) -> None:
    try:
        connection.execute("doctor", packed(["PING"]))
    except StoreUnavailable:
        raise
    except StoreError:
        pass  # this is an answer too


@dataclass(frozen=True)
class Facts:
    """The facts that a Redis reports about itself.

    Attributes:
        hello: Its answer to HELLO: server, version, mode, role.
        info: The fields of INFO; empty if it refuses.
        config: Those of the :data:`SETTINGS` that it reports.
    """

    hello: Mapping[str, str]
    info: Mapping[str, str]
    config: Mapping[str, str]

    @classmethod
    def ask(cls, connection: Connection) -> Facts:
        """Read the facts; six commands at most.

        Raises:
            StoreUnavailable: no answer came in time.
        """
        hello = ask(connection, "HELLO", 2) or []
        return cls(_pairs(hello), cls.of_info(connection).info, _config(connection))

    @classmethod
    def of_info(cls, connection: Connection) -> Facts:
        """Read the facts that INFO has: one command."""
        return cls({}, dict(_LINE.findall(_text(ask(connection, "INFO") or b""))), {})

    @property
    def version(self) -> str:
        """Its product and version: ``Redis 7.0.15``; empty if both are unknown."""
        version = self.hello.get("version") or self.info.get("redis_version", "")
        return f"{self.hello.get('server', 'redis').capitalize()} {version}" if version else ""

    @property
    def is_replica(self) -> bool | None:
        """Whether it is a replica."""
        role = self.info.get("role") or self.hello.get("role")
        return None if role is None else role not in ("master", "primary")

    @property
    def policy(self) -> str | None:
        """Its ``maxmemory-policy``."""
        return self.info.get("maxmemory_policy")

    @property
    def deletes_tasks(self) -> bool:
        """Whether its policy deletes waiting tasks when it is full.

        The other policies delete only keys with a time to live, which the store's keys do not have.
        """
        return (self.policy or "").startswith("allkeys-")

    @property
    def deleted(self) -> int:
        """How many keys it has deleted to make room, in all its databases; 0 if unknown."""
        return self._number("evicted_keys") or 0

    @property
    def maxmemory(self) -> int | None:
        """Bytes that it may use; 0: no limit but the machine's."""
        return self._number("maxmemory")

    @property
    def used(self) -> int | None:
        """Bytes that it uses, as far as ``maxmemory`` counts them."""
        used = self._number("used_memory")
        return None if used is None else used - (self._number("mem_not_counted_for_evict") or 0)

    @property
    def has_log(self) -> bool | None:
        """Whether it has an append-only file."""
        enabled = self.info.get("aof_enabled")
        return None if enabled is None else enabled == "1"

    @property
    def replicas(self) -> list[Mapping[str, str]]:
        """Its replicas: ip, port, state, offset, lag (in seconds)."""
        found = [text for name, text in self.info.items() if re.fullmatch(r"slave\d+", name)]
        return [dict(part.split("=", 1) for part in text.split(",") if "=" in part)
                for text in found]  # fmt: skip

    def _number(self, name: str) -> int | None:
        text = self.info.get(name, "")
        return int(text) if text.isdigit() else None


def _config(connection: Connection) -> dict[str, str]:
    directives: dict[str, str] = {}
    for name in SETTINGS:
        answer = ask(connection, "CONFIG", "GET", name)
        if answer is None:
            break  # it will not report the others either
        directives.update(_pairs(answer))
    return directives


def _pairs(flat: Any) -> dict[str, str]:
    """Return a flat reply as a dict, without values that are not text."""
    if not isinstance(flat, list):
        return {}
    pairs = zip(flat[::2], flat[1::2], strict=False)
    return {_text(name): _text(value) for name, value in pairs if isinstance(value, bytes)}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
